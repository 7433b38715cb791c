"""Runs as files: saved from the page, replayed with the network off, dropped on the page; bad ones lose nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from specviz.lab.race import Race
from specviz.replay import replay_html
from specviz.trace import Run
from tests.browser.acts import run, set_slider
from tests.browser.conftest import PHONE, ROOT, WIDE

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

RECORDED = json.loads((ROOT / "assets" / "recorded" / "run.json").read_text())
HOSTILE = ["</script>", "<img src=x onerror='window.hit=1'>", "${1+1}", "`x`", "\u2028", "\u202e", "\u0000", "{{7*7}}"]


def hostile() -> dict:
    """The recorded run with hostile texts in its first steps."""
    data = json.loads(json.dumps(RECORDED))
    texts = iter(HOSTILE)
    for step in data["steps"][:3]:
        for token in step["tokens"]:
            token["text"] = next(texts, token["text"])
    data["prompt"]["text"] = data["target"]["name"] = "".join(HOSTILE)
    return data


@pytest.fixture
def offline(browser, tmp_path):
    """Opens a file in a browser without network; afterwards nothing may have been asked for and no error seen."""
    faults, contexts = [], []

    def open_file(file: Path, size=WIDE, dark=False, motion="no-preference") -> Page:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            reduced_motion=motion,
        )
        contexts.append(context)
        context.set_offline(True)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: message.type == "error" and faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: request.url != file.as_uri() and faults.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert faults == []


def drawn(page: Page) -> list[str]:
    return page.locator(".sv-run .sv-stream .sv-tok").all_text_contents()


def drop(page: Page, name: str, text: str) -> None:
    """Drop a file on the page."""
    page.evaluate(
        """([name, text]) => { const data = new DataTransfer();
        data.items.add(new File([text], name, {type: 'application/json'}));
        for (const type of ['dragover', 'drop'])
          document.body.dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true})); }""",
        [name, text],
    )


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (PHONE, True)], ids=["wide", "phone-dark"])
def test_a_replay_file_needs_no_server_and_no_network(offline, tmp_path, shot, size, dark):
    file = tmp_path / "run.html"
    file.write_text(replay_html(Run.from_dict(RECORDED)), encoding="utf-8")
    page = offline(file, size, dark)
    steps = RECORDED["steps"]
    # The whole run, before Play is pressed.
    page.wait_for_function("n => document.querySelectorAll('.sv-stream .sv-step').length === n", arg=len(steps))
    texts = drawn(page)
    assert sorted(texts) == sorted(token["text"] for step in steps for token in step["tokens"])
    assert page.locator(".sv-play").inner_text().strip() == "Play"
    speed = page.locator("[data-part=figure-speed] .sv-figure-value").inner_text()
    assert speed == f"{RECORDED['summary']['tokens_per_second']:.1f}"
    page.locator(".sv-stream .sv-rejected").nth(1).click()
    page.wait_for_selector(".sv-scope[data-beat='3']")
    shot(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator(".sv-speed").select_option("4")
    page.keyboard.press("Escape")
    page.locator(".sv-play").click()
    page.wait_for_function("n => document.querySelectorAll('.sv-stream .sv-step').length < n", arg=len(steps))
    page.wait_for_function("document.querySelector('.sv-play').textContent === 'Play'")
    page.wait_for_function("n => document.querySelectorAll('.sv-stream .sv-step').length === n", arg=len(steps))
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("n => document.querySelectorAll('.sv-stream .sv-step').length === n", arg=len(steps) - 1)


def test_a_race_is_saved_replayed_alone_and_opened_again(open_page, offline, tmp_path, shot):
    """The recorded race: its JSON is what Python reads, its page plays offline, its file opens in the race pane."""
    page = open_page()
    page.wait_for_selector(".sv-race.sv-has-race")
    assert page.get_by_role("button", name="Open a file…").count() == 1  # one for all kinds
    with page.expect_download() as saved:
        page.locator(".sv-race").get_by_role("button", name="Save as JSON").click()
    text = Path(saved.value.path()).read_text(encoding="utf-8")
    race = Race.from_json(text)
    with page.expect_download() as saved:
        page.locator(".sv-race").get_by_role("button", name="Save as a replay page").click()
    file = tmp_path / saved.value.suggested_filename
    saved.value.save_as(file)
    alone = offline(file)
    alone.wait_for_selector(".sv-strip-row.sv-done")
    assert alone.locator("[data-part=verdict]").inner_text() == race.verdict
    kept = ".sv-tok:not(.sv-rejected):not(.sv-discarded):not(.sv-trimmed)"
    written = ["".join(alone.locator(f".sv-lane-{number} {kept}").all_text_contents()) for number in (0, 1)]
    assert written == [lane.runs[lane.shown].output.text for lane in race.lanes]
    shot(alone)
    alone.keyboard.press("Space")
    alone.wait_for_selector(".sv-strip-row:not(.sv-done)")
    drop(page, "mine.json", text.replace(race.verdict, "My verdict.", 1))
    page.wait_for_function(
        "document.querySelector('.sv-race [data-part=state]').textContent === 'Replaying mine.json.'"
    )
    page.wait_for_selector(".sv-race [data-part=chart-why] .main-svg")


def test_hostile_text_in_a_replay_file_stays_text(offline, tmp_path):
    file = tmp_path / "run.html"
    file.write_text(replay_html(Run.from_dict(hostile())), encoding="utf-8")
    page = offline(file)
    page.wait_for_selector(".sv-stream .sv-tok")
    assert set(HOSTILE) <= set(drawn(page))
    assert page.locator(".sv-prompt-text").text_content() == "".join(HOSTILE)
    page.locator(".sv-stream .sv-tok:visible").first.click()
    page.locator(".sv-scope").wait_for()
    assert page.evaluate("window.hit") is None


def test_a_run_is_saved_as_it_was(open_page, offline, tmp_path):
    """The JSON is a run that Python accepts; the page made of it draws what the page drew."""
    page = open_page()
    set_slider(page, "sv-temperature", 1)
    run(page, length=24)
    texts = drawn(page)
    with page.expect_download() as saved:
        page.locator(".sv-run").get_by_role("button", name="Save as JSON").click()
    data = json.loads(Path(saved.value.path()).read_text(encoding="utf-8"))
    assert Run.from_dict(data).output.text == data["output"]["text"]
    assert saved.value.suggested_filename == f"specviz-{data['id']}.json"
    with page.expect_download() as saved:
        page.locator(".sv-run").get_by_role("button", name="Save as a replay page").click()
    file = tmp_path / "saved.html"
    saved.value.save_as(file)
    alone = offline(file)
    alone.wait_for_selector(".sv-stream .sv-tok")
    assert drawn(alone) == texts
    assert alone.evaluate("JSON.parse(document.getElementById('specviz-run').textContent)") == data


def test_a_dropped_run_is_replayed_and_a_bad_one_loses_nothing(open_page, shot):
    page = open_page()
    page.fill("#sv-prompt textarea", "My own prompt")
    before = drawn(page)
    words = page.locator(".sv-run .sv-files-words")
    for name, text, why in [
        ("broken.json", "{", "This is not JSON"),
        ("race.json", '{"schema": "specviz.race/1"}', "race lacks created_at"),
        ("far.json", json.dumps(RECORDED | {"steps": 3}), "run.steps is not a list"),
    ]:
        drop(page, name, text)
        page.wait_for_function("why => document.querySelector('.sv-files-words').textContent.includes(why)", arg=why)
        assert words.inner_text().startswith(f"{name} was not opened:")
        assert words.evaluate("node => node.getBoundingClientRect().bottom <= innerHeight")  # in sight
        assert drawn(page) == before
    shot(page)
    data = hostile()
    drop(page, "mine.json", json.dumps(data))
    page.wait_for_function("document.querySelector('.sv-run [data-part=state]').textContent === 'Replaying mine.json.'")
    assert page.locator(".sv-run .sv-stream .sv-step").count() == len(data["steps"])
    assert set(HOSTILE) <= set(drawn(page))
    assert page.evaluate("window.hit") is None
    assert words.inner_text() == ""
    assert page.input_value("#sv-prompt textarea") == "My own prompt"
    page.wait_for_selector(".sv-run [data-part=chart-position] .main-svg")
    run(page, length=8)  # a run of one's own takes its place
    assert "Measured live" in page.locator(".sv-run .sv-origin").inner_text()
