"""What a step costs on this machine, measured before a run and never during one.

Held by tests/unit/test_gamma.py (that it is measured once and stored in the run) and tests/unit/test_zoo_costs.py (that
it is kept between starts).
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specviz.drafters import hybrid_member
from specviz.engine.cache import ROOT
from specviz.settings import GAMMA_MAX, TREES, Settings
from specviz.trace import Calibration, Step

if TYPE_CHECKING:
    from specviz.engine.engine import Engine

#: Tokens of context that passes are timed behind, steps that drafts are timed over, and repeats of every pass.
CONTEXT, STEPS, REPEATS = 96, 8, 5
#: Rows of the passes that are timed; those between are interpolated.
ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 17, 24, 32, 48, 65)
GAMMA = 4
#: Roughly how much of the time the passes take.
PASSES_SHARE = 0.5


@cache
def code() -> str:
    """A fingerprint of the code whose costs are measured: what is kept from before a change of it is not believed."""
    return code_of(Path(__file__).resolve().parents[1])


def code_of(package: Path) -> str:
    """`code` of the engine and the drafters in a folder."""
    digest = hashlib.sha256()
    for part in ("engine", "drafters"):
        for file in sorted((package / part).glob("*.py")):
            digest.update(f"{part}/{file.name}".encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def calibrate(engine: Engine, settings: Settings, progress: Callable[[float], None] = lambda _: None) -> Calibration:
    """Measure c, v, h and h0 of a draft type (units in `Calibration`): passes of the target alone, then short runs.

    The text is a repeating one, so that n-gram drafts have something to propose; how much of it is accepted does not
    matter here.
    """
    target = engine.target
    most = min(engine.drafter(settings.draft, settings).width(GAMMA_MAX) + 1, ROWS[-1])
    context = min(CONTEXT, min(model.max_positions for model in engine.models) // 2)
    ids = [3 + i % 7 for i in range(context)] if target.vocab_size > 10 else [i % 2 for i in range(context)]
    v = _passes(engine, ids, most, settings.draft in TREES, lambda share: progress(PASSES_SHARE * share))
    unit = v[0]

    limit = {"max_new_tokens": STEPS * (GAMMA + 1), "gamma": GAMMA, "ignore_eos": True, "trace": False}
    # On a text that repeats, hybrid would copy in every step and its model seem free: what it costs is the model.
    draft = (settings.draft == "hybrid" and hybrid_member(engine.kit(settings))) or settings.draft
    options = {"draft": draft, "candidates": settings.candidates, "exit_layer": settings.exit_layer, **limit}
    drafting = _steps(engine, ids, options)
    progress((1 + PASSES_SHARE) / 2)
    plain = _steps(engine, ids, {"draft": "none", "max_new_tokens": STEPS, "ignore_eos": True, "trace": False})
    drafted = [step for step in drafting if step.gamma]
    cost = statistics.median(step.draft_s / GAMMA for step in drafted) if drafted else 0.0
    return Calibration(
        c=cost / unit,
        v=[value / unit for value in v],
        h=statistics.median(step.host_s for step in drafted or drafting) / unit,
        h0=statistics.median(step.host_s for step in plain) / unit,
        unit_s=unit,
    )


def _steps(engine: Engine, ids: Sequence[int], options: dict) -> list[Step]:
    """Steps of a short run behind a first one that warms up."""
    engine.generate(list(ids), **options)
    return engine.generate(list(ids), **options).steps[:STEPS]


@torch.inference_mode()
def _passes(
    engine: Engine, ids: Sequence[int], most: int, tree: bool, progress: Callable[[float], None]
) -> list[float]:
    """Seconds of a target pass of 1, 2, ... `most` rows behind `ids`; those of a tree run with a mask."""
    target = engine.target
    most = min(most, target.max_positions - len(ids))
    engine.claim(len(ids) + most)
    cache = target.open(len(ids) + most)
    cache.prefill(ids)
    sizes = sorted({*(rows for rows in ROWS if rows < most), most})
    times: dict[int, list[float]] = {rows: [] for rows in sizes}
    for repeat in range(REPEATS + 1):
        for rows in sizes:
            start = time.perf_counter()
            cache.forward([ids[0]] * rows, [ROOT] + [0] * (rows - 1) if tree and rows > 1 else None)
            if target.device.type == "cuda":
                torch.cuda.synchronize(target.device)
            if repeat:  # the first round warms up
                times[rows].append(time.perf_counter() - start)
            cache.rollback(len(ids))
        progress((repeat + 1) / (REPEATS + 1))
    median = {rows: statistics.median(values) for rows, values in times.items()}
    return [_between(median, rows) for rows in range(1, most + 1)]


def _between(known: dict[int, float], rows: int) -> float:
    if rows in known:
        return known[rows]
    low, high = max(r for r in known if r < rows), min(r for r in known if r > rows)
    return known[low] + (known[high] - known[low]) * (rows - low) / (high - low)
