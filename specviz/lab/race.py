"""The race: plain decoding against a draft, each alone on the device, recorded so that it can be replayed on one clock.

Nothing is estimated: every rate is emitted ids over the seconds of that lane's own steps, prefill apart; the order
alternates from round to round and both lanes are warmed up first. Held by tests/unit/test_race.py.
"""

from __future__ import annotations

import dataclasses
import datetime
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specviz.engine.cache import ROOT
from specviz.engine.engine import Engine
from specviz.engine.sampling import Warp
from specviz.errors import SettingsError, SpecvizError
from specviz.settings import TITLES, TREES, Settings
from specviz.trace import Document, Run

SCHEMA = "specviz.race/1"
ROUNDS_MAX = 20
#: Tokens each lane decodes before anything is timed: first passes allocate memory and start threads.
WARMUP_TOKENS = 16
#: Seconds between two reports of progress.
PROGRESS_S = 0.2
#: Rounds and gap below which no winner is called.
ROUNDS_ENOUGH, DEAD_HEAT = 3, 0.02
PLAIN = "none"


class RaceCancelled(SpecvizError):
    """The race was stopped before it was over; nothing of it is shown as a result."""


@dataclass(slots=True)
class Spread:
    """Median over the rounds, with the lowest and the highest round."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(slots=True)
class Lane:
    """One contestant. `runs` has one `Run` per round; `shown` is the index of the round with the median speed-up,
    the same for all lanes."""

    name: str
    draft: str
    tokens_per_second: Spread
    prefill_s: Spread
    runs: list[Run]
    shown: int


@dataclass(slots=True)
class Divergence:
    """Where two outputs first differ: `index` counts output tokens from 0, `position` is absolute.

    `margin` is the gap between the target's two best logits there, after penalties and bias, when all of the context
    is read at once: a small one is a numerical tie. None stands for an output that ended.
    """

    index: int
    position: int
    ids: list[int | None]
    texts: list[str | None]
    margin: float
    precision: str


@dataclass(slots=True)
class Race(Document):
    """`lanes[0]` is plain decoding. `speedup` is taken round by round, so slow spells of the machine cancel.

    `same_output` is None above temperature 0, where equal laws still give different texts.
    """

    created_at: str
    rounds: int
    warmup_tokens: int
    order: list[list[str]]
    settings: dict[str, Any]
    lanes: list[Lane]
    speedup: Spread
    same_output: bool | None
    first_divergence: Divergence | None
    verdict: str
    schema: str = SCHEMA

    def shown_only(self) -> Race:
        """The same race with just the shown run of each lane: what a replay needs."""
        lanes = [dataclasses.replace(lane, runs=[lane.runs[lane.shown]], shown=0) for lane in self.lanes]
        return dataclasses.replace(self, lanes=lanes)


@dataclass(frozen=True, slots=True)
class RaceProgress:
    """Where a race stands: `round` counts from 1 (0 while warming up), `tokens` of `of` emitted in the current run."""

    round: int
    rounds: int
    lane: str
    warmup: bool
    tokens: int
    of: int


def stream_race(
    engine: Engine,
    prompt: str | Sequence[int],
    *,
    rounds: int = 3,
    cancelled: Callable[[], bool] = lambda: False,
    **options: Any,
) -> Iterator[RaceProgress | Race]:
    """Race plain decoding against `options["draft"]` on one prompt.

    Args:
        rounds: how often each lane runs, 1 to 20.
        cancelled: asked within every step.
        **options: as for `Engine.stream`.

    Yields:
        A `RaceProgress` a few times a second, at last the `Race`.

    Raises:
        SettingsError: bad settings, or nothing to race against.
        RaceCancelled: `cancelled` said so.
    """
    settings = check(rounds, {name: value for name, value in options.items() if name not in ("trace", "top")})
    _touch(engine, prompt, settings)
    contestants = [PLAIN, settings.draft]
    order = [contestants if number % 2 == 0 else contestants[::-1] for number in range(rounds)]
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    told = -PROGRESS_S
    # Number 0 is the warm-up: nothing of it is kept.
    for number, names in enumerate([contestants, *order]):
        limit = settings.max_new_tokens if number else min(WARMUP_TOKENS, settings.max_new_tokens)
        for name in names:
            given = {**options, "draft": name, "max_new_tokens": limit, "cancelled": cancelled}
            decoding = engine.stream(prompt, **given)
            for _ in decoding:
                # The clock of a lane runs on while somebody looks at its progress: not after every step.
                if time.monotonic() - told > PROGRESS_S:
                    yield RaceProgress(number, rounds, name, number == 0, len(decoding.run.output.token_ids), limit)
                    told = time.monotonic()
            if decoding.run.output.finish_reason == "cancelled":
                raise RaceCancelled("The race was stopped before it was over.")
            if number:
                runs[name].append(decoding.run)
    yield _judge(engine, settings, order, [runs[name] for name in contestants])


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


def check(rounds: Any, options: dict[str, Any]) -> Settings:
    """The settings of a race that can be run.

    Raises:
        SettingsError: bad settings, or nothing to race against.
    """
    if not isinstance(rounds, int) or isinstance(rounds, bool) or not 1 <= rounds <= ROUNDS_MAX:
        raise SettingsError(f"rounds must be a whole number from 1 to {ROUNDS_MAX}, not {rounds!r}.")
    settings = Settings.of(**options)
    if settings.draft == PLAIN:
        raise SettingsError("A race needs a draft: 'none' is plain decoding, which runs in the other lane anyway.")
    return settings


def _touch(engine: Engine, prompt: str | Sequence[int], settings: Settings) -> None:
    """One pass of every size that a lane will make, on a cache of full length: the prompt may give the draft nothing
    to propose in the warm-up, and first passes of a size are slow."""
    target = engine.target
    decoding = engine.stream(prompt, draft=PLAIN, chat=settings.chat, max_new_tokens=settings.max_new_tokens)
    rows = min(engine.drafter(settings.draft, settings).width(settings.gamma), target.max_positions - 1) + 1
    engine.claim(decoding.capacity + rows)
    with torch.inference_mode():
        cache = target.open(decoding.capacity + rows)
        cache.forward([0])
        cache.rollback(0)
        cache.forward([0] * rows, [ROOT] + [0] * (rows - 1) if settings.draft in TREES else None)


def _lane(name: str, runs: list[Run], shown: int) -> Lane:
    rates = [run.summary.tokens_per_second for run in runs]
    prefill = [run.prefill.target_s + run.prefill.draft_s for run in runs]
    return Lane(TITLES[name], name, Spread.of(rates), Spread.of(prefill), runs, shown)


def _judge(engine: Engine, settings: Settings, order: list[list[str]], runs: list[list[Run]]) -> Race:
    rounds = list(zip(*runs, strict=True))
    ratios = [draft.summary.tokens_per_second / plain.summary.tokens_per_second for plain, draft in rounds]
    speedup, shown = Spread.of(ratios), ratios.index(statistics.median_low(ratios))
    lanes = [_lane(name, lane, shown) for name, lane in zip([PLAIN, settings.draft], runs, strict=True)]
    greedy = settings.temperature == 0 or settings.top_k == 1
    differences = (first_divergence(engine, settings, plain, draft) for plain, draft in rounds) if greedy else ()
    difference = next((found for found in differences if found is not None), None)
    same = difference is None if greedy else None
    return Race(
        created_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        rounds=len(order),
        warmup_tokens=WARMUP_TOKENS,
        order=order,
        settings=lanes[1].runs[0].settings,
        lanes=lanes,
        speedup=speedup,
        same_output=same,
        first_divergence=difference,
        verdict=verdict(lanes, speedup, same, difference, settings.ignore_eos),
    )


def verdict(
    lanes: Sequence[Lane],
    speedup: Spread,
    same_output: bool | None,
    difference: Divergence | None,
    ignore_eos: bool,
) -> str:
    """The result in words, also when speculation loses, and which of its two factors decided."""
    plain, draft = (lane.runs[lane.shown] for lane in lanes)
    rounds, name = len(lanes[0].runs), lanes[1].name
    speed = f"{speedup.median:.2f} times the speed of plain decoding"
    span = f"{speedup.low:.2f} to {speedup.high:.2f} over {rounds} rounds"
    if rounds < ROUNDS_ENOUGH:
        what = "In this one round" if rounds == 1 else f"In these {rounds} rounds"
        opening = f"{what} {name} ran at {speed}; that is too few to call a winner."
    elif speedup.low > 1 + DEAD_HEAT:
        opening = f"Speculation wins: {name} runs at {speed} ({span})."
    elif speedup.high < 1 - DEAD_HEAT:
        opening = f"Speculation loses: {name} runs at {speed} ({span})."
    else:
        opening = f"Too close to call: {name} runs at {speed} ({span})."
    cost = _seconds_per_step(draft) / _seconds_per_step(plain)
    gain = draft.summary.tokens_per_step
    sentences = [opening, f"A step gives {gain:.2f} tokens and takes {cost:.2f} times as long as a plain one."]
    if same_output:
        sentences.append("Both wrote the same text.")
    if difference is not None:
        sentences.append(_explain(difference))
    if ignore_eos:
        sentences.append("The end of the answer was ignored, to force equal lengths.")
    return " ".join(sentences)


def _explain(difference: Divergence) -> str:
    """Where the texts part and why that is no fault of speculation, when it is not."""
    texts = " against ".join("the end" if text is None else repr(text) for text in difference.texts)
    where = (
        f"The texts part at token {difference.index + 1} ({texts}), where the target's two best logits are "
        f"{difference.margin:.3f} apart in {difference.precision}"
    )
    if difference.precision == "float32":
        return f"{where}."
    reason = "a pass over several tokens rounds differently from one over a single token"
    return f"{where}: {reason}. In float32 the ids agree."


def _seconds_per_step(run: Run) -> float:
    return sum(step.t_end - step.t_start for step in run.steps) / len(run.steps)


def first_divergence(engine: Engine, settings: Settings, a: Run, b: Run) -> Divergence | None:
    """Where the outputs of two runs on one prompt part, None when they are equal."""
    first, second = a.output.token_ids, b.output.token_ids
    if first == second:
        return None
    index = next(
        (i for i, (x, y) in enumerate(zip(first, second, strict=False)) if x != y), min(len(first), len(second))
    )
    ids = [run[index] if index < len(run) else None for run in (first, second)]
    context = [*a.prompt.token_ids, *first[:index]]
    return Divergence(
        index=index,
        position=len(context),
        ids=ids,
        texts=[None if token is None else engine.text([token]) for token in ids],
        margin=top2_margin(engine, settings, len(a.prompt.token_ids), context),
        precision=a.device.dtype,
    )


@torch.inference_mode()
def top2_margin(engine: Engine, settings: Settings, prompt_length: int, context: Sequence[int]) -> float:
    """Gap between the two best logits that decide the token behind `context`."""
    target = engine.target
    engine.claim(len(context))
    cache = target.open(len(context))
    cache.prefill(context[:-1])
    best = Warp(settings, prompt_length).adjust(cache.forward(context[-1:]), context, [()])[0].topk(2).values
    return float(best[0] - best[1])
