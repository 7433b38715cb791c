"""The tour as a person takes it: on recorded data without a model, resumed after a reload, never in the way, and
with a model driving a real run."""

from __future__ import annotations

import pytest

from specviz.ui import tour
from tests.browser.acts import ENDED, set_slider
from tests.browser.conftest import PHONE, Opener, start_app, stop_app

pytestmark = pytest.mark.browser

FAILED = ".sv-header[data-state=failed]"
CARD = ".sv-tour"


@pytest.fixture(scope="module")
def modelless(tmp_path_factory):
    """Address of the page where no model could be loaded."""
    folder = tmp_path_factory.mktemp("modelless")
    process, url = start_app(folder / "app.log", SPECVIZ_TARGET=str(folder / "nothing"))
    yield url
    stop_app(process)


@pytest.fixture
def open_modelless(browser, modelless):
    opener = Opener(browser, modelless)

    def open_one(*given, **named):
        page = opener(*given, ready=False, **named)
        page.wait_for_selector(FAILED)
        page.wait_for_selector(".sv-run.sv-has-run")
        page.wait_for_selector(".sv-race.sv-has-race")
        return page

    yield open_one
    for context in opener.contexts:
        context.close()
    assert opener.faults == []


def at_stop(page, number: int) -> None:
    page.wait_for_function("n => document.querySelector('.sv-tour-count').textContent === n", arg=f"{number} of 8")


def go_to(page, number: int) -> None:
    page.locator(CARD).wait_for(state="attached")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("t")
    at_stop(page, 1)
    for _ in range(number - 1):
        page.click(f"{CARD} [data-part=next]")
    at_stop(page, number)


def press(page, label: str) -> None:
    page.locator(".sv-tour-show", has_text=label).click()


def test_all_stops_without_a_model(open_modelless, shot):
    """Offered once, walked to its end, with every button that needs no model doing what it says."""
    page = open_modelless()
    page.click("[data-part=offer-yes]")
    assert page.locator(".sv-tour-offer").is_hidden()
    for number, stop in enumerate(tour.STOPS, 1):
        at_stop(page, number)
        said = page.locator(".sv-tour-said").inner_text()
        assert all(text in said for text in (stop.title, *stop.words, stop.to_try))
        page.wait_for_selector(".sv-tour-at")
        for show in stop.shows:
            button = page.locator(".sv-tour-show", has_text=show.label)
            if show.needs in ("run", "race"):
                assert button.is_disabled()
                assert "needs the model" in page.locator(".sv-tour-note").inner_text()
            elif show.needs is None:
                button.click()
                page.wait_for_function(
                    "at => at.some(one => document.querySelector(one)?.classList.contains('sv-tour-at'))",
                    arg=list(show.at),
                )
                assert page.locator(".sv-tour-note").inner_text().startswith("This needs") == any(
                    one.needs in ("run", "race") for one in stop.shows
                )
        page.click(f"{CARD} [data-part=next]")
    assert page.locator(CARD).is_hidden()
    assert page.locator(".sv-header [data-part=tour]").inner_text() == "Tour"
    assert page.locator(".sv-tour-at").count() == 0
    assert [page.locator(f"{pane} .sv-speed").input_value() for pane in (".sv-run", ".sv-race")] == ["1", "1"]


def test_shows_drive_the_pages_own_controls(open_modelless):
    page = open_modelless(motion="no-preference")
    go_to(page, 1)
    press(page, "Show me")
    page.wait_for_selector(".sv-race .sv-playing")
    assert page.is_checked(".sv-race [data-part=near]")
    # What the stop says: a verify block of the plain lane is one token.
    plain = page.locator(".sv-strip-row-0 .sv-block-verify").get_attribute("d").count("M")
    page.click(f"{CARD} [data-part=next]")
    assert not page.is_checked(".sv-race [data-part=near]")
    page.locator(".sv-race .sv-scrub").press("End")
    page.wait_for_function("document.querySelectorAll('.sv-strip-row.sv-done').length === 2")
    assert f"{plain} of {plain} tokens" in page.locator(".sv-photo").inner_text()
    press(page, "Show me")
    page.wait_for_selector(".sv-run .sv-playing")
    page.wait_for_selector(".sv-run .sv-drafting")  # ghosts in a dashed outline
    page.click(".sv-run .sv-play")
    count = page.locator(".sv-run .sv-clock").inner_text().split(" of ")[0]
    page.click(".sv-run .sv-nudge:not(.sv-nudge-back)")
    page.wait_for_function(
        "count => document.querySelector('.sv-run .sv-clock').textContent.split(' of ')[0] === count",
        arg=f"step {int(count.split()[1]) + 1}",
    )
    page.click(f"{CARD} [data-part=next]")
    press(page, "Show me")
    page.wait_for_selector(".sv-scope[data-beat='2']")
    assert "accepted" in page.locator(".sv-scope h3").inner_text()
    assert "at once" in page.locator(".sv-beat-on").inner_text()
    page.click(f"{CARD} [data-part=next]")
    press(page, "Show me")
    page.wait_for_selector(".sv-scope[data-beat='3']")
    page.wait_for_function("document.querySelector('.sv-scope h3').textContent.includes('rejected')")
    step = page.locator(".sv-scope h3 .sv-dim").first.inner_text()
    page.click(f"{CARD} [data-part=next]")
    press(page, "Show me")
    page.wait_for_function("document.querySelector('.sv-scope h3').textContent.includes('resampled')")
    assert page.locator(".sv-scope h3 .sv-dim").first.inner_text() == step


def test_keys_and_resuming(open_modelless):
    page = open_modelless()
    page.click("[data-part=offer-no]")
    page.reload()
    page.wait_for_selector(FAILED)
    assert page.locator(".sv-tour-offer").is_hidden()
    go_to(page, 3)
    page.locator(".sv-tour-said").focus()
    page.keyboard.press("ArrowRight")
    at_stop(page, 4)
    page.keyboard.press("Tab")  # from the words to what they offer
    assert page.evaluate("document.activeElement.textContent") == "Show me"
    page.keyboard.press("Enter")
    page.wait_for_selector(".sv-scope:visible")
    # Outside the card the arrows are the timeline's, and Esc closes the microscope first.
    page.evaluate("document.activeElement.blur()")
    before = page.locator(".sv-run .sv-clock").inner_text()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("text => document.querySelector('.sv-run .sv-clock').textContent !== text", arg=before)
    at_stop(page, 4)
    page.keyboard.press("Escape")
    assert page.locator(".sv-scope").is_hidden()
    assert page.locator(CARD).is_visible()
    page.keyboard.press("Escape")
    assert page.locator(CARD).is_hidden()
    page.reload()
    page.wait_for_selector(FAILED)
    assert page.locator(CARD).is_hidden()
    page.get_by_role("button", name="Resume tour, stop 4").click()
    at_stop(page, 4)
    assert page.evaluate("document.activeElement.classList.contains('sv-tour-said')")
    page.evaluate("document.body.classList.add('sv-talk')")
    assert page.locator(CARD).is_hidden()


def test_on_a_phone_it_is_never_in_the_way(open_modelless, shot):
    page = open_modelless(PHONE, dark=True)
    page.tap("[data-part=offer-yes]")
    for number in range(1, 9):
        at_stop(page, number)
        box = page.locator(CARD).bounding_box()
        assert box["height"] <= 0.41 * PHONE[1]
        assert box["y"] + box["height"] == pytest.approx(PHONE[1], abs=1)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if number == 7:
            shot(page, full=False)
        if number < 8:
            page.tap(f"{CARD} [data-part=next]")
    for control in ("#sv-run-button", ".sv-run .sv-play", ".sv-fold", "#sv-prove-button"):  # no veil over any
        page.locator(control).click(trial=True)
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.tap(".sv-run .sv-play")


def test_a_stop_runs_the_model(open_page):
    page = open_page()
    set_slider(page, "sv-length", 24)
    go_to(page, 6)
    press(page, f"Run with {tour.SMALL_GAMMA}")
    page.wait_for_selector(ENDED)
    assert page.locator("#sv-gamma input[type=number]").input_value() == str(tour.SMALL_GAMMA)
    assert f"gamma {tour.SMALL_GAMMA} ·" in page.locator(".sv-run .sv-what").inner_text()
    perpass = page.locator("[data-part=figure-perpass] .sv-figure-value").inner_text()
    assert float(perpass) <= tour.SMALL_GAMMA + 1
    page.wait_for_selector(".sv-tour-show:not([disabled])")
    page.click(f"{CARD} [data-part=close]")
    assert page.locator(".sv-header [data-part=tour]").inner_text() == "Resume tour, stop 6"
