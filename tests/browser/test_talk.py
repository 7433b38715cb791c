"""Talk mode as a speaker meets it: a clicker leads through all scenes, recorded without a model, live with one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.app import start_app, stop_app
from tests.browser.acts import set_slider
from tests.browser.conftest import PHONE, ROOT, Opener

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

STAGE = (1280, 720)
HOSTILE = "<img src=x onerror='window.hit=1'> {{7*7}} ${1+1}"
RUN, RACE = (json.loads((ROOT / "assets" / "recorded" / f"{name}.json").read_text()) for name in ("run", "race"))
SCENES = json.loads((ROOT / "assets" / "talk.json").read_text())


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a page whose model is not there, with the sequence that ships and one scene more."""
    folder = tmp_path_factory.mktemp("bare")
    more = {"title": HOSTILE, "text": HOSTILE, "show": "title", "note": HOSTILE}
    (folder / "talk.json").write_text(json.dumps([*SCENES, more]))
    process, url = start_app(folder / "app.log", SPECVIZ_TARGET=str(folder / "none"), SPECVIZ_TALK="talk.json")
    yield url
    stop_app(process)


@pytest.fixture
def open_bare(browser, bare) -> Iterator[Opener]:
    opener = Opener(browser, bare)
    yield opener
    for context in opener.contexts:
        context.close()
    assert opener.faults == []


def shown(page: Page) -> str:
    return page.evaluate("document.querySelector('.sv-talking').dataset.talk")


def place(page: Page) -> str:
    return page.locator("#sv-talk-view [data-part=place]").inner_text()


def said(page: Page) -> str:
    return page.locator("#sv-talk-view [data-part=said]").inner_text()


def at(page: Page, scene: int) -> None:
    page.wait_for_function(
        f"document.querySelector('#sv-talk-view [data-part=place]').textContent.startsWith('{scene} /')"
    )


def size(page: Page, selector: str) -> float:
    return page.locator(selector).first.evaluate("node => parseFloat(getComputedStyle(node).fontSize)")


def fits(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cut = page.evaluate(
        """[...document.querySelectorAll('.sv-talking *')].filter(node => {
        const box = node.getBoundingClientRect();
        return node.children.length === 0 && node.textContent.trim() && box.width > 2 && !node.closest('.sv-stream')
          && getComputedStyle(node).visibility === 'visible' && (box.bottom > innerHeight || box.right > innerWidth);
        }).map(node => node.textContent)"""
    )
    assert cut == []


def the_recorded_run(page: Page, summary: dict) -> None:
    assert shown(page) == "run"
    page.wait_for_function("document.querySelector('#sv-talk-view [data-part=said]').textContent")
    assert said(page) == "Recorded run: the model is not available."
    assert size(page, ".sv-run .sv-stream .sv-tok") >= 28
    for fate in ("accepted", "rejected", "resampled", "bonus"):
        count = sum(token["fate"] == fate for step in RUN["steps"] for token in step["tokens"])
        assert page.locator(f".sv-legend-item[data-fate={fate}] .sv-count").inner_text() == str(count)
    page.keyboard.press("ArrowRight")
    figures = page.locator(".sv-run .sv-figure-value").all_inner_texts()
    assert figures[0] == f"{summary['tokens_per_second']:.1f}"
    assert figures[1] == f"{summary['tokens_per_step']:.2f}"
    assert size(page, ".sv-run .sv-figure-value") >= 96


def the_microscope(page: Page) -> None:
    """Three beats, then the next scene; going back meets the last one first."""
    assert shown(page) == "scope"
    assert page.locator(".sv-scope .sv-h3 .sv-tok").get_attribute("class").endswith("sv-rejected")
    for beat in (1, 2, 3):
        assert page.locator(".sv-scope").get_attribute("data-beat") == str(beat)
        assert page.locator(".sv-beat-on").is_visible()
        fits(page)
        page.keyboard.press("PageDown")
    assert shown(page) == "race"
    page.keyboard.press("PageUp")
    assert page.locator(".sv-scope").get_attribute("data-beat") == "3"
    page.keyboard.press("PageDown")


def test_a_clicker_goes_through_it_without_a_model(open_bare, shot):
    page = open_bare(STAGE, ready=False)
    page.goto(open_bare.url + "?talk=1")
    page.wait_for_selector(".sv-talking")
    assert place(page) == "1 / 9"
    assert page.locator(".sv-header").is_hidden()
    assert page.locator("#sv-prompt").is_hidden()
    assert page.evaluate("document.activeElement.dataset.part") == "title"
    assert "scene 1 of 9" in page.locator("#sv-talk-view [role=status]").inner_text()
    page.wait_for_selector("#sv-run-view .sv-has-run", state="attached")
    for number, scene in enumerate(SCENES, 1):
        at(page, number)
        assert page.locator(".sv-talk-title").inner_text().split() == scene["title"].split()
        fits(page)
        if scene["show"] != "title":
            pane = page.locator(f".sv-{'race' if scene['show'] in ('race', 'why') else 'run'}")
            assert pane.locator(".sv-origin").inner_text().startswith("Recorded on")
            assert size(page, ".sv-origin") >= 20
        if scene["show"] == "run":
            the_recorded_run(page, RUN["summary"])
            fits(page)
        elif scene["show"] == "scope":
            the_microscope(page)
        else:
            if scene["show"] in ("race", "why"):
                assert page.locator(".sv-race [data-part=verdict]").inner_text() == RACE["verdict"]
                assert page.locator(".sv-race .sv-verdict").is_visible()
            if number in (1, 5):
                shot(page, str(number), full=False)
            page.keyboard.press("ArrowRight")
    at(page, 9)
    assert page.locator(".sv-talk-title").inner_text() == HOSTILE
    assert page.evaluate("window.hit") is None


def test_a_run_that_fails_gives_way_to_the_recorded_one(open_bare, shot):
    page = open_bare(STAGE, ready=False)
    page.wait_for_selector(".sv-header[data-state=failed]")
    page.wait_for_selector("#sv-run-view .sv-has-run")
    page.keyboard.press("p")
    page.keyboard.press("2")
    at(page, 2)
    page.keyboard.press("Enter")
    page.wait_for_selector(".sv-run[data-state=failed] .sv-state")
    assert page.locator(".sv-run [data-part=state]").inner_text().strip()
    assert said(page) == "It failed. The next press shows the recorded one."
    shot(page, full=False)
    page.keyboard.press("PageDown")
    page.wait_for_selector(".sv-run[data-state=recorded] .sv-stream")
    assert said(page) == "Recorded run: the live one failed."
    assert page.locator(".sv-run .sv-origin").inner_text().startswith("Recorded on")
    at(page, 2)
    page.locator(".sv-run .sv-stream .sv-rejected").last.click()  # asks the microscope, and goes back from there
    page.wait_for_selector(".sv-talking[data-talk=scope] .sv-scope")
    fits(page)
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    page.wait_for_selector(".sv-talking[data-talk=run]")
    at(page, 2)
    page.keyboard.press("r")
    page.wait_for_selector(".sv-race[data-state=failed]")
    page.keyboard.press("PageDown")
    assert said(page) == "Recorded race: the live one failed."
    assert page.locator(".sv-race .sv-verdict").is_visible()


def test_the_note_the_dark_screen_and_a_reload(open_bare):
    page = open_bare(STAGE, ready=False)
    page.goto(open_bare.url + "?talk=1")
    note = page.locator(".sv-talk-note")
    page.wait_for_selector(".sv-talking")
    assert note.is_hidden()
    page.keyboard.press("n")
    assert note.inner_text() == SCENES[0]["note"]
    page.keyboard.press("ArrowRight")
    at(page, 2)
    assert note.is_hidden()
    page.keyboard.press(".")
    assert page.evaluate("getComputedStyle(document.body, '::after').backgroundColor") == "rgb(0, 0, 0)"
    page.keyboard.press("ArrowRight")  # lights it again and nothing else
    assert place(page) == "2 / 9"
    assert page.locator(".sv-talk-dark").count() == 0
    page.keyboard.press("5")
    page.reload()
    page.wait_for_selector(".sv-talking[data-talk=race]")
    assert place(page) == "5 / 9"
    page.keyboard.press("End")
    at(page, 9)
    page.keyboard.press("Home")
    at(page, 1)
    page.keyboard.press("?")
    keys = page.locator(".sv-keys").inner_text()
    assert "leave talk mode" in keys
    assert "take that one of the prompts" not in keys
    page.keyboard.press("Escape")  # closes the keys, not the talk
    assert page.locator(".sv-talking").count() == 1


def test_a_scene_runs_live_and_the_page_comes_back_as_it_was(open_page, shot):
    page = open_page(STAGE)
    page.fill("#sv-prompt textarea", "My own prompt")
    set_slider(page, "sv-gamma", 7)
    page.wait_for_function("sessionStorage.getItem('specviz-prompt') === 'My own prompt'")
    page.wait_for_function("location.hash.includes('gamma=7')")
    page.evaluate("document.activeElement.blur(), scrollTo(0, 300)")
    page.keyboard.press("p")
    page.wait_for_selector(".sv-talking")
    assert page.evaluate("new URL(location.href).searchParams.get('talk')") == "1"
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".sv-run[data-state=running]")
    assert page.locator(".sv-run .sv-prompt-text").text_content() == SCENES[1]["prompt"]
    assert page.locator(".sv-run .sv-origin").inner_text().startswith("Measured live on")
    assert "gamma 4" in page.locator(".sv-run .sv-what").text_content()
    shot(page, "live", full=False)
    page.keyboard.press("7")
    page.wait_for_function("document.querySelector('#sv-prompt textarea').value.startsWith('Tell a short story')")
    page.keyboard.press("r")  # stops the run, then races this scene's prompt
    page.wait_for_selector(".sv-race[data-state=running]")
    assert page.locator(".sv-race .sv-race-body").is_hidden()
    shot(page, "measuring", full=False)
    page.keyboard.press("Escape")
    page.wait_for_selector(".sv-header")
    assert page.locator(".sv-talking, .sv-talk").count() == 0
    assert page.locator(".sv-talk-title").is_hidden()
    page.wait_for_function("document.querySelector('#sv-prompt textarea').value === 'My own prompt'")
    assert page.input_value("#sv-gamma input[type=number]") == "7"
    assert page.evaluate("scrollY") == 300
    page.wait_for_function("location.hash.includes('gamma=7') && !location.search.includes('talk')")
    page.keyboard.press("p")
    at(page, 7)
    page.keyboard.press("p")
    assert page.locator(".sv-talking").count() == 0
    page.click("#sv-stop-button")


@pytest.mark.parametrize(("dark", "scenes"), [(False, "26"), (True, "4")], ids=["light", "dark"])
def test_no_serious_violation_in_talk_mode(open_bare, dark, scenes):
    violations = pytest.importorskip("tests.browser.test_axe").violations
    page = open_bare(STAGE, dark=dark, ready=False)
    page.wait_for_selector("#sv-run-view .sv-has-run")
    page.keyboard.press("p")
    for scene in scenes:
        page.keyboard.press(scene)
        at(page, int(scene))
        page.wait_for_selector(".sv-origin:visible")
        assert violations(page) == []


def test_phone(open_bare, shot):
    page = open_bare(PHONE, dark=True, ready=False)
    page.wait_for_selector("#sv-run-view .sv-has-run")
    page.keyboard.press("p")
    for number in range(1, 10):
        at(page, number)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if number in (2, 5):
            shot(page, str(number))
        while place(page).startswith(f"{number} /") and number < 9:
            page.tap("#sv-talk-view [data-part=next]")
