"""The proof pane: the real thing passes, a mistake fails, and both say so with the proof's own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from specviz.lab.mistakes import MISTAKES
from tests.browser.acts import PROMPT, capture_feed, feed_lines, pick, run, set_slider
from tests.browser.conftest import PHONE

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
PROOF_MS = 60_000


def part(page: Page, name: str) -> str:
    return page.locator(f".sv-proof [data-part={name}]").inner_text()


def prove(page: Page) -> dict:
    capture_feed(page)
    page.click("#sv-prove-button")
    page.wait_for_selector(".sv-proof[data-state=running]")
    page.wait_for_selector(".sv-proof[data-state=done]", timeout=PROOF_MS)
    page.wait_for_selector("#sv-prove-button:not([disabled])")
    (line,) = feed_lines(page, "proof")
    return line["proof"]


def test_the_real_thing_passes(open_page, shot):
    page = open_page()
    pick(page, "sv-proof-draft", "Static tree")
    proof = prove(page)
    assert (proof["draft"], proof["verify"], proof["mistake"], proof["n"]) == ("tree", "rejection", None, 3000)
    assert proof["passed"]
    assert part(page, "big") == "✓ Lossless"
    assert part(page, "verdict").lower() in proof["verdict"].lower()
    assert part(page, "tv") == f"{proof['tv']:.4f}"
    assert "Static tree, gamma 2 · rule rejection" in part(page, "what")
    page.wait_for_selector("[data-part=chart-distance] .main-svg")
    page.wait_for_function("document.querySelector('[data-part=chart-law]').data[0].x.length === 40")
    shot(page)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_mistake_fails_and_goes_where_it_shows(open_page, shot, dark):
    name = "softmax-top-k-tree"
    page = open_page(dark=dark)
    assert page.locator("#sv-proof-sentence").inner_text().startswith("The engine as it is")
    pick(page, "sv-proof-mistake", MISTAKES[name].title)
    page.wait_for_function(
        "text => document.querySelector('#sv-proof-sentence').innerText === text", arg=MISTAKES[name].sentence
    )
    assert page.locator("#sv-proof-draft input").input_value() == "Dynamic tree"
    proof = prove(page)
    assert (proof["mistake"], proof["draft"], proof["passed"]) == (name, "tree-dynamic", False)
    assert part(page, "big") == "✗ Not lossless"
    assert part(page, "exact") == f"{proof['tv_exact']:.4f}"
    page.wait_for_selector("[data-part=chart-law] .main-svg")
    shot(page)


def test_a_proof_stops_and_a_run_is_free_again(open_page):
    page = open_page()
    page.get_by_role("radio", name="30,000").check()
    page.click("#sv-prove-button")
    page.wait_for_selector(".sv-proof[data-state=running]")
    assert page.locator("#sv-run-button").is_disabled()
    page.click(".sv-proof .sv-pane-stop")
    page.wait_for_selector(".sv-proof[data-state=stopped]", timeout=PROOF_MS)
    assert "nothing is claimed" in part(page, "state")
    run(page, length=8)


def test_a_combination_that_does_not_exist_is_refused(open_page):
    page = open_page()
    pick(page, "sv-proof-draft", "Pool of drafts")
    pick(page, "sv-proof-rule", "Block")
    page.click("#sv-prove-button")
    page.wait_for_selector(".sv-proof[data-state=failed]")
    assert "Rule 'block' verifies a chain" in part(page, "state")
    page.wait_for_selector("#sv-prove-button:not([disabled])")


def test_proof_on_a_phone(open_page, shot):
    page = open_page(PHONE)
    prove(page)
    page.wait_for_selector("[data-part=chart-law] .main-svg")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = page.locator(".sv-proof .sv-figure-value").evaluate_all(
        "nodes => nodes.filter(node => node.scrollWidth > node.parentElement.clientWidth).length"
    )
    assert wide == 0
    shot(page)


def test_a_law_that_cannot_be_enumerated_claims_no_enumeration(open_page):
    """Behind a reseeded generator the steps are not independent, so there is no exact figure."""
    page = open_page()
    assert prove(page)["tv_exact"] is not None
    assert part(page, "enumerated") == "every draft and acceptance enumerated"
    pick(page, "sv-proof-mistake", MISTAKES["reseed"].title)
    page.click("#sv-prove-button")
    page.wait_for_selector(".sv-proof[data-state=running]")
    page.wait_for_selector(".sv-proof[data-state=done]", timeout=PROOF_MS)
    assert part(page, "exact") == "–"
    assert part(page, "enumerated") == "cannot be enumerated here"


def test_a_run_that_takes_over_from_a_proof_can_be_stopped(open_page):
    """Shift+Enter is not a disabled button: the end of the proof must not switch off the run's Stop."""
    page = open_page()
    set_slider(page, "sv-length", 512)
    page.fill("#sv-prompt textarea", PROMPT)
    page.get_by_role("radio", name="30,000").check()
    page.click("#sv-prove-button")
    page.wait_for_selector(".sv-proof[data-state=running]")
    page.focus("#sv-prompt textarea")
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector(".sv-proof[data-state=stopped]", timeout=PROOF_MS)
    page.wait_for_selector(".sv-run[data-state=running]", timeout=PROOF_MS)
    page.wait_for_timeout(500)  # the proof's last word on the buttons has come by now
    assert page.locator("#sv-run-button").is_disabled()
    page.click(".sv-run .sv-pane-stop")
    page.wait_for_selector(".sv-run[data-state=stopped]")
    page.wait_for_selector("#sv-run-button:not([disabled])")
