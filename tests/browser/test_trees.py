"""Steps drawn as trees: the kept path, the refused siblings before it, and sentences that are true of each rule."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from specviz.trace import EMITTED
from tests.browser.acts import capture_feed, choose, feed_lines, run, set_slider

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

#: The card's sentence on one token of a made step.
WHY = """([tokens, index, settings, step]) =>
    window.specviz.why(tokens[index], {tokens, note: null, ...step}, {settings})"""


def drawn(page: Page) -> dict[int, list[int]]:
    """For each step the indices of its tokens in the order in which they stand in the stream."""
    rows = page.evaluate(
        """() => [...document.querySelectorAll('.sv-run .sv-stream .sv-tok')].map(
        node => [Number(node.dataset.step), Number(node.dataset.token)])"""
    )
    steps = defaultdict(list)
    for step, token in rows:
        steps[step].append(token)
    return steps


@pytest.mark.parametrize("draft", ["tree", "tree-dynamic", "pool"])
@pytest.mark.parametrize("rule", ["rejection", "coupled"])
def test_a_tree_is_drawn_as_it_was_walked(open_page, shot, draft, rule):
    page = open_page()
    capture_feed(page)
    choose(page, draft=draft, rule=rule)
    page.locator("#sv-candidates label").nth(2).click()
    set_slider(page, "sv-temperature", 1)
    run(page, length=48)
    steps = [line["step"] for line in feed_lines(page, "step")]
    (end,) = feed_lines(page, "end")
    places = drawn(page)
    text, held, tested = "", 0, 0
    for number, step in enumerate(steps):
        tokens, order = step["tokens"], places[number]
        assert sorted(order) == list(range(len(tokens)))
        emitted = [i for i in order if tokens[i]["fate"] in EMITTED]
        text += "".join(tokens[i]["text"] for i in emitted)
        # Each emitted token hangs on the one before it, and its refused siblings stand between the two.
        for before, i in zip([-1, *emitted], emitted, strict=False):
            assert tokens[i]["parent"] == before
            refused = [k for k, token in enumerate(tokens) if token["fate"] == "rejected" and token["parent"] == before]
            start = order.index(before) if before >= 0 else -1
            between = order[start + 1 : order.index(i)]
            assert [k for k in between if tokens[k]["fate"] == "rejected"] == refused
        levels = defaultdict(list)
        for token in tokens:
            if token["fate"] in ("accepted", "rejected"):
                levels[token["parent"]].append(token["fate"])
        held += sum("accepted" in fates for fates in levels.values())
        tested += len(levels)
    assert text == end["output"]["text"]
    assert any(sum(token["fate"] == "rejected" for token in step["tokens"]) > 1 for step in steps)
    assert f"{held} of {tested} levels" in page.locator("[data-part=figure-rate]").inner_text()
    assert end["summary"]["acceptance_rate"]["value"] == pytest.approx(held / tested)
    page.check("[data-part=ghosts]")
    shot(page)


def test_the_microscope_of_a_sibling_says_where_it_stands(open_page, shot):
    page = open_page()
    capture_feed(page)
    choose(page, draft="tree")
    page.locator("#sv-candidates label").nth(2).click()
    set_slider(page, "sv-temperature", 1)
    run(page, length=48)
    steps = [line["step"] for line in feed_lines(page, "step")]
    number, index, token, siblings = next(
        (number, index, token, siblings)
        for number, step in enumerate(steps)
        for index, token in enumerate(step["tokens"])
        if token["fate"] == "rejected"
        and (siblings := [t for t in step["tokens"][: step["gamma"]] if t["parent"] == token["parent"]]).index(token)
        > 0
    )
    page.locator(f".sv-stream [data-step='{number}'][data-token='{index}']").click()
    scope = page.locator(".sv-scope")
    depth = token["position"] - steps[number]["tokens"][0]["position"] + 1
    assert f"child {siblings.index(token) + 1} of {len(siblings)} at depth {depth}" in scope.inner_text()
    assert "against what they left of p" in scope.locator(".sv-why").inner_text()
    shot(page)


def token(fate: str, parent: int, text: str = "x", **numbers) -> dict:
    drafted = {"p": 0.2, "q": 0.5, "u": 0.7, "accept_prob": 0.4}
    own = dict.fromkeys(drafted) | {"p": 0.2}
    return {
        "id": 1,
        "position": 0,
        "text": text,
        "fate": fate,
        "parent": parent,
        "top_p": None,
        **(own if fate in ("resampled", "bonus", "sampled") else drafted),
        **numbers,
    }


FORK = [
    token("rejected", -1, "first"),
    token("accepted", -1, "second", u=0.1),
    token("discarded", -1, "third", u=None),
    token("discarded", 0, "child", u=None),
    token("discarded", 3, "grandchild", u=None),
    token("resampled", 1, "own"),
]
FORK[5:5] = [token("rejected", 1, "fourth"), token("rejected", 1, "fifth")]
BLOCK = [
    token("accepted", -1, "one", u=0.9, accept_prob=0.4),
    token("accepted", 0, "two", u=0.2, accept_prob=0.5),
    token("rejected", 1, "three", u=0.6, accept_prob=0.3),
    token("discarded", 2, "four", u=0.8, accept_prob=0.1),
    token("resampled", 1, "own"),
]
ALONE = [token("rejected", -1, "bad"), token("resampled", -1, "good")]
FULL = [token("accepted", -1, "a", u=0.1), token("bonus", 0, "b")]


@pytest.mark.parametrize(
    ("tokens", "index", "rule", "temperature", "words"),
    [
        (FORK, 0, "rejection", 1, ["u = 0.70 was above p/q = 0.40"]),
        (FORK, 1, "rejection", 1, ["Behind the refused “first”", "u = 0.10 was below the chance 0.40"]),
        (FORK, 2, "rejection", 1, ["Its sibling “second” was tried first and kept"]),
        (FORK, 3, "rejection", 1, ["Drafted behind the refused “first”"]),
        (FORK, 4, "rejection", 1, ["Drafted behind “child”, which is not in the output"]),
        (FORK, 6, "rejection", 1, ["Behind the refused “fourth”", "refused too"]),
        (FORK, 7, "rejection", 1, ["in place of the refused “fourth”, “fifth”", "in turn"]),
        (FORK, 7, "rejection", 0, ["most likely token, in place of the refused “fourth”, “fifth”"]),
        (FORK, 0, "rejection", 0, ["The target's most likely token is “second”, not “first”"]),
        (FORK, 0, "coupled", 1, ["drew “second”, not “first”", "chance to agree was 0.40"]),
        (FORK, 1, "coupled", 1, ["the noise that draft and target share", "drew this very token"]),
        (FORK, 2, "coupled", 1, ["Its sibling “second” agreed with the target and was kept"]),
        (FORK, 7, "coupled", 1, ["from its own p", "“fourth”, “fifth”"]),
        (BLOCK, 0, "block", 1, ["up to “two”", "u = 0.90 was not below h = 0.40, and did not decide"]),
        (BLOCK, 1, "block", 1, ["u = 0.20 was below h = 0.50 here and for no later token"]),
        (BLOCK, 2, "block", 1, ["no u was below its h (here u = 0.60 and h = 0.30)"]),
        (BLOCK, 3, "block", 1, ["behind the end of the block", "u = 0.80 was not below its h = 0.10"]),
        (BLOCK, 4, "block", 1, ["in place of the refused “three”", "max(0, w·p − q)"]),
        (ALONE, 1, "rejection", 1, ["in place of the refused “bad”", "max(0, p − q)"]),
        (FULL, 0, "rejection", 1, ["u = 0.10 was below p/q = 0.40"]),
        (FULL, 1, "rejection", 1, ["All 1 drafted token of this step were kept"]),
    ],
)
def test_sentences_are_true_of_the_rule(explainer, tokens, index, rule, temperature, words):
    settings = {"verify": rule, "temperature": temperature, "draft": "tree"}
    drafted = sum(one["fate"] not in ("resampled", "bonus") for one in tokens)
    sentence = explainer.evaluate(WHY, [tokens, index, settings, {"gamma": drafted}])
    for part in words:
        assert part in sentence


def test_a_token_proposed_twice_is_explained(explainer):
    """Its recorded test is the first, which failed; a later draw of the same token passed."""
    tokens = [token("accepted", -1, "a", u=0.9), token("rejected", -1, "b"), token("bonus", 0)]
    settings = {"verify": "rejection", "temperature": 1, "draft": "pool"}
    assert "proposed more than once" in explainer.evaluate(WHY, [tokens, 0, settings, {"gamma": 2}])


@pytest.fixture(scope="module")
def explainer(browser, app):
    """A page whose functions are called with made steps."""
    page = browser.new_page()
    page.goto(app)
    page.wait_for_function("() => Boolean(window.specviz?.why)")
    yield page
    page.close()
