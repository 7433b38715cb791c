"""The timeline under the stream: steps, play, drag, live or replayed by the same code; ghosts; and the page's keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.browser.acts import set_slider, start
from tests.browser.conftest import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

RECORDED = json.loads((ROOT / "assets" / "recorded" / "run.json").read_text())
TOKENS = "document.querySelectorAll('.sv-run .sv-stream .sv-step:not(.sv-drafting) .sv-tok').length"


def clock(page: Page) -> tuple[int, int]:
    """(steps shown, steps there are), as the clock says."""
    words = page.locator(".sv-run .sv-clock").inner_text().split()
    return int(words[1]), int(words[3])


def wait_for_step(page: Page, number: int) -> None:
    page.wait_for_function(f"document.querySelector('.sv-run .sv-clock').textContent.startsWith('step {number} of')")
    assert page.locator(".sv-run .sv-stream .sv-step").count() == number


def test_a_recorded_run_goes_step_by_step(open_page):
    page = open_page()
    steps = len(RECORDED["steps"])
    assert page.locator(".sv-run .sv-ticks path").get_attribute("d").count("M") == steps
    wait_for_step(page, steps)
    page.keyboard.press("ArrowLeft")
    wait_for_step(page, steps - 1)
    assert page.locator(".sv-run [data-part=announce]").inner_text() == f"step {steps - 1} of {steps}"
    page.keyboard.press("ArrowRight")
    wait_for_step(page, steps)
    scrub = page.locator(".sv-run .sv-scrub")
    scrub.press("Home")
    wait_for_step(page, 0)
    for key, number in [("ArrowRight", 1), ("ArrowUp", 2), ("PageUp", 12), ("ArrowLeft", 11), ("PageDown", 1)]:
        scrub.press(key)
        wait_for_step(page, number)
    assert scrub.get_attribute("aria-valuetext").startswith(f"step 1 of {steps}, 0.")
    page.get_by_role("button", name="Run: one step on").click()
    wait_for_step(page, 2)
    page.get_by_role("button", name="Run: one step back").click()
    wait_for_step(page, 1)
    # A figure so far is of the steps shown.
    tokens = [token["text"] for token in RECORDED["steps"][0]["tokens"]]
    assert page.locator(".sv-run .sv-stream .sv-tok").all_text_contents() == tokens


def test_drafts_are_ghosts_until_the_verdict(open_page, shot):
    page = open_page(motion="no-preference")
    page.wait_for_selector(".sv-run .sv-speed:not([disabled])")
    page.locator(".sv-run .sv-speed").select_option("0.1")
    page.locator(".sv-run .sv-scrub").press("Home")
    wait_for_step(page, 0)
    page.keyboard.press("Space")
    page.wait_for_selector(".sv-run .sv-drafting .sv-tok")
    page.keyboard.press("Space")
    step, _ = clock(page)
    ghosts = page.locator(".sv-run .sv-drafting .sv-tok:visible").all_text_contents()
    drafted = [token["text"] for token in RECORDED["steps"][step]["tokens"] if token["q"] is not None]
    assert ghosts
    assert ghosts == drafted[: len(ghosts)]
    assert page.locator(".sv-run .sv-stream .sv-step").last.get_attribute("class") == "sv-step sv-drafting"
    shot(page)
    page.keyboard.press("ArrowRight")
    wait_for_step(page, step + 1)
    assert page.locator(".sv-drafting, .sv-unborn").count() == 0
    page.keyboard.press("ArrowLeft")
    wait_for_step(page, step)
    assert page.locator(".sv-run .sv-stream .sv-step").count() == step


def test_a_live_run_pauses_and_follows_again(open_page, shot):
    page = open_page(motion="no-preference")
    start(page, length=1500)
    page.wait_for_selector(".sv-run[data-state=running]")
    page.wait_for_function(f"{TOKENS} > 4")
    live = page.locator(".sv-run .sv-follow")
    assert live.get_attribute("aria-pressed") == "true"
    page.locator(".sv-run .sv-play").click()
    shown, there = clock(page)
    page.wait_for_function(f"Number(document.querySelector('.sv-run .sv-clock').textContent.split(' ')[3]) > {there}")
    assert clock(page)[0] == shown
    assert live.get_attribute("aria-pressed") == "false"
    shot(page)
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(f"document.querySelector('.sv-run .sv-clock').textContent.startsWith('step {shown - 1} of')")
    live.click()
    page.wait_for_function(f"{TOKENS} > {there}")
    page.locator(".sv-run .sv-speed").select_option("0.1")
    page.wait_for_function("document.querySelector('.sv-run .sv-follow').getAttribute('aria-pressed') === 'false'")
    page.click("#sv-stop-button")
    page.wait_for_selector(".sv-run[data-state=stopped]")
    assert live.is_hidden()
    # What was slowed goes on at its own pace when the run is over; nothing of it is lost.
    page.locator(".sv-run .sv-scrub").press("End")
    shown, there = clock(page)
    page.wait_for_function(f"document.querySelector('.sv-run .sv-clock').textContent.startsWith('step {there} of')")
    assert page.locator(".sv-run .sv-stream .sv-step").count() == there


def test_keys(open_page, shot):
    page = open_page(motion="no-preference")
    presets = json.loads((ROOT / "assets" / "prompts.json").read_text())
    prompt = page.locator("#sv-prompt textarea")
    overlay = page.locator(".sv-keys")
    page.keyboard.press("?")
    assert overlay.is_visible()
    for key in ("Space", "R", "?", "Esc", "N", "B"):
        assert overlay.get_by_text(key, exact=True).count() == 1
    shot(page, full=False)
    page.keyboard.press("2")  # not while the overlay is open
    page.keyboard.press("Escape")
    assert overlay.is_hidden()
    page.keyboard.press("3")
    page.wait_for_function(
        "text => document.querySelector('#sv-prompt textarea').value === text", arg=presets[2]["prompt"]
    )
    prompt.fill("")
    prompt.press_sequentially("r 1?")
    assert prompt.input_value() == "r 1?"
    assert page.locator("dialog[open]").count() == 0
    page.locator("#sv-draft-picker input:checked").press("1")
    page.locator(".sv-keys-open").focus()
    page.keyboard.press("Control+1")
    assert prompt.input_value() == "r 1?"
    page.keyboard.press("Space")  # presses the focused button and nothing else
    assert overlay.is_visible()
    page.keyboard.press("?")
    assert overlay.is_hidden()
    assert page.locator(".sv-run .sv-origin").inner_text().startswith("Recorded")

    # The recording that rests at its end is no run of one's own: Space makes one, and then pauses and resumes it.
    page.evaluate("document.activeElement.blur()")
    page.locator(".sv-run .sv-scrub").press("End")
    set_slider(page, "sv-length", 1500)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    page.wait_for_selector(".sv-run[data-state=running]")
    page.wait_for_function(f"{TOKENS} > 4")
    page.keyboard.press("Space")
    assert page.locator(".sv-run .sv-play").inner_text().strip() == "Play"
    assert page.locator(".sv-run [data-part=announce]").inner_text().startswith("Paused")
    page.keyboard.press("Space")
    assert page.locator(".sv-run .sv-play").inner_text().strip() == "Pause"
    page.click("#sv-stop-button")
    page.wait_for_selector("#sv-race-button:not([disabled])")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("r")
    page.wait_for_selector(".sv-race[data-state=waiting], .sv-race[data-state=running]")
