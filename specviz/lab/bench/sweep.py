"""A small benchmark of one engine's drafts, for the page: no peers, no file, stopped in mid-way it keeps what is whole.

Held by tests/unit/test_bench_sweep.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from specviz.engine.engine import Engine
from specviz.errors import SettingsError
from specviz.lab.bench.document import Bench
from specviz.lab.bench.plan import Plan
from specviz.lab.bench.runner import BenchCancelled, BenchProgress, Job, stream_bench
from specviz.lab.prompts import Prompt, first_of_each, read_prompts
from specviz.settings import Settings

#: Lane runs of a sweep: a page is not the place for hours.
RUNS_MAX = 400


def stream_sweep(
    engine: Engine,
    prompt: str,
    *,
    own_set: bool = False,
    drafts: Sequence[str] = (Settings().draft,),
    gammas: Sequence[int] = (3,),
    temperatures: Sequence[float] = (0.0,),
    candidates: Sequence[int] = (2,),
    max_new_tokens: int = 64,
    ignore_eos: bool = False,
    seed: int = 0,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[BenchProgress | Bench]:
    """Every combination on `prompt`, or with `own_set` on one prompt of each category of the project's own.

    Yields:
        Progress, and at the end the `Bench`; of one that was cancelled, the prompts that were done, if any were.

    Raises:
        SettingsError: bad settings, or more than `RUNS_MAX` runs.
        BenchCancelled: it was stopped before its first prompt was done.
    """
    prompts = first_of_each(read_prompts(), 1) if own_set else [Prompt("prompt", "your prompt", prompt)]
    plan = Plan(list(drafts), list(gammas), list(temperatures), list(candidates))
    dtype = engine.device.dtype
    runs = len(prompts) * len(plan.lanes([dtype], dtype))
    if runs > RUNS_MAX:
        raise SettingsError(
            f"This would be {runs} runs, and {RUNS_MAX} are the most: choose fewer values or one prompt."
        )
    if not drafts:
        raise SettingsError("Choose a draft type to measure.")
    settings = {"max_new_tokens": max_new_tokens, "seed": seed, "ignore_eos": ignore_eos}
    # Texts are read by the same engine: another precision may not be in memory.
    job = Job(plan, prompts, [dtype], lambda _: engine, settings, reference=dtype, cancelled=cancelled)
    last = None
    try:
        for item in stream_bench(job):
            if isinstance(item, Bench):
                last = shown(item)
            else:
                yield item
    except BenchCancelled:
        if last is None:
            raise
    yield last


def shown(bench: Bench) -> Bench:
    """A copy that stays as it is, without the single results: what a report shows."""
    lanes = [dataclasses.replace(lane) for lane in bench.lanes]
    return dataclasses.replace(bench, lanes=lanes, results=[], readings=[])
