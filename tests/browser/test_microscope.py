"""The microscope: every number is the run's own, the beats say draft, verify and decide, a tree shows its path."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from specviz.trace import EMITTED
from tests.browser.acts import capture_feed, choose, feed_lines, run, set_slider
from tests.browser.conftest import PHONE, ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

RECORDED = json.loads((ROOT / "assets" / "recorded" / "run.json").read_text())
OWN = {"resampled", "bonus", "sampled"}


def sampled_run(page: Page, draft: str = "layer_skip", rule: str = "rejection", length: int = 48) -> list[dict]:
    """The steps of a run at temperature 1."""
    capture_feed(page)
    choose(page, draft=draft, rule=rule)
    set_slider(page, "sv-temperature", 1)
    run(page, length=length)
    return [line["step"] for line in feed_lines(page, "step")]


def put_under(page: Page, step: int, token: int) -> None:
    page.locator(f".sv-run .sv-stream [data-step='{step}'][data-token='{token}']").click()
    page.locator(".sv-scope").wait_for(state="visible")


def first(steps: list[dict], fate: str, **numbers) -> tuple[int, int]:
    return next(
        (s, t)
        for s, step in enumerate(steps)
        for t, token in enumerate(step["tokens"])
        if token["fate"] == fate and all(token[name] is not None for name in numbers)
    )


def expected(step: dict, index: int, field: str) -> float:
    """The JSON's number that `field` names, for token `index` of the step."""
    token = step["tokens"][index]
    siblings = [one for one in step["tokens"] if one["parent"] == token["parent"]]
    drafted = [one for one in siblings if one["fate"] not in OWN]
    refused = [one for one in drafted if one["fate"] == "rejected"]
    subject = token if token["fate"] not in OWN else refused[-1] if refused else token
    own = next((one for one in siblings if one["fate"] in OWN), None)
    if field in ("draft_s", "verify_s"):
        return step[field]
    if field in ("position", "id"):
        return token[field]
    if ":" not in field:
        return subject[field]
    table, number = field.split(":")
    found = [row[2] for row in (own or {}).get("residual") or [] if table == "residual" and row[0] == int(number)]
    if table in ("p", "q"):
        found = [row[2] for row in subject[f"top_{table}"] or [] if row[0] == int(number)]
        found += [one[table] for one in (subject, own) if one and one["id"] == int(number) and one[table] is not None]
        if table == "q" and subject["top_q"] is None and not found:
            found = [0]  # a draft that names one token gives the others nothing
    return found[0]


def check_numbers(page: Page, step: dict, index: int) -> set[str]:
    """Every number of the panel is the JSON's, and reads like it; returns the fields seen."""
    shown = page.locator(".sv-scope [data-field]").evaluate_all(
        "nodes => nodes.map(node => [node.dataset.field, node.dataset.exact, node.textContent])"
    )
    for field, exact, text in shown:
        value = expected(step, index, field)
        assert float(exact) == value, field
        number, _, unit = text.partition("\u00a0")
        scale = {"%": 100, "ms": 1000}.get(unit, 1)
        assert float(number) == pytest.approx(value * scale, rel=0.06, abs=0.5 if unit == "%" else 0.0051), field
    return {field.partition(":")[0] for field, _, _ in shown}


def test_every_number_is_the_runs_own(open_page, shot):
    page = open_page()
    steps = sampled_run(page)
    seen = set()
    for fate in ("accepted", "rejected", "resampled"):
        where = first(steps, fate)
        put_under(page, *where)
        step = steps[where[0]]
        seen |= check_numbers(page, step, where[1])
        token = step["tokens"][where[1]]
        assert fate in page.locator(".sv-scope h3").inner_text()
        needle = page.locator(".sv-scope .sv-axis-needle").get_attribute("style")
        asked = expected(step, where[1], "u")
        assert float(needle.removeprefix("left: ").removesuffix("%;")) == pytest.approx(asked * 100, abs=0.01)
        assert str(token["id"]) in page.locator(".sv-scope-facts").inner_text()
        shot(page, fate, full=False)
    assert seen >= {"p", "q", "u", "accept_prob", "overlap", "residual", "draft_s", "verify_s", "position", "id"}
    shares = page.locator(".sv-scope [data-derived='min(p, q)']").evaluate_all(
        "nodes => nodes.map(node => Number(node.title.split(' = ')[1]))"
    )
    step, index = steps[where[0]], where[1]
    assert sum(shares) <= expected(step, index, "overlap") + 1e-6


@pytest.mark.parametrize(("rule", "words"), [("block", "h = "), ("coupled", "agree = ")])
def test_each_rule_has_its_own_test(open_page, rule, words):
    page = open_page()
    steps = sampled_run(page, rule=rule, length=24)
    where = first(steps, "rejected")
    put_under(page, *where)
    check_numbers(page, steps[where[0]], where[1])
    assert words in page.locator(".sv-scope .sv-axis").inner_text()
    assert page.locator(".sv-scope .sv-axis-needle").count() == (1 if rule == "block" else 0)


def test_beats_pass_slowly_and_can_be_chosen(open_page):
    page = open_page(motion="no-preference")
    page.locator(".sv-run .sv-scrub").press("End")
    where = first(RECORDED["steps"], "rejected")
    put_under(page, *where)
    scope = page.locator(".sv-scope")
    assert scope.get_attribute("data-beat") == "1"
    height = scope.bounding_box()["height"]
    page.wait_for_selector(".sv-scope[data-beat='2']")
    page.wait_for_selector(".sv-scope[data-beat='3']")
    assert scope.bounding_box()["height"] == pytest.approx(height, abs=1)
    page.keyboard.press("b")
    assert scope.get_attribute("data-beat") == "2"
    assert "Beat 2 of 3, Verify" in page.locator(".sv-run [data-part=announce]").inner_text()
    page.keyboard.press("n")
    assert scope.get_attribute("data-beat") == "3"
    page.get_by_role("button", name="1 Draft").click()
    assert scope.get_attribute("data-beat") == "1"
    assert page.locator(".sv-beat-on").inner_text().startswith("Hybrid proposed")
    page.get_by_role("button", name="Next beat").click()
    assert "At temperature 0" in page.locator(".sv-beat-on").inner_text()
    before = scope.inner_text()
    page.locator(".sv-run .sv-stream .sv-tok.sv-shown").press("ArrowRight")
    assert scope.inner_text() != before
    assert scope.get_attribute("data-beat") == "2"  # another token, the same beat
    page.keyboard.press("Escape")
    assert scope.is_hidden()
    page.keyboard.press("Enter")  # the focus is still on the token
    assert scope.is_visible()


@pytest.mark.parametrize("draft", ["tree", "pool"])
def test_a_tree_shows_the_kept_path(open_page, shot, draft):
    page = open_page()
    choose(page, draft=draft)
    page.locator("#sv-candidates label").nth(2).click()
    steps = sampled_run(page, draft=draft)
    number, step = max(enumerate(steps), key=lambda pair: len(pair[1]["tokens"]))
    kept = [i for i, token in enumerate(step["tokens"]) if token["fate"] in EMITTED]
    put_under(page, number, kept[0])
    nodes = page.locator(".sv-scope .sv-node")
    fates = nodes.evaluate_all("nodes => Object.fromEntries(nodes.map(node => [node.dataset.index, node.title]))")
    assert {int(i): title.rpartition(": ")[2] for i, title in fates.items()} == {
        i: token["fate"] for i, token in enumerate(step["tokens"])
    }
    edges = page.locator(".sv-scope .sv-edge-kept").count()
    assert edges == len(kept)
    boxes = {int(node.get_attribute("data-index")): node.bounding_box() for node in nodes.all()}
    for i, token in enumerate(step["tokens"]):  # a level is a column
        if token["parent"] >= 0:
            assert boxes[i]["x"] > boxes[token["parent"]]["x"]
    overlaps = [
        (a, b)
        for a in boxes
        for b in boxes
        if a < b and abs(boxes[a]["x"] - boxes[b]["x"]) < 90 and abs(boxes[a]["y"] - boxes[b]["y"]) < 28
    ]
    assert overlaps == []
    other = next(i for i, token in enumerate(step["tokens"]) if token["fate"] == "discarded")
    nodes.locator(f"xpath=self::*[@data-index='{other}']").click()
    assert "discarded" in page.locator(".sv-scope h3").inner_text()
    check_numbers(page, step, other)
    shot(page, full=False)


def test_a_run_without_distributions_says_so(open_page):
    page = open_page()
    step = RECORDED["steps"][0]
    script = """([step, run]) => {
      const box = window.specviz.beats(window.specviz.place(step, step.tokens[0], run), step, step.tokens[0], run);
      return box.map(beat => beat.textContent).join(' '); }"""
    assert RECORDED["settings"]["temperature"] == 0
    assert step["tokens"][0]["top_q"]  # q has bars of its own: the draft did not name this token alone
    assert "all of q is on the draft's most likely token" in page.evaluate(script, [step, RECORDED])
    bare = [token | {"top_p": None, "top_q": None, "residual": None} for token in step["tokens"]]
    assert "without distributions" in page.evaluate(script, [step | {"tokens": bare}, RECORDED])
    names = ("p", "q", "u", "accept_prob", "overlap", "confidence")
    bare = [token | dict.fromkeys(names) for token in bare]
    assert "without numbers" in page.evaluate(script, [step | {"tokens": bare}, RECORDED])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_microscope_on_a_phone(open_page, shot, dark):
    page = open_page(PHONE, dark=dark)
    page.locator(".sv-run .sv-stream .sv-rejected:visible").first.tap()
    page.locator(".sv-scope").wait_for(state="visible")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for beat in (1, 2, 3):
        page.get_by_role("button", name=f"{beat} ").first.click()
        page.locator(".sv-scope").scroll_into_view_if_needed()
        shot(page, f"{beat}", full=False)
