"""The race itself: every lane alone on the device, warmed up, in an order in which all stand in every place.

Nothing is estimated: every rate is emitted ids over the seconds of that lane's own steps, prefill apart. Held by
tests/unit/test_race.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from specviz.engine.cache import ROOT
from specviz.engine.engine import Engine
from specviz.errors import SpecvizError
from specviz.lab.race.document import Race, RaceProgress
from specviz.lab.race.entrants import PLAIN, DraftSpec, Entrant, entrants, orders
from specviz.lab.race.judge import judge
from specviz.settings import TREES, Settings
from specviz.trace import Calibration, Run

#: Tokens each lane decodes before anything is timed: first passes allocate memory and start threads.
WARMUP_TOKENS = 16
#: Seconds between two reports of progress.
PROGRESS_S = 0.2


class RaceCancelled(SpecvizError):
    """The race was stopped before it was over; nothing of it is shown as a result."""

    def __init__(self) -> None:
        super().__init__("The race was stopped before it was over.")


def stream_race(
    engine: Engine,
    prompt: str | Sequence[int],
    *,
    drafts: Sequence[DraftSpec] = (Settings().draft,),
    rounds: int = 3,
    recalibrate: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
    **options: Any,
) -> Iterator[RaceProgress | Race]:
    """Race plain decoding against one to three drafts on one prompt.

    Args:
        drafts: draft types; one with settings of its own is written "ngram:gamma=8,candidates=3,adaptive", or as a
            mapping {"draft": "ngram", "gamma": 8}.
        rounds: how often each lane runs, 1 to 20.
        recalibrate: measure anew what steps cost, although it is known.
        cancelled: asked within every step.
        **options: as for `Engine.stream`, the same for all lanes.

    Yields:
        A `RaceProgress` a few times a second, at last the `Race`.

    Raises:
        SettingsError: bad settings, or nothing to race against.
        SpecvizError: a lane failed; the sentence names it.
        RaceCancelled: `cancelled` said so.
    """
    lanes = entrants(rounds, drafts, {name: value for name, value in options.items() if name not in ("trace", "top")})
    for lane in lanes:
        touch(engine, prompt, lane.settings)
    costs = yield from _costs(engine, lanes, rounds, recalibrate, cancelled)
    order = orders([lane.key for lane in lanes], rounds)
    runs: dict[str, list[Run]] = {lane.key: [] for lane in lanes}
    named = {lane.key: lane for lane in lanes}
    # Number 0 is the warm-up: nothing of it is kept.
    for number, keys in enumerate([list(named), *order]):
        for lane in (named[key] for key in keys):
            given = {**options, **lane.own, "cancelled": cancelled, "calibration": costs.get(lane.key)}
            run = yield from _decode(engine, prompt, lane, given, (number, rounds))
            if number:
                runs[lane.key].append(run)
    yield judge(engine, lanes, order, runs, WARMUP_TOKENS)


def _costs(
    engine: Engine, lanes: Sequence[Entrant], rounds: int, fresh: bool, cancelled: Callable[[], bool]
) -> Iterator[RaceProgress]:
    """What a step of each draft costs, measured before the rounds where it is not known yet; returns it by lane."""

    def at(_: float) -> None:
        if cancelled():
            raise RaceCancelled

    found: dict[str, Calibration] = {}
    drafting = [lane for lane in lanes if lane.settings.draft != PLAIN]
    for number, lane in enumerate(drafting):
        at(0.0)
        yield RaceProgress("costs", 0, rounds, lane.key, lane.settings.draft, lane.detail, number, len(drafting))
        with _of_lane(lane):
            found[lane.key] = engine.calibration(lane.settings, fresh=fresh, progress=at)
    return found


def _decode(
    engine: Engine, prompt: str | Sequence[int], lane: Entrant, given: dict[str, Any], place: tuple[int, int]
) -> Iterator[RaceProgress]:
    """One run of one lane; returns it."""
    number, rounds = place
    limit = lane.settings.max_new_tokens if number else min(WARMUP_TOKENS, lane.settings.max_new_tokens)
    stage, told = "round" if number else "warmup", -PROGRESS_S
    with _of_lane(lane):
        decoding = engine.stream(prompt, **given | {"max_new_tokens": limit})
        for _ in decoding:
            # The clock of a lane runs on while somebody looks at its progress: not after every step.
            if time.monotonic() - told > PROGRESS_S:
                done = len(decoding.run.output.token_ids)
                yield RaceProgress(stage, number, rounds, lane.key, lane.settings.draft, lane.detail, done, limit)
                told = time.monotonic()
    if decoding.run.output.finish_reason == "cancelled":
        raise RaceCancelled
    return decoding.run


@contextlib.contextmanager
def _of_lane(lane: Entrant) -> Iterator[None]:
    """What goes wrong inside says in which lane."""
    try:
        yield
    except RaceCancelled:
        raise
    except SpecvizError as error:
        raise type(error)(f"The race ended in the lane of {lane.name}: {error}") from error


def race(
    engine: Engine,
    prompt: str | Sequence[int],
    *,
    progress: Callable[[RaceProgress], None] = lambda _: None,
    **options: Any,
) -> Race:
    """The `Race`; `progress` is called a few times a second, all else as for `stream_race`."""
    for item in stream_race(engine, prompt, **options):
        if isinstance(item, Race):
            return item
        progress(item)
    raise AssertionError("a race that was not cancelled ends with its result")


def touch(engine: Engine, prompt: str | Sequence[int], settings: Settings) -> None:
    """One pass of every size that a lane will make, on a cache of full length: the prompt may give the draft nothing
    to propose in the warm-up, and first passes of a size are slow.

    Raises:
        SettingsError: the draft type cannot be used here, or the prompt cannot be read.
    """
    target = engine.target
    decoding = engine.stream(prompt, draft=PLAIN, chat=settings.chat, max_new_tokens=settings.max_new_tokens)
    rows = min(engine.drafter(settings.draft, settings).width(settings.gamma), target.max_positions - 1) + 1
    engine.claim(decoding.capacity + rows)
    with torch.inference_mode():
        cache = target.open(decoding.capacity + rows)
        cache.forward([0])
        cache.rollback(0)
        cache.forward([0] * rows, [ROOT] + [0] * (rows - 1) if settings.draft in TREES else None)
