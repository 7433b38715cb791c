"""Why a draft won or lost: the prediction is the summary's own, break-even values break even, and blame follows."""

import dataclasses
import random

import pytest

from specviz.lab.race import race
from specviz.lab.why import Why, _break_even, curve, explain
from specviz.settings import GAMMA_MAX
from specviz.summary import predict, predict_shapes, shapes
from specviz.trace import Calibration
from tests.conftest import tiny_engine

PROMPT = "The target checks what the draft proposes"


@pytest.fixture(scope="module")
def result():
    drafts = ["ngram-smoothed:gamma=3", "eagle-tree:gamma=2,candidates=3", "ngram-smoothed:gamma=4,adaptive"]
    return race(tiny_engine(), PROMPT, drafts=drafts, rounds=1, temperature=1.0, max_new_tokens=24, ignore_eos=True)


def random_costs(dice: random.Random, rows: int = 33) -> Calibration:
    v = [1.0]
    for _ in range(rows - 1):
        v.append(v[-1] + dice.random() * 0.3)
    return Calibration(dice.random(), v, dice.random() * 0.3, dice.random() * 0.2, 0.02)


def random_case(dice: random.Random) -> tuple[list[tuple[int, int]], float, Calibration]:
    """Drafts of a chain asked for 1 to 8 tokens, with some steps that drafted less or nothing."""
    asked = dice.randint(1, 8)
    depths = [asked, *(dice.choice([0, asked, asked, dice.randint(0, asked)]) for _ in range(dice.randint(3, 30)))]
    return [(depth, depth) for depth in depths], dice.random(), random_costs(dice)


def test_the_prediction_is_the_summary_s(result):
    for lane in result.lanes[1:]:
        run = lane.runs[lane.shown]
        alpha, costs = run.summary.predicted["alpha"], run.calibration
        assert (
            run.summary.predicted == predict(run.steps, alpha, costs) == predict_shapes(shapes(run.steps), alpha, costs)
        )
        assert lane.why.predicted == run.summary.predicted["speedup"]
        assert lane.why.h0 == run.summary.predicted["h0"]
        for factor in lane.why.factors:
            assert factor.value == run.summary.predicted[factor.name]


def test_the_curve_goes_through_the_run_s_own_prediction(result):
    for lane in result.lanes[1:3]:
        at = {point.gamma: point.speedup for point in lane.why.curve}
        assert at[lane.why.gamma] == lane.why.predicted
        assert at[0] == pytest.approx(1)
        assert at[lane.why.best] == max(at.values())
    adaptive = result.lanes[3].why
    drafted = shapes(result.lanes[3].runs[0].steps)
    assert adaptive.gamma == pytest.approx(sum(depth for depth, _ in drafted) / len(drafted))


@pytest.mark.parametrize("seed", range(20))
def test_the_curve_is_the_formula_at_every_gamma(seed):
    """A chain that always has what it is asked for: (1 + h0)(1 - alpha^(g + 1)) / ((1 - alpha)(g c + v(g) + h))."""
    dice = random.Random(seed)
    alpha, costs = dice.random() * 0.99, random_costs(dice)
    points = curve([(4, 4)] * 9, alpha, costs, lambda gamma: gamma, 4)
    assert [point.gamma for point in points] == list(range(GAMMA_MAX + 1))
    for point in points[1:]:
        g = point.gamma
        tokens = (1 - alpha ** (g + 1)) / (1 - alpha)
        assert point.speedup == pytest.approx((1 + costs.h0) * tokens / (g * costs.c + costs.v[g] + costs.h))


@pytest.mark.parametrize("seed", range(40))
def test_break_even_values_break_even_one_at_a_time(seed):
    dice = random.Random(seed)
    drafts, alpha, costs = random_case(dice)
    found = _break_even(drafts, alpha, costs)
    now = predict_shapes(drafts, alpha, costs)
    drafted = sum(1 for depth, _ in drafts if depth)
    if found["alpha"]:
        assert predict_shapes(drafts, found["alpha"], costs)["speedup"] == pytest.approx(1, abs=1e-6)
    if found["c"] is not None:
        changed = dataclasses.replace(costs, c=found["c"])
        assert predict_shapes(drafts, alpha, changed)["speedup"] == pytest.approx(1)
    if found["h"] is not None:
        changed = dataclasses.replace(costs, h=found["h"])
        assert predict_shapes(drafts, alpha, changed)["speedup"] == pytest.approx(1)
    if found["v"] is not None:
        # The mean over all steps moves when every pass behind a draft does.
        shift = (found["v"] - now["v"]) * len(drafts) / drafted
        changed = dataclasses.replace(costs, v=[costs.v[0], *(value + shift for value in costs.v[1:])])
        assert predict_shapes(drafts, alpha, changed)["speedup"] == pytest.approx(1)
        assert predict_shapes(drafts, alpha, changed)["v"] == pytest.approx(found["v"])


def explained(result, costs: Calibration, alpha: float, speedup: float) -> Why:
    """The race's first draft, had its costs and alpha been these."""
    plain, lane = result.lanes[:2]
    run = lane.runs[0]
    summary = dataclasses.replace(run.summary, alpha=alpha, predicted=predict(run.steps, alpha, costs))
    changed = dataclasses.replace(run, summary=summary, calibration=costs)
    return explain([changed], plain.runs, 0, speedup, lambda gamma: gamma)


FLAT = [1.0] * 17


@pytest.mark.parametrize(
    ("costs", "alpha", "blame"),
    [
        (Calibration(0.0, FLAT, 0.0, 0.0, 0.02), 0.5, None),
        (Calibration(0.9, FLAT, 0.0, 0.0, 0.02), 0.7, "c"),
        (Calibration(0.01, [1.0] + [2.6] * 16, 0.02, 0.0, 0.02), 0.7, "v"),
        (Calibration(0.01, FLAT, 1.8, 0.0, 0.02), 0.7, "h"),
        (Calibration(0.05, FLAT, 0.05, 0.0, 0.02), 0.02, "alpha"),
    ],
)
def test_blame_falls_on_the_number_that_is_off(result, costs, alpha, blame):
    why = explained(result, costs, alpha, 0.8 if blame else 1.6)
    assert why.blame == blame
    assert (why.predicted < 1) == bool(blame)
    if blame:
        (factor,) = (factor for factor in why.factors if factor.name == blame)
        assert 0 < factor.way <= 1
        letter = {"alpha": "α"}.get(blame, blame)
        assert f"To blame is {letter}" in why.sentence
        assert f"would have to be {factor.break_even:.2f}" in why.sentence


def test_it_says_when_no_number_alone_would_do(result):
    why = explained(result, Calibration(2.0, [1.0] + [4.0] * 16, 0.5, 0.0, 0.02), 0.1, 0.2)
    assert why.blame is None
    assert "none of the four" in why.sentence
    assert "no gamma pays" in why.sentence


def test_it_says_when_race_and_prediction_disagree(result):
    why = explained(result, Calibration(0.0, FLAT, 0.0, 0.0, 0.02), 0.9, 0.8)
    assert why.predicted > 1
    assert why.blame is None
    assert "They disagree" in why.sentence


def test_without_costs_nothing_is_predicted(result):
    plain, lane = result.lanes[:2]
    run = dataclasses.replace(lane.runs[0], summary=dataclasses.replace(lane.runs[0].summary, predicted=None))
    assert explain([run], plain.runs, 0, 1.0, lambda gamma: gamma) is None


def test_a_step_that_had_less_to_propose_stays_as_it_was():
    costs = Calibration(0.1, [1.0 + i / 10 for i in range(17)], 0.0, 0.0, 0.02)
    drafts = [(4, 4), (2, 2), (0, 0)]
    at = {point.gamma: point.speedup for point in curve(drafts, 0.5, costs, lambda gamma: gamma, 4)}
    assert at[8] == predict_shapes([(8, 8), (2, 2), (0, 0)], 0.5, costs)["speedup"]
    assert at[1] == predict_shapes([(1, 1), (1, 1), (0, 0)], 0.5, costs)["speedup"]
