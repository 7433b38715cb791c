"""The training loop of every kind of draft: resumable, kept to a budget of minutes or tokens, with its figures on
held-out chats in a log.

A checkpoint is written whole and then renamed, so a kill at any time leaves the last one. The learning rate warms up,
stays, and falls as a cosine over the last part of the budget; the last checkpoint before it falls is kept as
`stable.pt`, from which a longer training goes on. Held by tests/unit/test_train.py.
"""

from __future__ import annotations

import json
import math
import os
import queue
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from specviz.train.chats import batches
from specviz.train.features import Batch, Features
from specviz.train.learner import Figures, Learner
from specviz.train.muon import Muon

#: Steps of warm-up, and the part of the budget over which the learning rate falls.
WARMUP, FALL = 40, 0.4
#: Steps between two sentences on a pipe.
SAID = 20
#: A step that takes more than so many times the median of the last ones was stopped or starved: no more is counted.
LONGEST_STEP, RECENT = 5.0, 30


@dataclass(slots=True)
class Plan:
    """How long and how fast: whichever of `minutes` (of training, pauses between runs apart) and `tokens` is used up
    first ends it. `batch` is in tokens, `rate` the highest learning rate, `every` the minutes between checkpoints;
    with `ahead` a thread of its own reads with the target."""

    minutes: float | None = None
    tokens: int | None = None
    batch: int = 2048
    rate: float = 3e-3
    seed: int = 0
    every: float = 3.0
    ahead: bool = False


@dataclass(slots=True)
class Progress:
    """What a checkpoint says of itself: steps, tokens asked about, seconds trained, and the figures so far."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    curve: list[dict] = field(default_factory=list)

    def used(self, plan: Plan) -> float:
        """The part of the budget that is used up."""
        parts = [0.0]
        if plan.minutes:
            parts.append(self.seconds / (60 * plan.minutes))
        if plan.tokens:
            parts.append(self.tokens / plan.tokens)
        return max(parts)


def rate_at(plan: Plan, progress: Progress) -> float:
    """The learning rate of the next step."""
    used = progress.used(plan)
    fall = 1.0 if used < 1 - FALL else 0.5 * (1 + math.cos(math.pi * min(1.0, (used - 1 + FALL) / FALL)))
    return plan.rate * min(1.0, (progress.step + 1) / WARMUP) * max(fall, 0.01)


def measure(learner: Learner, held_out: Features) -> Figures:
    """Figures over all held-out documents, answers only."""
    lengths, positions = [len(document.ids) for document in held_out.documents], learner.measured
    rows, overlap, agreement = ([0.0] * positions for _ in range(3))
    device = learner.embedding.device
    with torch.no_grad(), autocast(learner.embedding):
        for numbers in batches(lengths, 2048, None):
            _, part = learner.judged(held_out.batch(numbers).to(device), positions, answers_only=True)
            for i in range(positions):
                rows[i] += part.rows[i]
                overlap[i] += part.overlap[i] * part.rows[i]
                agreement[i] += part.agreement[i] * part.rows[i]
    mean = [max(count, 1) for count in rows]
    return Figures(
        [int(count) for count in rows],
        [a / b for a, b in zip(overlap, mean, strict=True)],
        [a / b for a, b in zip(agreement, mean, strict=True)],
    )


def autocast(embedding: Tensor) -> torch.autocast:
    """bf16 where the target is in bf16, else off."""
    low = embedding.dtype == torch.bfloat16
    return torch.autocast(embedding.device.type, torch.bfloat16, enabled=low)


class Batches:
    """Batches in random order. With `plan.ahead`, a thread reads new documents; until they are there, old ones repeat.

    The target's pass over new text takes longer than a training step over text it has read.
    """

    def __init__(self, features: Features, plan: Plan) -> None:
        self._features, self._plan = features, plan
        self._lengths = [len(document.ids) for document in features.documents]
        self._queue: list[list[int]] = []
        self._read: queue.Queue[list[int]] = queue.Queue()
        self._error: Exception | None = None
        if plan.ahead:
            threading.Thread(target=self._read_on, daemon=True).start()

    def next(self, step: int) -> Batch:
        """The batch of a step."""
        if self._error is not None:
            raise self._error
        if not self._queue:
            numbers = range(len(self._lengths))
            if self._plan.ahead:
                while not self._features.known:
                    time.sleep(0.1)
                numbers = [number for number in numbers if self._features.has(number)]
            order = batches([self._lengths[n] for n in numbers], self._plan.batch, self._random(step))
            self._queue = [[numbers[i] for i in batch] for batch in order]
        fresh = self._read.get_nowait() if self._read.qsize() else None
        return self._features.batch(fresh or self._queue.pop())

    def _random(self, step: int) -> np.random.Generator:
        return np.random.default_rng([self._plan.seed, step])

    def _read_on(self) -> None:
        try:
            for numbers in batches(self._lengths, self._plan.batch, self._random(0)):
                missing = [number for number in numbers if not self._features.has(number)]
                if missing:
                    self._features.batch(missing)
                    self._read.put(missing)
        except Exception as error:  # noqa: BLE001 (raised where the next batch is asked for)
            self._error = error


class Stopwatch:
    """Seconds of steps. A process that was stopped (SIGSTOP), or a machine that slept, shows as one step out of all
    proportion, and such a step counts as a few usual ones."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._before = time.monotonic()

    def start(self) -> None:
        self._before = time.monotonic()

    def lap(self) -> float:
        """Seconds to count since the last lap or start."""
        now = time.monotonic()
        took, self._before = now - self._before, now
        if len(self._recent) >= RECENT // 3:
            took = min(took, LONGEST_STEP * statistics.median(self._recent))
        self._recent.append(took)
        return took


class Training:
    """Trains a learner; `folder` holds its checkpoints and its log.

    Args:
        learner: to be trained, in float32.
        features, held_out: documents to train on, and to measure on.
        report: called with a sentence at every checkpoint, and without `show` now and then between.
        show: called behind every step with the share of the budget that is used up and the live figures in words.
    """

    def __init__(
        self,
        learner: Learner,
        features: Features,
        held_out: Features,
        plan: Plan,
        folder: Path,
        report: Callable[[str], None] = print,
        show: Callable[[float, str], None] | None = None,
    ) -> None:
        self.learner, self.plan, self.folder, self.report, self._show = learner, plan, folder, report, show
        self._held_out = held_out
        self.progress = Progress()
        self._optimiser = Muon(learner, learner.parts())
        self._batches = Batches(features, plan)
        folder.mkdir(parents=True, exist_ok=True)

    def resume(self, name: str = "last.pt") -> bool:
        """Go on from a checkpoint of the folder; false when there is none."""
        path = self.folder / name
        if not path.exists():
            return False
        state = torch.load(path, weights_only=True)
        self.learner.load_state_dict(state["layer"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.progress = Progress(**state["progress"])
        return True

    def run(self) -> Progress:
        """Train until the budget is used up."""
        progress, saved, watch = self.progress, time.monotonic(), Stopwatch()
        while (used := progress.used(self.plan)) < 1:
            words = self._step()
            progress.seconds += watch.lap()
            if self._show is not None:
                self._show(used, words)
            elif progress.step % SAID == 0:
                self.report(f"step {progress.step}, {progress.tokens} tokens, {used:.0%} of the budget, {words}")
            if time.monotonic() - saved > 60 * self.plan.every:
                self.checkpoint("last.pt" if used >= 1 - FALL else "last.pt stable.pt")
                saved = time.monotonic()
                watch.start()
        self.checkpoint("last.pt")
        return progress

    def _step(self) -> str:
        learner = self.learner
        batch = self._batches.next(self.progress.step).to(learner.embedding.device)
        with autocast(learner.embedding):
            loss, figures = learner.judged(batch, learner.positions)
        loss.backward()
        nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        self._optimiser.step(rate_at(self.plan, self.progress))
        self.progress.step += 1
        self.progress.tokens += batch.tokens
        return f"loss {float(loss.detach()):.3f}, overlap {in_words(figures.overlap)}"

    def checkpoint(self, names: str) -> None:
        """Measure on the held-out chats, write the checkpoint, and report."""
        progress = self.progress
        figures = measure(self.learner, self._held_out)
        progress.curve.append({"tokens": progress.tokens, "seconds": round(progress.seconds), **asdict(figures)})
        state = {
            "layer": self.learner.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "progress": asdict(progress),
        }
        for name in names.split():
            write(self.folder / name, lambda path: torch.save(state, path))
        text = json.dumps(progress.curve, indent=1)
        write(self.folder / "curve.json", lambda path: path.write_text(text, encoding="utf-8"))
        self.report(
            f"checkpoint: {progress.tokens} tokens, {progress.seconds / 60:.1f} min, held-out overlap "
            f"{in_words(figures.overlap)}, greedy agreement {in_words(figures.agreement)}, "
            f"{progress.tokens / max(progress.seconds, 1):.0f} tokens/s"
        )


def in_words(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def write(path: Path, how: Callable[[Path], object]) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(path.name + ".part")
    how(temporary)
    os.replace(temporary, path)
