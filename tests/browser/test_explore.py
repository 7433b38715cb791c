"""The Explore pane: drawn when it is opened, from the runs that the page keeps; two laid over each other; pictures."""

from __future__ import annotations

import pytest

from tests.browser.acts import capture_feed, feed_lines, run, set_slider

pytestmark = pytest.mark.browser

CHARTS = ("tokens", "steps", "position", "passes", "calibration", "time")


def unfold(page) -> None:
    page.wait_for_function("window.specviz.kept.filter(({shipped}) => shipped).length === 2")
    page.focus(".sv-explore [data-part=open]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".sv-explore[data-drawn]")
    page.wait_for_selector(".sv-explore [data-part=time] .main-svg")


def traces(page, chart: str) -> list[dict]:
    return page.evaluate(
        "name => document.querySelector(`.sv-explore [data-part=${name}]`).data"
        ".map(({name, x, y}) => ({name, x: [...x], y: [...y]}))",
        chart,
    )


def test_nothing_is_drawn_before_it_is_opened_then_all_lanes_are(open_page, shot):
    page = open_page()
    asked = []
    page.on("request", lambda request: "component_server" in request.url and asked.append(request.url))
    page.wait_for_function("window.specviz.kept.length === 2")
    assert page.locator(".sv-explore .main-svg").count() == 0
    assert asked == []
    unfold(page)
    assert len(asked) == 1
    assert [trace["name"] for trace in traces(page, "tokens")] == ["Plain decoding", "Hybrid (gamma 4)"]
    for chart in CHARTS:
        page.wait_for_selector(f".sv-explore [data-part={chart}] .main-svg")
        titles = page.locator(f".sv-explore [data-part={chart}] .modebar-btn").evaluate_all(
            "buttons => buttons.map(button => button.dataset.title)"
        )
        assert titles == ["Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes", "Download as PNG", "Download as SVG"]
    page.wait_for_timeout(300)
    page.locator(".sv-explore").scroll_into_view_if_needed()
    shot(page)


def test_a_run_of_one_s_own_is_drawn_and_laid_over_another(open_page):
    page = open_page()
    capture_feed(page)
    set_slider(page, "sv-temperature", 1)
    unfold(page)
    run(page, length=32)
    page.wait_for_function(
        "document.querySelector('.sv-explore [data-part=a]').selectedOptions[0].text.startsWith('Run 1')"
    )
    page.wait_for_selector(".sv-explore[data-drawn='1']")
    steps = [line["step"] for line in feed_lines(page, "step")]
    page.wait_for_function(
        "n => document.querySelector('.sv-explore [data-part=tokens]').data[0].x.length === n", arg=len(steps) + 1
    )
    (mine,) = traces(page, "tokens")
    assert mine["x"] == [0, *(step["t_end"] for step in steps)]
    assert mine["y"][-1] == feed_lines(page, "end")[0]["summary"]["tokens"]
    page.locator(".sv-explore [data-part=b]").select_option(label="Recorded run: Hybrid, gamma 4")
    page.wait_for_selector(".sv-explore[data-drawn='2']")
    assert [trace["name"][:2] for trace in traces(page, "tokens")] == ["A ", "B "]


@pytest.mark.parametrize("kind", ["PNG", "SVG"])
def test_a_chart_can_be_kept_as_a_picture(open_page, kind):
    page = open_page(dark=kind == "SVG")
    unfold(page)
    with page.expect_download() as found:
        page.locator(f".sv-explore [data-part=tokens] .modebar-btn[data-title='Download as {kind}']").click()
    assert found.value.suggested_filename == f"specviz-tokens.{kind.lower()}"
    content = found.value.path().read_bytes()
    assert content.startswith(b"\x89PNG" if kind == "PNG" else b"<svg")
    if kind == "SVG":
        assert b"rgb(25, 28, 36)" in content  # the dark theme's own background, not a transparent one
