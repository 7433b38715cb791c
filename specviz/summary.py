"""The figures of a run, computed from its steps and nowhere else.

Only tested tokens count: a draft token behind a rejection or behind the cut is in no rate. Intervals are drawn
from a private generator, so summing up changes no seed. Held by tests/unit/test_summary.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from specviz.trace import TESTED, Interval, PositionRate, Step, Summary

RESAMPLES = 1000
Z95 = 1.959964


def summarise(steps: Sequence[Step]) -> Summary:
    """Tokens per second is emitted tokens over the last `t_end`: prefill is apart."""
    tokens = sum(len(step.emitted) for step in steps)
    seconds = steps[-1].t_end if steps else 0.0
    overlaps = [
        token.overlap for step in steps for token in step.tokens if token.fate in TESTED and token.overlap is not None
    ]
    return Summary(
        tokens=tokens,
        steps=len(steps),
        tokens_per_step=tokens / len(steps) if steps else None,
        tokens_per_second=tokens / seconds if seconds > 0 else None,
        acceptance_rate=acceptance_rate(steps),
        alpha=sum(overlaps) / len(overlaps) if overlaps else None,
        by_position=by_position(steps),
    )


def acceptance_rate(steps: Sequence[Step]) -> Interval:
    """accepted / (accepted + rejected), with the percentile bootstrap over steps (Efron 1979): tests within a step
    depend on each other, steps much less. Where every resample is alike, the Wilson interval of the tests."""
    counts = np.array([_counts(step) for step in steps], dtype=np.int64).reshape(-1, 2)
    accepted, tested = counts.sum(0)
    if not tested:
        return Interval()
    rng = np.random.default_rng(0)
    draws = counts[rng.integers(0, len(counts), (RESAMPLES, len(counts)))].sum(1)
    rates = draws[draws[:, 1] > 0]
    low, high = np.quantile(rates[:, 0] / rates[:, 1], [0.025, 0.975])
    if low == high:  # all steps alike, one step above all: resampling them says nothing about chance
        low, high = wilson(int(accepted), int(tested))
    return Interval(float(accepted / tested), float(low), float(high))


def by_position(steps: Sequence[Step]) -> list[PositionRate]:
    """Acceptance at the 1st, 2nd, ... draft token of a step, among the steps that reached it."""
    deepest = max((step.gamma for step in steps), default=0)
    rows = []
    for k in range(deepest):
        proposed = [step.tokens[k] for step in steps if step.gamma > k and step.tokens[k].fate != "trimmed"]
        tested = [token for token in proposed if token.fate in TESTED]
        accepted = sum(token.fate == "accepted" for token in tested)
        low, high = wilson(accepted, len(tested))
        rows.append(
            PositionRate(
                position=k + 1,
                proposed=len(proposed),
                tested=len(tested),
                accepted=accepted,
                rate=accepted / len(tested) if tested else None,
                low=low,
                high=high,
                reach_rate=accepted / len(proposed) if proposed else None,
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


def _counts(step: Step) -> tuple[int, int]:
    tested = [token for token in step.tokens if token.fate in TESTED]
    return sum(token.fate == "accepted" for token in tested), len(tested)
