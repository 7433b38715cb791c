"""axe-core finds no serious violation on any pane, in either theme, with everything unfolded and drawn."""

from __future__ import annotations

import pytest

from tests.browser.acts import run

pytestmark = pytest.mark.browser

axe = pytest.importorskip("axe_playwright_python.sync_playwright")

SERIOUS = ("serious", "critical")


def violations(page, where: str = "document") -> list[str]:
    """Serious ones as sentences: rule, what is wrong, and where."""
    found = axe.Axe().run(page, context=None if where == "document" else where).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {node['target']} {node['html'][:160]}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_violation_on_any_pane(open_page, dark):
    page = open_page(dark=dark)
    page.wait_for_function("window.specviz.kept.length === 2")
    page.click(".sv-explore [data-part=open]")
    page.wait_for_selector(".sv-explore [data-part=time] .main-svg")
    page.locator("#sv-more button").first.click()
    run(page, length=24)
    page.focus(".sv-how summary")
    page.keyboard.press("Enter")
    page.locator(".sv-run .sv-stream .sv-tok").first.click()
    page.wait_for_selector(".sv-scope:visible")
    page.click("#sv-prove-button")
    page.wait_for_selector(".sv-proof.sv-has-proof", timeout=60_000)
    page.wait_for_selector("#sv-prove-button:not([disabled])")
    assert violations(page) == []


def test_no_serious_violation_in_the_dialog_of_keys_and_the_tour(open_page):
    page = open_page()
    page.keyboard.press("?")
    page.wait_for_selector(".sv-keys[open]")
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("t")  # the card of the tour, which lies over the page
    page.wait_for_selector(".sv-tour:visible")
    assert violations(page) == []
