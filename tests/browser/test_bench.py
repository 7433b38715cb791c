"""The benchmark pane: a sweep fills in live and stops, its report shows the numbers sent, and a file looks alike;
the page that the command line writes asks nobody."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from specviz.ui.report import write_report
from tests.browser.acts import PROMPT, capture_feed, feed_lines, run, set_slider
from tests.browser.conftest import PHONE, WIDE
from tests.unit.made_bench import made_bench

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
SWEEP_MS = 90_000


def part(page: Page, name: str) -> str:
    return page.locator(f".sv-bench [data-part={name}]").inner_text()


def tick(page: Page, group: str, *names: str) -> None:
    """Tick exactly these boxes of a group."""
    for box in page.locator(f"#sv-bench-{group} label").all():
        field = box.locator("input")
        if field.is_checked() != (box.inner_text().strip() in names):
            field.click()


def measure(page: Page) -> None:
    page.fill("#sv-prompt textarea", PROMPT)
    page.check("#sv-bench-tokens input[value='32']")
    page.click("#sv-bench-button")


def figure_names(page: Page) -> list[str]:
    return [text.split("\n")[0] for text in page.locator(".sv-bench-report figcaption").all_inner_texts()]


def test_a_sweep_fills_in_live_and_ends_with_the_report(open_page, shot):
    page = open_page()
    tick(page, "drafts", "N-gram lookup")
    tick(page, "gammas", "2", "4")
    capture_feed(page)
    measure(page)
    page.wait_for_selector(".sv-bench-lane", timeout=SWEEP_MS)
    assert page.locator("#sv-run-button").is_disabled()
    page.wait_for_selector(".sv-bench[data-state=done]", timeout=SWEEP_MS)
    page.wait_for_selector("#sv-bench-button:not([disabled])")
    (line,) = feed_lines(page, "bench")
    rates = [at["rate"] for at in feed_lines(page, "bench_progress") if at["rate"] is not None]
    assert len(rates) == len(line["bench"]["lanes"]) == 3
    assert page.locator(".sv-bench-live").is_hidden()
    titles = ["Speed", "Speed-up over plain decoding", "Gamma and draft"]
    assert [name.strip() for name in figure_names(page)] == titles
    rows = page.locator(".sv-bench-part").first.locator("tbody tr").all_inner_texts()
    for text, row in zip(rows, line["bench"]["summary"]["lanes"], strict=True):
        cells = [cell.strip() for cell in text.split("\t")]
        assert cells[:2] == [row["lane"], f"{row['overall']['tokens_per_second']:.1f}"]
    page.wait_for_selector(".sv-bench-report .sv-chart:nth-of-type(3) .main-svg")
    heat = page.evaluate("document.querySelectorAll('.sv-bench-report .sv-plot')[2].data[0]")
    assert (heat["type"], heat["x"]) == ("heatmap", ["2", "4"])
    assert page.locator(".sv-bench-said li").first.inner_text() == line["bench"]["summary"]["sentences"][0]
    shot(page)


def test_a_sweep_stops_and_a_run_is_free_again(open_page):
    page = open_page()
    set_slider(page, "sv-length", 8)
    tick(page, "drafts", "N-gram lookup", "Layer skipping", "Static tree")
    measure(page)
    page.wait_for_selector(".sv-bench[data-state=running]")
    page.click(".sv-bench .sv-pane-stop")
    page.wait_for_selector(".sv-bench[data-state=stopped]", timeout=SWEEP_MS)
    said = part(page, "state")
    assert "nothing is claimed" in said
    assert re.match(r"Stopped (with \d+ of \d+ runs done, before one prompt|before the first run began)", said)
    run(page, length=8)


def test_nothing_ticked_is_refused(open_page):
    page = open_page()
    tick(page, "drafts")
    measure(page)
    page.wait_for_selector(".sv-bench[data-state=failed]")
    assert "Choose a draft type" in part(page, "state")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_file_is_drawn_as_the_same_report(open_page, shot, tmp_path, dark):
    bench = made_bench()
    bench.lanes[0].note = "</script><img src=x onerror=alert(1)>"
    file = tmp_path / "bench.json"
    file.write_text(bench.to_json())
    page = open_page(dark=dark)
    _choose(page, file)
    page.wait_for_selector(".sv-bench[data-state=done]")
    assert "From a file: 4 prompts, 7 lanes" in part(page, "state")
    page.wait_for_selector(".sv-bench-report .sv-chart:last-of-type .main-svg")
    assert page.locator(".sv-bench-report img").count() == 0
    assert bench.lanes[0].note in part(page, "report")
    shot(page)
    (tmp_path / "odd.json").write_text("{}")
    _choose(page, tmp_path / "odd.json")
    page.wait_for_selector(".sv-bench[data-state=failed]")
    assert "odd.json cannot be shown as a benchmark" in part(page, "state")


def _choose(page: Page, file) -> None:
    with page.expect_file_chooser() as chooser:
        page.click("#sv-bench-file")
    chooser.value.set_files(file)


def test_the_pane_on_a_phone(open_page, shot, tmp_path):
    file = tmp_path / "bench.json"
    file.write_text(made_bench().to_json())
    page = open_page(PHONE)
    _choose(page, file)
    page.wait_for_selector(".sv-bench-report .sv-chart:last-of-type .main-svg")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shot(page)


@pytest.mark.parametrize(
    ("size", "dark"), [(WIDE, False), (WIDE, True), (PHONE, False)], ids=["light", "dark", "phone"]
)
def test_the_written_report_stands_alone(browser, tmp_path, shot, size, dark):
    bench = made_bench()
    bench.target = "</script><script>document.title = 'taken over'</script>"
    write_report(bench, tmp_path / "report.html")
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light", offline=True
    )
    page, faults = context.new_page(), []
    page.on("console", lambda message: message.type == "error" and faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request", lambda request: request.url.startswith(("file:", "data:", "blob:")) or faults.append(request.url)
    )
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_selector(".sv-chart:last-of-type .main-svg")
    assert page.title() == f"specviz benchmark: {bench.target}"
    assert page.locator(".sv-chart").count() == 5
    assert page.locator(".sv-bench-said li").first.inner_text() == bench.summary.sentences[0]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ink = page.evaluate("getComputedStyle(document.querySelector('.sv-chart text')).fill")
    assert ink == ("rgb(163, 169, 182)" if dark else "rgb(86, 91, 102)")
    shot(page)
    context.close()
    assert faults == []


def test_where_the_time_went_is_drawn_when_a_run_has_ended(open_page):
    page = open_page()
    capture_feed(page)
    run(page, length=16)
    page.wait_for_selector("[data-part=chart-time] .main-svg")
    steps = feed_lines(page, "step")
    verify = page.evaluate("document.querySelector('[data-part=chart-time]').data[1].y")
    assert verify == pytest.approx([1000 * line["step"]["verify_s"] for line in steps])
