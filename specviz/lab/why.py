"""Why a draft won or lost: the four numbers that decide, the speed-up they predict over gamma, and which is to blame.

Every prediction is `specviz.summary.predict_shapes`, the one behind `Summary.predicted`; nothing is computed another
way here. Held by tests/unit/test_why.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specviz.settings import GAMMA_MAX
from specviz.summary import Shape, drafted_depth, expected_tokens, predict_shapes, shapes
from specviz.trace import Calibration, Run

#: Halvings of the interval in which the break-even alpha is sought.
HALVINGS = 60
LETTERS = {"alpha": "α", "c": "c", "v": "v", "h": "h"}
MEANINGS = {
    "alpha": "the chance that a draft token is accepted",
    "c": "the cost of drafting one token",
    "v": "the cost of verifying a draft",
    "h": "the time spent around the passes",
}


@dataclass(slots=True)
class Factor:
    """One of the four numbers: `alpha` is a chance, `c`, `v` and `h` are in 1-row target passes.

    `value` is what the prediction is made from, `raced` the same as the rounds themselves had it (for alpha: the
    acceptance rate). `break_even` is what it would have to be for a predicted speed-up of 1, the others as they are;
    None where no value would do. `way` is how far it would have to go for that, as a share of the way to its ideal
    (alpha 1, c 0, v 1, h 0); None where it need not go or cannot get there.
    """

    name: str
    value: float
    raced: float | None
    break_even: float | None
    way: float | None


@dataclass(slots=True)
class Point:
    gamma: int
    speedup: float


@dataclass(slots=True)
class Why:
    """`predicted` is the speed-up that the shown run's `Summary.predicted` has; `gamma` is where it stands on `curve`,
    the predictions for other gammas; `best` is the gamma of its top. `blame` names a factor when speculation lost."""

    factors: list[Factor]
    h0: float
    h0_raced: float
    gamma: float
    predicted: float
    curve: list[Point]
    best: int
    blame: str | None
    sentence: str


def explain(
    runs: Sequence[Run], plain: Sequence[Run], shown: int, speedup: float, width: Callable[[int], int]
) -> Why | None:
    """Why a draft's lane ran at `speedup` times plain decoding.

    Args:
        runs, plain: the rounds of the draft's lane and of plain decoding; those of the draft carry their calibration.
        shown: the round whose prediction is explained.
        width: most nodes of a draft by its depth.

    Returns:
        None where nothing was calibrated, or nothing that was drafted got tested.
    """
    run = runs[shown]
    predicted, costs = run.summary.predicted, run.calibration
    if predicted is None or costs is None:
        return None
    drafts, alpha = shapes(run.steps), predicted["alpha"]
    raced = _raced(runs, plain)
    found = _break_even(drafts, alpha, costs)
    factors = [
        Factor(name, predicted[name], raced[name], found[name], _way(name, predicted[name], found[name]))
        for name in LETTERS
    ]
    adaptive = run.settings["adaptive"]
    points = curve(drafts, alpha, costs, width, None if adaptive else run.settings["gamma"])
    reachable = [factor for factor in factors if factor.way is not None]
    lost = speedup < 1 and predicted["speedup"] < 1
    why = Why(
        factors=factors,
        h0=costs.h0,
        h0_raced=raced["h0"],
        gamma=sum(depth for depth, _ in drafts) / len(drafts) if adaptive else run.settings["gamma"],
        predicted=predicted["speedup"],
        curve=points,
        best=max(points, key=lambda point: point.speedup).gamma,
        blame=min(reachable, key=lambda factor: factor.way).name if lost and reachable else None,
        sentence="",
    )
    why.sentence = sentence(why, speedup, run.settings)
    return why


def curve(
    drafts: Sequence[Shape],
    alpha: float,
    costs: Calibration,
    width: Callable[[int], int],
    asked: int | None,
) -> list[Point]:
    """The predicted speed-up for gamma 0, 1, ... as far as passes of that size were timed.

    Args:
        drafts: what the steps drafted when they were asked for `asked` tokens; None: gamma was chosen step by step, and
            the curve is that of fixed ones.
    """
    points = [Point(0, predict_shapes([(0, 0)], alpha, costs)["speedup"])]
    for gamma in range(1, GAMMA_MAX + 1):
        if width(gamma) + 1 > len(costs.v):
            break
        wanted = [_reshaped(shape, gamma, asked, width) for shape in drafts]
        points.append(Point(gamma, predict_shapes(wanted, alpha, costs)["speedup"]))
    return points


def _reshaped(shape: Shape, gamma: int, asked: int | None, width: Callable[[int], int]) -> Shape:
    """What this step would have drafted at `gamma`: one that had less to propose than it was asked for has no more."""
    depth, nodes = shape
    if asked is None:
        return gamma, width(gamma)
    wanted = gamma if depth >= asked else min(depth, gamma)
    if wanted == depth:
        return shape
    return wanted, max(wanted, round(nodes * width(wanted) / width(depth)))


def _break_even(drafts: Sequence[Shape], alpha: float, costs: Calibration) -> dict[str, float | None]:
    """What each number would have to be for a predicted speed-up of 1, one at a time; `v` is the mean over steps, as
    in `Summary.predicted`."""
    tokens = sum(expected_tokens(alpha, depth) for depth, _ in drafts)
    # Seconds a step must shed (below 0) or may add, in 1-row passes, over all steps together.
    room = (1 + costs.h0) * tokens - sum(costs.step(*shape) for shape in drafts)
    drafted = sum(1 for depth, _ in drafts if depth)
    if not drafted:
        return dict.fromkeys(LETTERS)
    now = predict_shapes(drafts, alpha, costs)
    wanted = {
        "c": costs.c + room / sum(depth for depth, _ in drafts),
        "v": now["v"] + room / len(drafts),
        "h": costs.h + room / drafted,
    }
    floor = {"c": 0.0, "v": 1.0, "h": 0.0}
    costs_wanted = {name: value if value >= floor[name] else None for name, value in wanted.items()}
    return {"alpha": _break_even_alpha(drafts, costs), **costs_wanted}


def _break_even_alpha(drafts: Sequence[Shape], costs: Calibration) -> float | None:
    low, high = 0.0, 1.0
    if predict_shapes(drafts, high, costs)["speedup"] < 1:
        return None
    if predict_shapes(drafts, low, costs)["speedup"] >= 1:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if predict_shapes(drafts, middle, costs)["speedup"] < 1:
            low = middle
        else:
            high = middle
    return high


def _way(name: str, value: float, wanted: float | None) -> float | None:
    ideal = {"alpha": 1.0, "c": 0.0, "v": 1.0, "h": 0.0}[name]
    if wanted is None or value == ideal:
        return None
    share = (wanted - value) / (ideal - value)
    return share if share > 0 else None


def _raced(runs: Sequence[Run], plain: Sequence[Run]) -> dict[str, float | None]:
    """The same numbers as the rounds had them, in mean 1-row passes of plain decoding."""
    alone = [step for run in plain for step in run.steps]
    steps = [step for run in runs for step in run.steps]
    unit = sum(step.verify_s for step in alone) / len(alone)
    depth = sum(drafted_depth(step) for step in steps)
    drafted = [step for step in steps if step.gamma]
    rates = [run.summary.acceptance_rate.value for run in runs]
    known = [rate for rate in rates if rate is not None]
    return {
        "alpha": sum(known) / len(known) if known else None,
        "c": sum(step.draft_s for step in steps) / unit / depth if depth else None,
        "v": sum(step.verify_s for step in steps) / unit / len(steps),
        "h": sum(step.host_s for step in drafted) / unit / len(drafted) if drafted else None,
        "h0": sum(step.host_s for step in alone) / unit / len(alone),
    }


def sentence(why: Why, speedup: float, settings: dict) -> str:
    """The explanation in words: prediction beside measurement, who is to blame, and what gamma would be best."""
    said = [
        f"These numbers predict {why.predicted:.2f} times the speed of plain decoding; the race measured {speedup:.2f}."
    ]
    if speedup < 1 and why.predicted < 1:
        said.append(_blame(why))
    elif (speedup < 1) != (why.predicted < 1):
        said.append(_off(why, speedup))
    if settings["verify"] == "block":
        said.append("The prediction goes by α alone and rule block keeps more, so it errs on the low side.")
    top = max(point.speedup for point in why.curve)
    if not why.best:
        said.append("By these numbers no gamma pays: plain decoding is best.")
    elif why.best == why.gamma:
        said.append(f"Gamma {why.best} is the best by these numbers.")
    else:
        said.append(f"Best by these numbers is gamma {why.best}, with {top:.2f} times.")
    return " ".join(said)


def _blame(why: Why) -> str:
    if why.blame is None:
        return "No single number is to blame: none of the four could break even alone, however good it were."
    factor = next(factor for factor in why.factors if factor.name == why.blame)
    return (
        f"To blame is {LETTERS[factor.name]}, {MEANINGS[factor.name]}: it is {factor.value:.2f} and would have to be "
        f"{factor.break_even:.2f} to break even."
    )


def _off(why: Why, speedup: float) -> str:
    """Prediction and race disagree about who wins: the cost that differed most in the wrong direction."""
    sign = 1 if speedup < 1 else -1
    weights = {"c": why.gamma, "v": 1.0, "h": 1.0}
    apart = {
        factor.name: sign * (factor.raced - factor.value) * weights[factor.name]
        for factor in why.factors
        if factor.name in weights and factor.raced is not None
    }
    name = max(apart, key=apart.__getitem__)
    factor = next(factor for factor in why.factors if factor.name == name)
    if apart[name] <= 0:
        return "They disagree, and no cost explains it: tokens came in other places than a mean α says."
    return (
        f"They disagree: in the race {LETTERS[name]}, {MEANINGS[name]}, was {factor.raced:.2f}; "
        f"measured beforehand it was {factor.value:.2f}."
    )
