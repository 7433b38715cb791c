"""The pickers of draft type and rule: what each offers, what cannot go together, what does nothing, a live change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from specviz.settings import DRAFTS, RULES, TREES
from tests.browser.acts import capture_feed, choose, feed_lines, run, set_slider, start
from tests.browser.conftest import PHONE

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def state(page: Page) -> str:
    return page.locator(".sv-run [data-part=state]").inner_text()


def test_every_draft_type_and_rule_is_offered_with_a_sentence(open_page):
    page = open_page()
    for name, values in {"draft": DRAFTS, "rule": RULES}.items():
        picker = page.locator(f"#sv-{name}-picker")
        assert picker.locator("input").evaluate_all("nodes => nodes.map(node => node.value)") == list(values)
        for value in values:
            about = page.locator(f"#sv-{name}-about-{value}")
            assert about.text_content().endswith(".")
            if picker.locator(f"input[value={value}]").is_enabled():
                picker.locator(f"input[value={value}]").check()
                assert about.text_content() in picker.locator(".sv-choice-note").inner_text()


def test_block_and_trees_exclude_each_other_and_the_page_says_why(open_page, shot):
    page = open_page()
    block = page.locator("#sv-rule-picker input[value=block]")
    # No heads were trained for the tiny model here.
    trees = [tree for tree in TREES if page.locator(f"#sv-draft-picker input[value={tree}]").is_enabled()]
    assert {*TREES} - {*trees} == {"eagle-tree", "medusa"}
    for tree in trees:
        choose(page, draft=tree)
        assert block.is_disabled()
        assert "Block: judges chains" in page.locator("#sv-rule-picker .sv-choice-off").inner_text()
    shot(page)
    choose(page, draft="ngram", rule="block")
    assert page.locator("#sv-rule-picker .sv-choice-off").inner_text() == ""
    assert "trees are not available" in page.locator("#sv-rule-picker .sv-choice-note").inner_text()
    for tree in trees:
        assert page.locator(f"#sv-draft-picker input[value={tree}]").is_disabled()
        assert "choose another rule" in page.locator(f"#sv-draft-about-{tree}").text_content()
    choose(page, rule="coupled")
    assert page.locator("#sv-draft-picker input[value=tree]").is_enabled()


def test_choosing_moves_nothing(open_page):
    page = open_page()
    heights = {}
    for draft, rule in [
        ("hybrid", "block"),
        *((draft, "coupled") for draft in DRAFTS if draft != "model"),
        ("pool", "rejection"),
    ]:
        if page.locator(f"#sv-draft-picker input[value={draft}]").is_disabled():
            continue  # nothing was loaded for it here
        choose(page, draft=draft)
        choose(page, rule=rule)
        top, bottom = (page.locator(f"#{name}").bounding_box()["y"] for name in ("sv-draft-picker", "sv-gamma"))
        heights[draft, rule] = bottom - top
    assert max(heights.values()) - min(heights.values()) < 1, heights


def test_controls_that_do_nothing_are_inert(open_page):
    page = open_page()
    page.click("#sv-more button")
    page.wait_for_selector("#sv-exit-layer")
    inert = {
        "none": {"sv-gamma", "sv-adaptive", "sv-candidates", "sv-min-confidence", "sv-exit-layer"},
        "ngram": {"sv-candidates", "sv-min-confidence", "sv-exit-layer"},
        "layer_skip": {"sv-candidates"},
        "tree": set(),  # there is no draft model here: the first layers draft
    }
    for draft, expected in inert.items():
        choose(page, draft=draft)
        found = page.evaluate("[...document.querySelectorAll('.sv-knobs [inert]')].map(node => node.id)")
        assert set(found) == expected, draft


def test_pickers_work_by_keyboard(open_page):
    page = open_page()
    choose(page, draft="ngram")
    page.focus("#sv-draft-picker input:checked")
    page.keyboard.press("ArrowDown")
    assert page.locator("#sv-draft-picker input:checked").get_attribute("value") == "ngram-smoothed"
    page.keyboard.press("ArrowDown")  # over the draft model, which is not there
    assert page.locator("#sv-draft-picker input:checked").get_attribute("value") == "layer_skip"
    assert page.locator("#sv-draft-picker").get_by_role("radio", name="Layer skipping", exact=True).is_checked()


def test_what_is_chosen_is_what_runs(open_page):
    page = open_page()
    capture_feed(page)
    choose(page, draft="pool", rule="coupled")
    page.locator("#sv-candidates label").nth(2).click()
    page.check("#sv-adaptive input")
    page.click("#sv-more button")
    page.wait_for_selector("#sv-repetition-penalty")
    for name, value in {"repetition-penalty": 1.2, "frequency-penalty": 0.5, "min-p": 0.05, "gamma": 3}.items():
        set_slider(page, f"sv-{name}", value)
    set_slider(page, "sv-temperature", 0.7)
    run(page, length=12)
    (header,) = feed_lines(page, "run")
    expected = {
        "draft": "pool",
        "verify": "coupled",
        "candidates": 3,
        "adaptive": True,
        "gamma": 3,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.5,
        "min_p": 0.05,
        "temperature": 0.7,
    }
    assert {name: header["run"]["settings"][name] for name in expected} == expected
    what = page.locator(".sv-run .sv-what").inner_text()
    assert "Pool of drafts, gamma up to 3, adaptive, 3 candidates" in what
    assert "rule coupled" in what


def stop(page: Page) -> None:
    page.click("#sv-stop-button")
    page.wait_for_selector(".sv-run[data-state=stopped]")
    page.wait_for_selector("#sv-run-button:not([disabled])")


def test_another_draft_takes_over_while_it_runs(open_page, shot):
    page = open_page()
    capture_feed(page)
    start(page, length=1500)
    page.wait_for_selector(".sv-run[data-state=running] .sv-stream .sv-tok")
    choose(page, draft="tree")
    page.wait_for_selector(".sv-run .sv-step[data-change]")
    assert "Static tree drafts from step" in state(page)
    stop(page)
    drafts = [line["step"]["draft"] for line in feed_lines(page, "step")]
    turn = drafts.index("tree")
    assert set(drafts[:turn]) == {"hybrid"}
    assert set(drafts[turn:]) == {"tree"}
    marks = page.locator(".sv-run .sv-step[data-change]")
    assert marks.count() == 1
    assert marks.get_attribute("data-change") == "from here: Static tree"
    assert marks.locator(".sv-tok").first.get_attribute("data-step") == str(turn)
    assert "Hybrid, gamma 4, then Static tree" in page.locator(".sv-run .sv-what").inner_text()
    marks.locator(".sv-tok").last.click()
    assert "draft changed from hybrid to tree" in page.locator(".sv-scope").inner_text()
    shot(page)


def test_a_refused_change_is_a_sentence_and_the_run_goes_on(open_page):
    """The rule of the run stays block, whatever the picker says by now."""
    page = open_page()
    capture_feed(page)
    choose(page, rule="block")
    start(page, length=1500)
    page.wait_for_selector(".sv-run[data-state=running] .sv-stream .sv-tok")
    choose(page, rule="rejection")
    choose(page, draft="tree")
    page.wait_for_function(
        "document.querySelector('.sv-run [data-part=state]').textContent.includes('The draft stays as it was')"
    )
    assert "Rule 'block' verifies a chain" in state(page)
    before = len(feed_lines(page, "step"))
    page.wait_for_function(
        "before => window.lines.filter(line => line.type === 'step').length > before + 1", arg=before
    )
    stop(page)
    assert {line["step"]["draft"] for line in feed_lines(page, "step")} == {"hybrid"}


def test_a_change_right_behind_run_is_not_lost(open_page):
    """It may reach the server before the run does, whose settings were read before it."""
    page = open_page()
    capture_feed(page)
    start(page, length=1500)
    choose(page, draft="tree")
    page.wait_for_selector(".sv-run[data-state=running] .sv-step[data-change='from here: Static tree']")
    stop(page)
    assert feed_lines(page, "run")[0]["run"]["settings"]["draft"] == "hybrid"
    assert feed_lines(page, "step")[-1]["step"]["draft"] == "tree"


def test_of_quick_changes_the_last_one_stays(open_page):
    """Each change is a request of its own; held up on their way, they reach the server in the wrong order."""
    page = open_page()
    capture_feed(page)
    start(page, length=1500)
    page.wait_for_selector(".sv-run[data-state=running] .sv-stream .sv-tok")
    held = []
    page.route(
        "**/run/predict",
        lambda route: held.append(route) if "event_data" in route.request.post_data else route.continue_(),
    )
    for draft in ("layer_skip", "ngram", "ngram-smoothed"):
        choose(page, draft=draft)
    page.wait_for_function("document.querySelector('#sv-draft-picker input:checked').value === 'ngram-smoothed'")
    for _ in range(200):
        if len(held) == 3:
            break
        page.wait_for_timeout(50)
    assert len(held) == 3
    with page.expect_response("**/run/predict"):
        held[2].continue_()
    page.wait_for_selector(".sv-run .sv-step[data-change='from here: Smoothed n-gram']")
    for older in (held[0], held[1]):
        with page.expect_response("**/run/predict"):
            older.continue_()
    page.unroute("**/run/predict")
    before = len(feed_lines(page, "step"))
    page.wait_for_function(
        "before => window.lines.filter(line => line.type === 'step').length > before + 2", arg=before
    )
    stop(page)
    assert feed_lines(page, "step")[-1]["step"]["draft"] == "ngram-smoothed"
    assert page.locator(".sv-run .sv-step[data-change]").count() == 1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pickers_on_a_phone(open_page, shot, dark):
    page = open_page(PHONE, dark=dark)
    page.click(".sv-fold")
    choose(page, draft="pool")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    names = page.locator(".sv-choice-name").evaluate_all(
        """nodes => nodes.filter(node =>
        node.getBoundingClientRect().right > node.closest('.sv-choice').getBoundingClientRect().right).length"""
    )
    assert names == 0
    # A disabled choice says why when it is tapped, too.
    page.locator("#sv-draft-picker .sv-choice:has(input[value=model])").tap(force=True)
    assert "No draft model was given" in page.locator("#sv-draft-picker .sv-choice-note").inner_text()
    shot(page)
