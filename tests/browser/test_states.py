"""Every state has its place: nothing jumps while the page comes up or a run streams, and what waits says for what."""

from __future__ import annotations

import pytest

from tests.browser.acts import ENDED, set_slider
from tests.browser.conftest import PHONE, WIDE

pytestmark = pytest.mark.browser

#: The web's own bound for a good page is 0.1.
SHIFT_MAX = 0.05
SHIFTS = """() => { window.shifted = 0; new PerformanceObserver(list => list.getEntries().forEach(entry => {
  if (!entry.hadRecentInput) window.shifted += entry.value; })).observe({type: 'layout-shift', buffered: true}); }"""


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_nothing_jumps(open_page, size):
    page = open_page(size, motion="no-preference")
    page.wait_for_function("document.querySelectorAll('.sv-run .sv-stream .sv-tok').length > 20")
    page.evaluate(SHIFTS)
    page.wait_for_timeout(300)  # buffered entries are handed over
    came_up = page.evaluate("window.shifted")
    if size == PHONE:
        page.click(".sv-fold")
    set_slider(page, "sv-temperature", 1)
    set_slider(page, "sv-length", 48)
    if size == PHONE:
        page.click(".sv-fold")
    page.locator("#sv-run-button").scroll_into_view_if_needed()
    before = page.evaluate("window.shifted")
    page.evaluate("document.querySelector('#sv-run-button').click()")  # no input that would excuse a shift
    page.wait_for_selector(ENDED)
    page.wait_for_selector("[data-part=chart-position] .main-svg")
    page.wait_for_timeout(500)
    if size == PHONE:  # what was asked for is in sight, without a turn of the page
        assert page.locator(".sv-run .sv-stream").evaluate("node => node.getBoundingClientRect().top") < 0.7 * PHONE[1]
    streamed = page.evaluate("window.shifted") - before
    print(f"layout shift: {came_up:.4f} coming up, {streamed:.4f} in a run")
    assert came_up < SHIFT_MAX
    assert streamed < SHIFT_MAX


def test_what_is_empty_or_waits_is_one_sentence(open_page):
    """Explore with nothing to draw; a run that meets the loading says how far that is, unless others are before it."""
    page = open_page()
    page.wait_for_function("window.specviz.kept.length === 2")
    page.evaluate("window.specviz.kept.length = 0; document.dispatchEvent(new CustomEvent('sv-kept'))")
    page.click(".sv-explore [data-part=open]")
    assert "Nothing to show yet" in page.locator(".sv-explore [data-part=state]").inner_text()
    assert page.locator(".sv-explore-charts").is_hidden()
    assert page.locator(".sv-explore-pick").first.is_hidden()
    said = page.evaluate(
        """() => { const root = document.querySelector('#sv-run-view .sv-run').cloneNode(true);
        const pane = new window.specviz.Pane(root); const words = () => pane.part('state').textContent;
        const tell = () => document.dispatchEvent(new CustomEvent('sv-status'));
        window.specviz.status = {state: 'loading', stage: 'Downloading the model', done: 31e6, total: 93e6};
        pane.ahead = 0; pane.recorded = false; pane._state('waiting', 'Sent'); tell(); const alone = words();
        pane._on_queued({position: 1}); tell(); return [alone, pane.part('bar').value, words()]; }"""
    )
    assert said[0] == "Downloading the model 31 MB of 93 MB"
    assert said[1] == pytest.approx(1 / 3, abs=0.01)
    assert said[2].startswith("Waiting in line")
