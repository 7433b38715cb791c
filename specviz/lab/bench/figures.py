"""Every figure of a benchmark, computed from its results and nowhere else.

Speeds are compared prompt by prompt, so a slow spell of the machine hits both sides, and ratios are averaged
geometrically, so that a against b is one over b against a. Intervals are drawn from a generator of their own, seeded by
the benchmark's seed. Held by tests/unit/test_bench_figures.py.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from specviz.lab.bench.document import (
    Bench,
    BenchSummary,
    Comparison,
    Figures,
    Lane,
    LaneSummary,
    Model,
    Quality,
    Ratio,
    Reading,
    Result,
    Worst,
)
from specviz.summary import wilson
from specviz.trace import Interval

#: Resamples of the bootstrap over prompts (Efron 1979).
RESAMPLES = 2000
#: A gap below which nothing is called slower.
DEAD_HEAT = 0.02


def summarise(bench: Bench) -> BenchSummary:
    """The figures of what has run so far; lanes that failed get none."""
    ledger = Ledger(bench)
    lanes = [ledger.lane(lane) for lane in bench.lanes if ledger.results(lane.name)]
    quality = [_quality(dtype, rows) for dtype, rows in _by(bench.readings, lambda row: row.dtype).items()]
    return BenchSummary(lanes, quality, sentences(bench, lanes))


class Ledger:
    """The results of a benchmark, by lane and prompt; what a failed lane left behind is not in it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._seed = int(bench.settings.get("seed", 0))
        self._category = {prompt.id: prompt.category for prompt in bench.prompts}
        sound = {lane.name for lane in bench.lanes if lane.status == "planned"}
        self._results = _by((row for row in bench.results if row.lane in sound), lambda row: row.lane)

    def results(self, name: str) -> list[Result]:
        return self._results.get(name, [])

    def rates(self, name: str) -> dict[str, float]:
        """Tokens per second on each prompt: the median over its rounds."""
        rows = _by((row for row in self.results(name) if row.rate is not None), lambda row: row.prompt)
        return {prompt: statistics.median(row.rate for row in found) for prompt, found in rows.items()}

    def ratio(self, name: str, against: str, category: str = "") -> Ratio | None:
        """How many times as fast `name` is as `against`; None without a prompt that both were timed on."""
        ours, theirs = self.rates(name), self.rates(against)
        common = [prompt for prompt in ours if prompt in theirs and category in ("", self._category[prompt])]
        return ratio([ours[prompt] / theirs[prompt] for prompt in common], self._seed)

    def baseline(self, lane: Lane) -> str | None:
        """The plain lane of the same precision and temperature."""
        for other in self._bench.lanes:
            if other.kind == "plain" and (other.dtype, other.temperature) == (lane.dtype, lane.temperature):
                return other.name
        return None

    def lane(self, lane: Lane) -> LaneSummary:
        base = self.baseline(lane)
        rows = self.results(lane.name)
        categories = [
            self._figures(lane, base, name, found)
            for name, found in _by(rows, lambda row: self._category[row.prompt]).items()
        ]
        overall = self._figures(lane, base, "", rows)
        measured = {row.category: row.speedup.mean for row in categories if row.speedup}
        worst = min(measured, key=measured.get) if measured else None
        others = [one.name for one in self._bench.lanes if one.kind != "draft" and one.name != lane.name]
        ratios = [(name, self.ratio(lane.name, name)) for name in others]
        return LaneSummary(
            lane=lane.name,
            overall=overall,
            categories=categories,
            categories_mean=_geometric(list(measured.values())) if measured else None,
            worst=Worst(worst, measured[worst]) if worst is not None else None,
            model=_model(lane, rows, overall.speedup),
            same_text=self._same_text(lane, base),
            comparisons=[Comparison(name, found) for name, found in ratios if found],
        )

    def _figures(self, lane: Lane, base: str | None, category: str, rows: Sequence[Result]) -> Figures:
        timed = [row for row in rows if row.rate is not None]
        stepped = [row for row in rows if row.steps]
        tested = sum(row.tested or 0 for row in rows)
        read = [row for row in rows if row.nll is not None]
        return Figures(
            category=category,
            prompts=len({row.prompt for row in rows}),
            tokens=sum(row.tokens for row in rows),
            tokens_per_second=sum(row.timed for row in timed) / sum(row.seconds for row in timed) if timed else None,
            tokens_per_pass=sum(row.tokens for row in stepped) / sum(row.steps for row in stepped) if stepped else None,
            acceptance=sum(row.accepted or 0 for row in rows) / tested if tested else None,
            prefill_s=statistics.fmean(row.prefill_s for row in rows),
            speedup=self.ratio(lane.name, base, category) if base and base != lane.name else None,
            perplexity=_perplexity(read),
        )

    def _same_text(self, lane: Lane, base: str | None) -> float | None:
        """Greedy texts should be the plain lane's; above temperature 0 equal laws give different texts."""
        if base in (None, lane.name) or lane.temperature > 0:
            return None
        plain = {row.prompt: row.ids for row in self.results(base)}
        rows = [row for row in self.results(lane.name) if row.prompt in plain]
        return sum(row.ids == plain[row.prompt] for row in rows) / len(rows) if rows else None


def ratio(ratios: Sequence[float], seed: int) -> Ratio | None:
    """The mean of ratios with its interval."""
    if not ratios:
        return None
    logs = np.log(np.asarray(ratios, float))
    if len(logs) < 2:
        return Ratio(float(np.exp(logs.mean())), None, None, None, len(logs))
    rng = np.random.default_rng(seed)
    means = logs[rng.integers(len(logs), size=(RESAMPLES, len(logs)))].mean(1)
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    return Ratio(float(np.exp(logs.mean())), statistics.stdev(ratios), float(low), float(high), len(logs))


def _geometric(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def _perplexity(rows: Sequence[Result | Reading]) -> float | None:
    tokens = sum(row.tokens for row in rows)
    return math.exp(sum(row.nll for row in rows) / tokens) if tokens else None


def _model(lane: Lane, rows: Sequence[Result], speedup: Ratio | None) -> Model | None:
    """The lane's predictions, which its runs carry, side by side with what was measured."""
    predicted = [row for row in rows if row.predicted]
    costs = lane.calibration
    if costs is None or not predicted:
        return None
    tested = sum(row.tested for row in predicted)
    return Model(
        alpha=sum(row.predicted["alpha"] * row.tested for row in predicted) / tested,
        c=costs.c,
        v=statistics.fmean(row.predicted["v"] for row in predicted),
        h=costs.h,
        h0=costs.h0,
        speedup=_geometric([row.predicted["speedup"] for row in predicted]),
        from_tokens=_geometric([row.predicted["from_tokens"] for row in predicted]),
        measured=speedup.mean if speedup else None,
    )


def _quality(dtype: str, rows: Sequence[Reading]) -> Quality:
    tokens, agreeing = sum(row.tokens for row in rows), sum(row.agreeing for row in rows)
    low, high = wilson(agreeing, tokens)
    return Quality(dtype, tokens, Interval(agreeing / tokens if tokens else None, low, high), _perplexity(rows) or 1.0)


def sentences(bench: Bench, lanes: Sequence[LaneSummary]) -> list[str]:
    """What won and what lost, in plain words."""
    said = [_fastest(bench, lanes), _best(bench, lanes), *_losers(bench, lanes), *_against_peers(bench, lanes)]
    said += [
        f"{lane.name} {'is missing' if lane.status == 'missing' else 'has no result'}: {lane.message}"
        for lane in bench.lanes
        if lane.status != "planned"
    ]
    if bench.settings.get("ignore_eos"):
        said.append("The end of the answer was ignored, to force equal lengths.")
    return [sentence for sentence in said if sentence]


def _fastest(bench: Bench, lanes: Sequence[LaneSummary]) -> str | None:
    ours = [row for row in lanes if bench.lane(row.lane).kind != "peer" and row.overall.tokens_per_second]
    if len(ours) < 2:
        return None
    best = max(ours, key=lambda row: row.overall.tokens_per_second)
    return f"{best.lane} is the fastest of ours: {best.overall.tokens_per_second:.1f} tokens per second."


def _best(bench: Bench, lanes: Sequence[LaneSummary]) -> str | None:
    drafts = [row for row in lanes if bench.lane(row.lane).kind == "draft" and row.overall.speedup]
    if not drafts:
        return None
    best = max(drafts, key=lambda row: row.overall.speedup.mean)
    found = times(best.overall.speedup)
    if best.overall.speedup.mean <= 1:
        return f"No draft was faster than plain decoding; the best, {best.lane}, ran at {found} its speed."
    words = f"{best.lane} has the highest speed-up over its plain lane: {found}"
    if best.worst is not None and len(best.categories) > 1:
        words += f"; its worst category is {best.worst.category} ({best.worst.speedup:.2f})"
    return f"{words}."


def _losers(bench: Bench, lanes: Sequence[LaneSummary]) -> Iterable[str]:
    lost = [
        f"{row.lane} ({row.overall.speedup.mean:.2f})"
        for row in lanes
        if bench.lane(row.lane).kind == "draft" and row.overall.speedup and row.overall.speedup.mean < 1 - DEAD_HEAT
    ]
    if lost:
        yield f"Slower than plain decoding: {', '.join(lost)}."


def _against_peers(bench: Bench, lanes: Sequence[LaneSummary]) -> Iterable[str]:
    """Each peer against the fastest of ours, whatever its precision: both are named."""
    ours = [row for row in lanes if bench.lane(row.lane).kind != "peer"]
    for peer in (lane for lane in bench.lanes if lane.kind == "peer"):
        found = [(one, row.lane) for row in ours for one in row.comparisons if one.against == peer.name]
        if found:
            one, name = max(found, key=lambda pair: pair[0].ratio.mean)
            verb = "is" if one.ratio.mean >= 1 else "is only"
            yield f"{name}, the fastest of ours against {peer.name}, {verb} {times(one.ratio)} as fast."


def times(found: Ratio) -> str:
    """A ratio in words, such as '1.42 times (1.31 to 1.55)'."""
    span = "" if found.low is None else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.mean:.2f} times{span}"


def _by(rows: Iterable, key: Callable) -> dict:
    groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(groups)
