"""The figures of a run, computed from its steps and nowhere else.

Only tested tokens count: a draft token behind a rejection or behind the cut is in no rate. Intervals are drawn
from a private generator, so summing up changes no seed. Held by tests/unit/test_summary.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specviz.trace import TESTED, Calibration, Interval, PositionRate, Step, Summary, Token

#: Resamples of the bootstrap, and the steps it needs: a handful resampled says too little about chance.
RESAMPLES, STEPS_ENOUGH = 1000, 5
Z95 = 1.959964
#: What one step drafted: (depth, nodes), in tokens.
Shape = tuple[int, int]


@dataclass(slots=True)
class Level:
    """The draft tokens of one step behind one kept token, as one trial: the tested ones, and whether one was kept."""

    depth: int
    tested: list[Token]

    @property
    def accepted(self) -> bool:
        return any(token.fate == "accepted" for token in self.tested)


def summarise(steps: Sequence[Step], calibration: Calibration | None = None) -> Summary:
    """Tokens per second is emitted tokens over the last `t_end`: prefill is apart."""
    tokens = sum(len(step.emitted) for step in steps)
    seconds = steps[-1].t_end if steps else 0.0
    per_step = [levels(step) for step in steps]
    firsts = [level.tested[0].overlap for found in per_step for level in found]
    overlaps = [share for share in firsts if share is not None]
    alpha = sum(overlaps) / len(overlaps) if overlaps else None
    rate = acceptance_rate(per_step)
    # A level of a tree is kept when any of its siblings is, which the overlap of the first one knows nothing of.
    kept = rate.value if any(step.gamma > drafted_depth(step) for step in steps) else alpha
    return Summary(
        tokens=tokens,
        steps=len(steps),
        tokens_per_step=tokens / len(steps) if steps else None,
        tokens_per_second=tokens / seconds if seconds > 0 else None,
        acceptance_rate=rate,
        alpha=alpha,
        by_position=by_position(steps, per_step),
        predicted=None if calibration is None or kept is None else predict(steps, kept, calibration),
    )


def levels(step: Step) -> list[Level]:
    """The tested levels of a step, from the root on."""
    found: dict[int, Level] = {}
    for token in step.tokens:
        if token.fate in TESTED:
            found.setdefault(token.parent, Level(depth(step, token), [])).tested.append(token)
    return sorted(found.values(), key=lambda level: level.depth)


def depth(step: Step, token: Token) -> int:
    """How many tokens of the step stand before this one on its own path."""
    count, at = 0, token.parent
    while at >= 0:
        count, at = count + 1, step.tokens[at].parent
    return count


def drafted_depth(step: Step) -> int:
    """How many tokens deep the step drafted."""
    return max((depth(step, token) + 1 for token in step.tokens[: step.gamma]), default=0)


def predict(steps: Sequence[Step], alpha: float, calibration: Calibration) -> dict[str, float]:
    """The speed-up that theory expects of these steps' drafts."""
    return predict_shapes(shapes(steps), alpha, calibration)


def shapes(steps: Sequence[Step]) -> list[Shape]:
    """What the steps drafted: how many tokens deep, and how many in all."""
    return [(drafted_depth(step), step.gamma) for step in steps]


def predict_shapes(drafts: Sequence[Shape], alpha: float, calibration: Calibration) -> dict[str, float]:
    """The speed-up that theory expects of steps that draft so: (1 + h0) tokens / modelled time, with the tokens of a
    step (1 - alpha^(gamma + 1)) / (1 - alpha) (Leviathan et al. 2023, Theorem 3.8, with measured v and h)."""
    tokens = time = verify = 0.0
    for depth, nodes in drafts:
        tokens += expected_tokens(alpha, depth)
        time += calibration.step(depth, nodes)
        verify += calibration.v[min(nodes, len(calibration.v) - 1)]
    return {
        "alpha": alpha,
        "c": calibration.c,
        "v": verify / len(drafts),
        "h": calibration.h,
        "h0": calibration.h0,
        "speedup": (1 + calibration.h0) * tokens / time,
    }


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens of a step when each of `gamma` draft tokens is accepted with `alpha` (Leviathan et al. 2023, Eq. 1)."""
    return float(gamma + 1) if alpha >= 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def acceptance_rate(per_step: Sequence[Sequence[Level]]) -> Interval:
    """accepted / (accepted + rejected), a level counting once, with the percentile bootstrap over steps (Efron 1979):
    tests within a step depend on each other, steps much less. With fewer than `STEPS_ENOUGH` steps, or where every
    resample is alike, the Wilson interval of the tests."""
    rows = [(sum(level.accepted for level in found), len(found)) for found in per_step]
    counts = np.array(rows, dtype=np.int64).reshape(-1, 2)
    accepted, tested = counts.sum(0)
    if not tested:
        return Interval()
    low, high = wilson(int(accepted), int(tested))
    if len(counts) >= STEPS_ENOUGH:
        rng = np.random.default_rng(0)
        draws = counts[rng.integers(0, len(counts), (RESAMPLES, len(counts)))].sum(1)
        rates = draws[draws[:, 1] > 0]
        edges = np.quantile(rates[:, 0] / rates[:, 1], [0.025, 0.975])
        if edges[0] < edges[1]:  # all steps alike: resampling them says nothing about chance
            low, high = edges
    return Interval(float(accepted / tested), float(low), float(high))


def by_position(steps: Sequence[Step], per_step: Sequence[Sequence[Level]]) -> list[PositionRate]:
    """Acceptance at the 1st, 2nd, ... level of a draft, among the steps that reached it."""
    # A level behind the cut was never proposed, as far as rates go.
    whole = [
        {depth(step, token) for token in step.tokens[: step.gamma]}
        - {depth(step, token) for token in step.tokens[: step.gamma] if token.fate == "trimmed"}
        for step in steps
    ]
    rows = []
    for k in range(max((drafted_depth(step) for step in steps), default=0)):
        proposed = sum(k in depths for depths in whole)
        tested = [level for found in per_step for level in found if level.depth == k]
        accepted = sum(level.accepted for level in tested)
        low, high = wilson(accepted, len(tested))
        rows.append(
            PositionRate(
                position=k + 1,
                proposed=proposed,
                tested=len(tested),
                accepted=accepted,
                rate=accepted / len(tested) if tested else None,
                low=low,
                high=high,
                reach_rate=accepted / proposed if proposed else None,
            )
        )
    return rows


def wilson(successes: int, trials: int) -> tuple[float | None, float | None]:
    """95 % score interval of a proportion (Wilson 1927): honest at 0 and 1, where the normal one has no width."""
    if not trials:
        return None, None
    rate, weight = successes / trials, Z95**2 / trials
    centre = (rate + weight / 2) / (1 + weight)
    half = math.sqrt(rate * (1 - rate) * weight + weight**2 / 4) / (1 + weight)
    return max(0.0, centre - half), min(1.0, centre + half)
