"""Figures of a run: only tested tokens count, intervals hold their value, a run without drafts has no rate."""

import pytest

from specviz.summary import drafted_depth, expected_tokens, summarise, wilson
from specviz.trace import Calibration, Step, Token


def step(fates: str, index: int = 0, t_end: float = 1.0) -> Step:
    names = {
        "a": "accepted",
        "r": "rejected",
        "d": "discarded",
        "c": "resampled",
        "b": "bonus",
        "s": "sampled",
        "t": "trimmed",
    }
    tokens = [
        Token(i, 0, "", names[f], i - 1, overlap=0.5 if f in "ar" else 0.1 if f == "d" else None)
        for i, f in enumerate(fates)
    ]
    drafted = sum(f in "ardt" for f in fates)
    return Step(index, 0, t_end, 0, 0, 0, drafted, "x", 0, 0, tokens=tokens)


def test_counts_rates_and_positions():
    summary = summarise([step("aab", 0, 1), step("rdc", 1, 2), step("arc", 2, 4)])
    assert (summary.tokens, summary.steps) == (6, 3)
    assert summary.tokens_per_step == 2
    assert summary.tokens_per_second == 1.5
    assert summary.acceptance_rate.value == pytest.approx(3 / 5)
    assert summary.alpha == 0.5  # discarded tokens are not in it
    first, second = summary.by_position
    assert (first.proposed, first.tested, first.accepted) == (3, 3, 2)
    assert (second.proposed, second.tested, second.accepted) == (3, 2, 1)
    assert (second.rate, second.reach_rate) == (0.5, pytest.approx(1 / 3))


def test_tokens_behind_the_cut_are_in_no_rate():
    summary = summarise([step("att")])
    assert summary.tokens == 1
    assert summary.acceptance_rate.value == 1
    assert [row.proposed for row in summary.by_position] == [1, 0, 0]


def test_plain_decoding_has_no_acceptance_rate():
    summary = summarise([step("s"), step("s", 1, 2)])
    assert summary.acceptance_rate.value is None
    assert summary.alpha is None
    assert summary.by_position == []


def test_an_empty_run_has_no_figures():
    assert summarise([]).tokens_per_second is None


def test_intervals_hold_their_value_and_stay_inside():
    rate = summarise([step("aab"), step("rc", 1), step("arc", 2), step("aab", 3)] * 5).acceptance_rate
    assert 0 <= rate.low <= rate.value <= rate.high <= 1
    for lucky in ([step("aab")], [step("rc")], [step("arc"), step("arc", 1)]):
        rate = summarise(lucky).acceptance_rate
        assert rate.low < rate.high  # a few tests alike prove nothing
    assert wilson(0, 10)[0] == 0
    assert wilson(0, 10)[1] > 0.2
    assert wilson(10, 10)[1] == pytest.approx(1)
    assert wilson(0, 0) == (None, None)


def tree(*nodes: tuple[str, int], own: str | None = None, index: int = 0) -> Step:
    """A step whose tokens are (fate, parent), the target's own behind the last accepted one."""
    tokens = [Token(0, i, "", fate, parent, overlap=0.25 + i / 8) for i, (fate, parent) in enumerate(nodes)]
    if own:
        path = [i for i, (fate, _) in enumerate(nodes) if fate == "accepted"]
        tokens.append(Token(0, 99, "", own, path[-1] if path else -1))
    return Step(index, 0, 1.0, 0, 0, 0, len(nodes), "tree", 0, 0, tokens=tokens)


def test_a_tree_level_counts_once_and_its_overlap_is_that_of_the_first_sibling():
    steps = [
        tree(("rejected", -1), ("accepted", -1), ("discarded", 0), ("rejected", 1), ("rejected", 1), own="resampled"),
        tree(("accepted", -1), ("discarded", -1), ("accepted", 0), own="bonus", index=1),
    ]
    summary = summarise(steps)
    assert (summary.tokens, summary.steps) == (5, 2)
    assert summary.acceptance_rate.value == pytest.approx(3 / 4)
    assert summary.alpha == pytest.approx((0.25 + (0.25 + 3 / 8) + 0.25 + (0.25 + 2 / 8)) / 4)
    first, second = summary.by_position
    assert (first.proposed, first.tested, first.accepted) == (2, 2, 2)
    assert (second.proposed, second.tested, second.accepted) == (2, 2, 1)
    assert drafted_depth(steps[0]) == 2


def test_a_tree_is_predicted_from_how_often_a_level_was_kept():
    steps = [
        tree(("rejected", -1), ("accepted", -1), ("discarded", 0), ("rejected", 1), ("rejected", 1), own="resampled"),
        tree(("accepted", -1), ("discarded", -1), ("accepted", 0), own="bonus", index=1),
    ]
    costs = Calibration(c=0.1, v=[1.0 + 0.1 * i for i in range(9)], h=0.2, h0=0.05, unit_s=0.01)
    predicted = summarise(steps, costs).predicted
    assert predicted["alpha"] == 0.75  # 3 of the 4 levels, whatever the overlap of their first siblings
    tokens = 2 * (1 + 0.75 + 0.75**2)
    assert predicted["speedup"] == pytest.approx(1.05 * tokens / ((0.2 + 1.5 + 0.2) + (0.2 + 1.3 + 0.2)))


def test_a_tree_behind_the_cut_is_in_no_rate():
    step_ = tree(("rejected", -1), ("accepted", -1), ("trimmed", 1), ("trimmed", 0))
    summary = summarise([step_])
    assert summary.acceptance_rate.value == 1
    assert [row.proposed for row in summary.by_position] == [1, 0]


def test_the_prediction_is_theory_with_measured_costs():
    calibration = Calibration(c=0.1, v=[1.0, 1.1, 1.2, 1.5], h=0.2, h0=0.05, unit_s=0.01)
    steps = [step("aab"), step("rdc", 1)]  # alpha 0.5 at every tested place
    predicted = summarise(steps, calibration).predicted
    per_step = 1 + 0.5 + 0.25
    assert predicted["speedup"] == pytest.approx(1.05 * per_step / (2 * 0.1 + 1.2 + 0.2))
    assert (predicted["alpha"], predicted["v"], predicted["c"], predicted["h"]) == (0.5, pytest.approx(1.2), 0.1, 0.2)
    assert summarise([step("s")], calibration).predicted is None
    assert summarise(steps).predicted is None


def test_expected_tokens_of_a_step():
    assert expected_tokens(0.5, 2) == pytest.approx(1.75)
    assert expected_tokens(1.0, 3) == 4
    assert expected_tokens(0.0, 3) == 1
    assert expected_tokens(0.7, 0) == pytest.approx(1)
