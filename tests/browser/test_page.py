"""The page as a person meets it: the real app, a tiny real model, chromium."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from specviz.trace import EMITTED
from specviz.ui.ask import OWN_PROMPT
from tests.browser.acts import ENDED, capture_feed, run, set_slider, start
from tests.browser.conftest import PHONE, ROOT, Opener, start_app, stop_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

HOSTILE = (
    "${1+1} </script><script>window.hit=1</script> <img src=x onerror='window.hit=1'> "
    "{{7*7}} `x` \u202ertl\u202c \u0627\u0644 a\u0000b"
)


def expect_recording(page: Page) -> None:
    if page.locator(".sv-run.sv-has-run").count() == 0:
        pytest.skip("no recorded run in assets/recorded")


def test_first_paint_is_a_recording_that_plays(open_page, shot):
    page = open_page(motion="no-preference")
    expect_recording(page)
    assert "Recorded on" in page.locator(".sv-run .sv-origin").inner_text()
    tokens = page.locator(".sv-run .sv-stream .sv-tok")
    page.wait_for_function("document.querySelectorAll('.sv-run .sv-stream .sv-tok').length > 3")
    button = page.locator(".sv-run .sv-play")
    if button.inner_text().strip() == "Pause":
        button.click()
    page.locator(".sv-run .sv-scrub").evaluate("bar => { bar.value = 0; bar.dispatchEvent(new Event('input')); }")
    page.wait_for_function("document.querySelectorAll('.sv-run .sv-stream .sv-tok').length === 0")
    page.locator(".sv-run .sv-speed").select_option("4")
    button.click()
    page.wait_for_function("document.querySelectorAll('.sv-run .sv-stream .sv-tok').length > 5")
    page.locator(".sv-run .sv-scrub").evaluate("bar => { bar.value = 1000; bar.dispatchEvent(new Event('input')); }")
    page.wait_for_function("document.querySelector('.sv-run .sv-scrub').value === '1000'")
    page.wait_for_timeout(700)
    assert tokens.count() > 10
    shot(page)


def test_run_matches_the_run(open_page, shot):
    """What is drawn is what was sent: the text, the count of every fate, the figures."""
    page = open_page()
    capture_feed(page)
    set_slider(page, "sv-temperature", 1)
    run(page, length=64)
    lines = page.evaluate("window.lines")
    steps = [line["step"] for line in lines if line["type"] == "step"]
    end = next(line for line in lines if line["type"] == "end")
    tokens = [token for step in steps for token in step["tokens"]]
    drawn = page.evaluate(
        """() => [...document.querySelectorAll('.sv-run .sv-stream .sv-tok')].map(
        node => [node.textContent, window.specviz.FATES.find(fate => node.classList.contains(`sv-${fate}`))])"""
    )
    assert drawn == [[token["text"], token["fate"]] for token in tokens]
    assert "".join(text for text, fate in drawn if fate in EMITTED) == end["output"]["text"]
    counts = Counter(token["fate"] for token in tokens)
    for item in page.locator(".sv-run .sv-legend-item").all():
        assert int(item.locator(".sv-count").inner_text()) == counts[item.get_attribute("data-fate")]
    summary = end["summary"]
    figure = lambda name: page.locator(f"[data-part=figure-{name}] .sv-figure-value").inner_text()  # noqa: E731
    assert figure("speed") == f"{summary['tokens_per_second']:.1f}"
    assert figure("perpass") == f"{summary['tokens_per_step']:.2f}"
    assert re.sub(r"\s", "", figure("rate")) == f"{summary['acceptance_rate']['value'] * 100:.0f}%"
    assert "Measured live on" in page.locator(".sv-run .sv-origin").inner_text()
    page.wait_for_timeout(700)
    shot(page)


def test_card(open_page, shot):
    """Hover and focus show why; the card steps aside for the microscope, which a click opens."""
    page = open_page()
    set_slider(page, "sv-temperature", 1)
    capture_feed(page)
    run(page, length=64)
    steps = [line["step"] for line in page.evaluate("window.lines") if line["type"] == "step"]
    node = page.locator(".sv-run .sv-stream .sv-rejected").first
    token = steps[int(node.get_attribute("data-step"))]["tokens"][int(node.get_attribute("data-token"))]
    card, scope = page.locator(".sv-card"), page.locator(".sv-scope")
    assert card.is_hidden()
    node.hover()
    card.wait_for(state="visible")
    assert "was above p/q" in card.locator(".sv-why").inner_text()
    assert token["u"] >= token["accept_prob"]
    shot(page)
    node.click()
    assert card.is_hidden()
    page.mouse.move(5, 5)
    assert "was above p/q" in scope.locator(".sv-why").inner_text()
    assert "replaced by" in scope.inner_text()
    assert str(token["id"]) in scope.inner_text()
    before = scope.inner_text()
    page.keyboard.press("ArrowRight")
    assert scope.inner_text() != before
    assert "resampled" in scope.inner_text()
    assert card.is_hidden()
    page.keyboard.press("Escape")
    assert scope.is_hidden()
    page.keyboard.press("ArrowLeft")
    assert "was above p/q" in card.locator(".sv-why").inner_text()
    page.keyboard.press("Escape")
    assert card.is_hidden()


def test_ghosts_can_be_shown(open_page):
    page = open_page()
    set_slider(page, "sv-temperature", 1.5)
    run(page, length=64)
    ghost = page.locator(".sv-run .sv-stream .sv-discarded").first
    assert ghost.is_hidden()
    page.check("[data-part=ghosts]")
    assert ghost.is_visible()


def test_stop_and_restart(open_page, shot):
    page = open_page()
    for _ in range(5):
        page.wait_for_selector("#sv-run-button:not([disabled])")
        start(page, prompt="Keep this prompt", length=512)
        page.wait_for_selector("#sv-stop-button:not([disabled])")
        assert page.locator("#sv-run-button").is_disabled()
        page.click("#sv-stop-button")
        page.wait_for_selector(".sv-run[data-state=stopped]")
    page.wait_for_selector("#sv-run-button:not([disabled])")
    assert page.locator("#sv-stop-button").is_disabled()
    assert "Stopped" in page.locator(".sv-run [data-part=state]").inner_text()
    assert page.input_value("#sv-prompt textarea") == "Keep this prompt"
    shot(page)
    run(page, length=8)


def test_second_page_waits_and_closing_frees(open_page, shot):
    """Two pages, one device: the second sees its place, and closing the first gives it the model."""
    first, second = open_page(), open_page()
    start(first, length=512)
    first.wait_for_selector(".sv-run[data-state=running]")
    start(second, length=8)
    second.wait_for_selector(".sv-run[data-state=waiting]")
    second.wait_for_function("document.querySelector('.sv-run [data-part=state]').textContent.includes('line')")
    shot(second)
    first.close()
    second.wait_for_selector(ENDED, timeout=8000)


def test_bad_input_is_one_sentence_and_loses_nothing(open_page, shot):
    page = open_page()
    run(page, length=8)
    drawn = page.locator(".sv-run .sv-stream").inner_text()
    start(page, prompt="")
    page.wait_for_selector(".sv-run[data-state=failed]")
    assert page.locator(".sv-run [data-part=state]").inner_text().strip()
    assert page.locator(".sv-run .sv-stream").inner_text() == drawn
    page.wait_for_selector("#sv-run-button:not([disabled])")
    shot(page)


@pytest.mark.parametrize("prompt", [HOSTILE, "A" * 1500], ids=["markup", "long"])
def test_hostile_text(open_page, shot, prompt):
    page = open_page()
    run(page, prompt=prompt, length=32)
    assert page.locator(".sv-run .sv-prompt-text").text_content() == prompt
    assert page.evaluate("window.hit") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shot(page, full=False)


def test_hostile_output(open_page, shot):
    """A made run with hostile tokens goes through the very path of the recording: it is drawn as text."""
    page = open_page()
    run(page, length=8)
    texts = [
        "</script>",
        "<img src=x onerror='window.hit=1'>",
        "{{7*7}}",
        "${1+1}",
        "\u202e",
        "abc",
        "\u0000",
        "\n",
        "",
        " ",
        "A" * 20_000,
    ]
    drawn = page.evaluate(
        """texts => { const host = document.querySelector('.sv-run .sv-stream');
        const tokens = texts.map((text, i) => ({position: i, id: i, text, fate: 'sampled', parent: i - 1}));
        host.append(window.specviz.stepNode({tokens}, 0, true));
        return [...host.lastChild.children].map(node => node.textContent); }""",
        texts,
    )
    assert drawn == texts
    assert page.evaluate("window.hit") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shot(page, full=False)


def test_too_long_a_prompt(open_page):
    page = open_page()
    start(page, prompt="A" * 20_000)
    page.wait_for_selector(".sv-run[data-state=failed]")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_draft_that_cannot_be_used_is_disabled_with_its_reason(open_page):
    page = open_page()
    model = page.locator("#sv-draft-picker input[value=model]")
    assert model.is_disabled()
    assert "No draft model was given" in page.locator("#sv-draft-picker .sv-choice-off").inner_text()
    page.check("#sv-draft-picker input[value=none]")
    run(page, length=8)
    assert "Plain decoding" in page.locator(".sv-run .sv-what").inner_text()
    assert page.locator(".sv-legend-item[data-fate=sampled] .sv-count").inner_text() == "8"


def test_presets_fill_prompt_and_draft(open_page):
    page = open_page()
    presets = json.loads((ROOT / "assets" / "prompts.json").read_text())
    page.get_by_role("button", name=presets[-1]["title"]).click()
    page.wait_for_function(
        "text => document.querySelector('#sv-prompt textarea').value === text", arg=presets[-1]["prompt"]
    )
    assert page.locator("#sv-draft-picker input:checked").get_attribute("value") == presets[-1]["draft"]
    assert page.locator("#sv-note").inner_text() == presets[-1]["note"]
    assert float(page.locator("#sv-gamma input[type=number]").input_value()) == presets[-1]["gamma"]
    assert float(page.locator("#sv-temperature input[type=number]").input_value()) == presets[-1]["temperature"]
    page.fill("#sv-prompt textarea", "My own")  # what was said of the preset is not true of it
    page.wait_for_function("words => document.querySelector('#sv-note').innerText === words", arg=OWN_PROMPT)


def test_the_prompt_outlives_a_reload(open_page):
    page = open_page()
    page.fill("#sv-prompt textarea", "My own prompt")
    page.wait_for_function("sessionStorage.getItem('specviz-prompt') === 'My own prompt'")
    page.reload()
    page.wait_for_function("document.querySelector('#sv-prompt textarea')?.value === 'My own prompt'")


def test_fates_are_explained_without_a_mouse(open_page):
    page = open_page()
    page.focus(".sv-how summary")
    page.keyboard.press("Enter")
    assert "first refusal ends the step" in page.locator(".sv-how:not(.sv-whys-how)").inner_text()
    assert page.locator(".sv-how:not(.sv-whys-how) dt").count() == 7


def test_a_lost_server_is_said_and_the_prompt_stays(browser, slow_folder, tmp_path):
    process, url = start_app(tmp_path / "app.log", SPECVIZ_TARGET=str(slow_folder))
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    try:
        page.goto(url)
        page.wait_for_function("document.querySelector('#sv-status')?.innerText.includes('Ready')")
        page.fill("#sv-prompt textarea", "My own prompt")
        set_slider(page, "sv-length", 512)
        page.click("#sv-run-button")
        page.wait_for_selector(".sv-run[data-state=running]")
        process.kill()
        page.wait_for_selector(".sv-run[data-state=failed]", timeout=20_000)
        assert "connection to the server is lost" in page.locator(".sv-run [data-part=state]").inner_text()
        assert page.input_value("#sv-prompt textarea") == "My own prompt"
    finally:
        page.close()
        stop_app(process)


def test_the_pane_has_its_own_stop(open_page):
    page = open_page()
    assert page.locator(".sv-run .sv-pane-stop").is_hidden()
    set_slider(page, "sv-length", 512)
    page.click("#sv-run-button")
    page.wait_for_selector(".sv-run[data-state=running]")
    page.click(".sv-run .sv-pane-stop")
    page.wait_for_selector(".sv-run[data-state=stopped]")
    assert page.locator(".sv-run .sv-pane-stop").is_hidden()


def test_charts(open_page):
    page = open_page()
    run(page, length=48)
    page.wait_for_selector("[data-part=chart-steps] .main-svg")
    page.wait_for_selector("[data-part=chart-position] .main-svg")
    steps = int(page.locator("[data-part=figure-perpass] .sv-figure-note").inner_text().split(", ")[1].split()[0])
    page.wait_for_function("n => document.querySelector('[data-part=chart-steps]').data[0].x.length === n", arg=steps)
    ink = page.evaluate("document.querySelector('[data-part=chart-steps]').layout.font.color")
    page.evaluate("document.body.classList.toggle('dark')")
    page.wait_for_function(
        "ink => document.querySelector('[data-part=chart-steps]').layout.font.color !== ink", arg=ink
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_phone(open_page, shot, dark):
    page = open_page(PHONE, dark=dark)
    assert page.locator("#sv-gamma").is_hidden()
    page.click(".sv-fold")
    assert page.locator("#sv-gamma").is_visible()
    set_slider(page, "sv-temperature", 1)
    run(page, length=32)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click(".sv-fold")
    page.locator(".sv-run .sv-stream .sv-tok:visible").first.tap()
    scope = page.locator(".sv-scope")
    scope.wait_for(state="visible")
    box = scope.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE[0]
    shot(page, "scope", full=False)
    page.keyboard.press("Escape")
    page.wait_for_timeout(600)
    shot(page)


@pytest.mark.real_model
def test_bundled_model(browser, tmp_path, shot):
    """The default model on the default page, from the loading header to the last token."""
    process, url = start_app(tmp_path / "app.log", SPECVIZ_DTYPE="float32")
    opener = Opener(browser, url)
    try:
        page = opener(ready=False)
        page.wait_for_selector(".sv-run .sv-stream .sv-tok, .sv-run[data-state=empty]")
        page.wait_for_selector(".sv-header[data-state=ready]", timeout=180_000)
        start(page, prompt="Explain what a hash table is.", length=24)
        page.wait_for_selector(ENDED, timeout=180_000)
        assert "hash table" in page.locator(".sv-run .sv-stream").inner_text()
        assert "SmolLM2" in page.locator(".sv-run .sv-what").inner_text()
        page.wait_for_timeout(700)
        shot(page)
        assert opener.faults == []
    finally:
        for context in opener.contexts:
            context.close()
        stop_app(process)
