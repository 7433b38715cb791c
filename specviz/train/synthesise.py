"""The target writes its own chats: a user's turn behind the template's opening, then the answer, many side by side.
Users' turns that set a task about a text can be had as well (`specviz.train.tasks`).

What the target itself would say is what a draft has to foresee, so no outside text is needed. Batching is continuous
(Yu et al. 2022, Orca, §3): a chat that ends leaves its place, and the opening's keys and values, to the next one, so
every pass is full. Each attempt has random numbers of its own and the file keeps attempts in their order, so a job that
was interrupted ends up with the same chats. Held by tests/unit/test_train.py.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from specviz.engine.cache import KVCache, Pass
from specviz.engine.engine import Engine
from specviz.errors import SettingsError
from specviz.train.chats import Chats
from specviz.train.tasks import Tasks

#: Temperatures of the answers, in turn; user turns are drawn at 1. Tokens below this part of the best are left out.
TEMPERATURES, MIN_P = (0.2, 0.6, 1.0), 0.003
#: Most tokens of a user's turn; longer ones, and shorter than the least, are not answered.
TURN_MOST, TURN_LEAST = 70, 4
#: Most tokens of a turn that sets a task about a passage; the rest is cut off.
TASK_MOST = 400
#: Least tokens of an answer that is kept.
ANSWER_LEAST = 8
#: Seconds between two times the file is written, and attempts in a row that may come to nothing.
EVERY, IDLE_MOST = 30.0, 2000
_MARK = "specviz user turn"


@dataclass(frozen=True, slots=True)
class Template:
    """Ids in front of a user's turn, and those between its end and the answer; without a chat template there is no
    user's turn, and text begins behind the end-of-text id."""

    opening: list[int]
    between: list[int] | None


def template(engine: Engine) -> Template:
    """The target's own chat template, in two pieces."""
    tokenizer = engine.tokenizer
    end = [engine.eos_token_ids[0] if engine.eos_token_ids else 0]
    if not getattr(tokenizer, "chat_template", None):
        return Template(end, None)
    chat = [{"role": "user", "content": _MARK}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    before, behind = text.split(_MARK)
    opening, between = (tokenizer.encode(part, add_special_tokens=False) for part in (before, behind))
    return Template(opening or end, between)


@dataclass(slots=True)
class Attempt:
    """One chat in the making: `forced` are ids of the template that come next, `answer_start` is 0 in the user's turn;
    `kept` is None while it goes on."""

    number: int
    ids: list[int]
    random: np.random.Generator
    answer_start: int = 0
    forced: deque[int] = field(default_factory=deque)
    kept: bool | None = None

    @property
    def temperature(self) -> float:
        return TEMPERATURES[self.number % len(TEMPERATURES)] if self.answer_start else 1.0


class Desk:
    """Writes chats side by side, each in a place of its own in the target's memory.

    Args:
        side: how many places.
        answer_most: length limit of an answer in tokens.
        first: number of the first attempt.
        source: chats that users' turns set tasks about; None lets the target think of the turns.
    """

    def __init__(
        self, engine: Engine, side: int, answer_most: int, seed: int, first: int, source: Chats | None = None
    ) -> None:
        self._target, self._form, self._seed, self._next = engine.target, template(engine), seed, first
        self._ends, self._answer_most = frozenset(engine.eos_token_ids), answer_most
        form, self._tasks, turn_most = self._form, None, TURN_MOST
        if source is not None:
            if form.between is None:
                raise SettingsError(f"{self._target.name} has no chat template: there is no turn to set a task in.")
            self._tasks = Tasks(source, engine.tokenizer, form.opening, form.between, seed)
            room = self._target.max_positions - len(form.opening) - len(form.between) - answer_most - 1
            turn_most = self._task_most = max(TURN_MOST, min(TASK_MOST, room))
        longest = len(form.opening) + turn_most + len(form.between or ()) + answer_most
        self._capacity = min(longest + 1, self._target.max_positions)
        if self._capacity <= longest - answer_most + ANSWER_LEAST:
            raise SettingsError(
                f"{self._target.name} reads at most {self._target.max_positions} tokens: too few for a chat."
            )
        engine.claim(self._capacity, side)
        self._places: list[KVCache] = []
        for _ in range(side):
            place = self._target.open(self._capacity)
            place.prefill(self._form.opening[:-1])
            self._places.append(place)
        self._busy: dict[int, Attempt] = {}

    def step(self, more: bool) -> list[Attempt]:
        """One pass over all places; the attempts that ended with it. With `more` free places begin new ones."""
        if more:
            for place in range(len(self._places)):
                if place not in self._busy:
                    self._busy[place] = self._begin(place)
        order = sorted(self._busy)  # in the order of memory, where a pass over all places copies nothing
        rows = self._target.run([Pass(self._places[place], self._busy[place].ids[-1:]) for place in order])
        drawn = self._draw(torch.cat([row[-1:] for row in rows]), [self._busy[place] for place in order])
        ended = []
        for place, token in zip(order, drawn, strict=True):
            attempt = self._busy[place]
            self._go_on(attempt, token)
            if attempt.kept is not None:
                ended.append(self._busy.pop(place))
        return ended

    def _begin(self, place: int) -> Attempt:
        opening = self._form.opening
        self._places[place].rollback(len(opening) - 1)
        attempt = Attempt(self._next, list(opening), np.random.default_rng([self._seed, self._next]))
        attempt.answer_start = 0 if self._form.between is not None else len(opening)
        if self._tasks is not None:
            attempt.ids += [*self._tasks.turn(self._next)[: self._task_most], *self._form.between]
            attempt.answer_start = len(attempt.ids)
            self._places[place].prefill(attempt.ids[len(opening) - 1 : -1])
        self._next += 1
        return attempt

    def _draw(self, logits: Tensor, attempts: Sequence[Attempt]) -> list[int]:
        """A token for each of (attempts, vocabulary) logits; those whose token is forced draw nothing."""
        options = {"device": logits.device, "dtype": torch.float32}
        heat = torch.tensor([attempt.temperature for attempt in attempts], **options)
        u = torch.tensor([0.0 if attempt.forced else attempt.random.random() for attempt in attempts], **options)
        p = (logits.float() / heat[:, None]).softmax(-1)
        p = p.where(p >= MIN_P * p.amax(-1, keepdim=True), torch.zeros_like(p))
        mass = p.cumsum(-1)
        whole = mass[:, -1:].contiguous()
        # u * whole may round up to the whole, which no token lies above.
        quantile = torch.minimum(u[:, None] * whole, whole.nextafter(torch.zeros_like(whole)))
        return torch.searchsorted(mass, quantile, right=True)[:, 0].tolist()

    def _go_on(self, attempt: Attempt, token: int) -> None:
        between, said = self._form.between, len(attempt.ids) - len(self._form.opening)
        if attempt.forced:
            attempt.ids.append(attempt.forced.popleft())
        elif not attempt.answer_start:
            if token not in self._ends:
                attempt.ids.append(token)
                attempt.kept = False if said + 1 >= TURN_MOST else None
            elif said < TURN_LEAST:
                attempt.kept = False
            else:  # the end-of-turn id is the template's own
                attempt.forced.extend(between)
                attempt.answer_start = len(attempt.ids) + len(between)
                attempt.ids.append(attempt.forced.popleft())
        else:
            attempt.ids.append(token)
            length = len(attempt.ids) - attempt.answer_start
            if token in self._ends or length >= self._answer_most or len(attempt.ids) >= self._capacity:
                attempt.kept = length >= ANSWER_LEAST


def _how(engine: Engine, seed: int, answer_most: int, source: Chats | None) -> str:
    """What decides which chats come out, in words."""
    about = ""
    if source is not None:
        about = f", tasks about {zlib.crc32(b''.join(ids.astype(np.uint32).tobytes() for ids in source.ids)):08x}"
    return f"{engine.target.name}, seed {seed}, answers of {answer_most}{about}"


@torch.inference_mode()
def synthesise(
    engine: Engine,
    path: Path,
    *,
    chats: int,
    seed: int = 0,
    side: int = 64,
    answer_most: int = 256,
    source: Chats | None = None,
    report: Callable[[str], None] = print,
) -> Chats:
    """Write chats to `path` until it holds `chats`; those it holds already count.

    Args:
        side: chats written side by side.
        answer_most: length limit of an answer in tokens.
        source: as for `Desk`.

    Raises:
        SettingsError: the file holds something else or chats made in another way, or the target writes nothing that
            could be kept.
    """
    known = Chats.load(path, engine.target.vocab_size) if path.exists() else Chats([], [])
    how = _how(engine, seed, answer_most, source)
    if len(known) and known.made not in ("", how):
        raise SettingsError(f"{path} holds chats made in another way ({known.made}, not {how}): choose another file.")
    known.made = how
    if len(known) >= chats:
        return known
    desk = Desk(engine, side, answer_most, seed, known.tried, source)
    start, before, saved = time.monotonic(), known.tokens, time.monotonic()
    waiting: dict[int, Attempt] = {}  # ended before an earlier one
    idle = 0
    while len(known) < chats:
        enough = len(known) + sum(bool(attempt.kept) for attempt in waiting.values()) >= chats
        waiting.update((attempt.number, attempt) for attempt in desk.step(not enough))
        while len(known) < chats and (attempt := waiting.pop(known.tried, None)) is not None:
            known.tried, idle = known.tried + 1, 0 if attempt.kept else idle + 1
            if attempt.kept:
                known.ids.append(np.array(attempt.ids))
                known.answer_start.append(attempt.answer_start)
        if idle >= IDLE_MOST:
            raise SettingsError(f"{engine.target.name} writes no chats: {idle} attempts in a row came to nothing.")
        if time.monotonic() - saved > EVERY or len(known) >= chats:
            known.save(path)
            saved = time.monotonic()
            rate = (known.tokens - before) / max(saved - start, 1e-9)
            report(f"{len(known)} chats, {known.tokens} answer tokens, {rate:.0f} a second")
    return known
