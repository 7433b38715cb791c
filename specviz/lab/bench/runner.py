"""A benchmark, run: prompt by prompt, each lane alone on the device, in an order that rotates.

Every model is loaded and every lane warmed up before the first prompt counts, so that lanes of different precision
and other engines are really interleaved; what a lane cannot do becomes its message, never a slow number. Held by
tests/unit/test_bench.py.
"""

from __future__ import annotations

import datetime
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

import specviz
from specviz.engine.calibrate import code
from specviz.engine.engine import Engine
from specviz.errors import SettingsError, SpecvizError
from specviz.lab.bench.contestants import Contestant, EngineLane, PeerBench, PeerLane, Stopped
from specviz.lab.bench.document import Bench, Entry, Lane, Reading, Result, load, resume, save
from specviz.lab.bench.figures import summarise
from specviz.lab.bench.peers import PEERS, Sources
from specviz.lab.bench.peers.worker import PeerFailed
from specviz.lab.bench.plan import Plan
from specviz.lab.bench.reading import read
from specviz.lab.prompts import Prompt
from specviz.zoo.hardware import choose_dtype

#: Tokens each lane decodes before anything is timed.
WARMUP_TOKENS = 16
#: What perplexities are reckoned in and precisions are compared with.
REFERENCE = "float32"


class BenchCancelled(SpecvizError):
    """The benchmark was stopped; the prompts that were done are in its file."""


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """Where a benchmark is: `done` of `of` lane runs; `stage` says what goes on, in the lane `lane`, at prompt
    `prompt` of `prompts` (from 1; 0 while it is prepared). `rate` is what the lane's run that has just ended gave, in
    tokens per second; None in all other reports."""

    stage: str
    lane: str
    prompt: int
    prompts: int
    done: int
    of: int
    rate: float | None = None


@dataclass(slots=True)
class Job:
    """What is to be measured.

    Args:
        plan: the lanes.
        prompts: on what, in this order.
        dtypes: precisions of our lanes, resolved.
        engine_of: the engine of a precision; all are kept, so that their lanes can take turns.
        settings: of every run: max_new_tokens, seed, ignore_eos, and others of `Settings` that hold for all lanes.
        sources: where peers find the model; None when there are none.
        pythons: interpreters of peers, by engine.
        reference: precision that texts are read in afterwards; None leaves perplexity and agreement out.
        command: for the document.
        file: where it is kept; what is there is gone on with unless `fresh`.
        recalibrate: measure costs anew although they are known.
        cancelled: asked within every step.
    """

    plan: Plan
    prompts: Sequence[Prompt]
    dtypes: Sequence[str]
    engine_of: Callable[[str], Engine]
    settings: dict[str, Any]
    sources: Sources | None = None
    pythons: dict[str, str] = field(default_factory=dict)
    reference: str | None = REFERENCE
    command: str = ""
    file: Path | None = None
    fresh: bool = False
    recalibrate: bool = False
    cancelled: Callable[[], bool] = lambda: False


def stream_bench(job: Job) -> Iterator[BenchProgress | Bench]:
    """Run it; yields progress a few times a second, the `Bench` so far behind every prompt, at last the whole one.

    Raises:
        SettingsError: bad settings, a prompt that is too long, or a file of another benchmark.
        BenchCancelled: `job.cancelled` said so.
    """
    yield from _Running(job).stream()


def bench(job: Job, progress: Callable[[BenchProgress], None] = lambda _: None) -> Bench:
    """The whole `Bench`."""
    result = None
    for item in stream_bench(job):
        if isinstance(item, BenchProgress):
            progress(item)
        else:
            result = item
    assert result is not None, "a benchmark that was not cancelled ends with its result"
    return result


class _Running:
    """One call: the engines, the contestants and the document they fill."""

    def __init__(self, job: Job) -> None:
        if not job.prompts:
            raise SettingsError("A benchmark needs a prompt.")
        job.plan.check(job.settings)
        self.job = job
        self.first = job.engine_of(job.dtypes[0])
        self.document = _document(job, self.first)
        if job.file is not None and job.file.exists() and not job.fresh:
            self.document = resume(load(job.file), self.document)
        self.contestants: list[Contestant] = []
        self.turns = self._turns_here = 0

    def stream(self) -> Iterator[BenchProgress | Bench]:
        document = self.document
        if document.complete:
            yield document
            return
        try:
            self.contestants = self._contestants()
            yield from self._prepare()
            for index in range(document.done, len(self.job.prompts)):
                results = yield from self._lanes(index)
                readings = yield from self._read(index, results)
                document.results += results
                document.readings += readings
                document.done = index + 1
                document.updated_at = _now()
                document.summary = summarise(document)
                if self.job.file is not None:
                    save(document, self.job.file)
                yield document
        except Stopped:
            kept = f" {document.done} of {len(document.prompts)} prompts are done" if document.done else ""
            where = f" and in {self.job.file}." if document.done and self.job.file else "." if kept else ""
            raise BenchCancelled(f"The benchmark was stopped.{kept}{where}") from None
        finally:
            for contestant in self.contestants:
                contestant.close()

    def _contestants(self) -> list[Contestant]:
        job, settings = self.job, self.job.settings
        lanes = [lane for lane in self.document.lanes if lane.status == "planned"]
        eos = () if settings.get("ignore_eos") else self.first.eos_token_ids
        longest = max(entry.tokens for entry in self.document.prompts) + settings["max_new_tokens"]
        device = self.first.target.device
        peers = PeerBench(job.pythons, sys.executable, job.sources, device, longest) if job.sources else None

        def encode(prompt: Prompt) -> list[int]:
            return _encode(self.first, prompt, settings)

        return [
            PeerLane(lane, peers, encode, settings, eos, job.cancelled)
            if lane.kind == "peer"
            else EngineLane(job.engine_of(lane.dtype), lane, settings, job.cancelled, job.recalibrate)
            for lane in lanes
        ]

    def _prepare(self) -> Iterator[BenchProgress]:
        """Load, calibrate and warm up; who cannot leaves with a message."""
        prompt = self.job.prompts[self.document.done]
        tokens = min(WARMUP_TOKENS, self.job.settings["max_new_tokens"])
        for contestant in list(self.contestants):
            yield self._progress("warming up", contestant.lane.name, 0)
            try:
                for _ in contestant.prepare(prompt, tokens):
                    yield self._progress("warming up", contestant.lane.name, 0)
            except (PeerFailed, SpecvizError) as error:
                self._drop(contestant, error)

    def _lanes(self, index: int) -> Iterator[BenchProgress]:
        """Every lane on one prompt, as often as asked; returns the results."""
        prompt, rounds, results = self.job.prompts[index], self.job.plan.rounds, []
        self._turns_here = 0
        for round in range(rounds):
            for contestant in rotated(self.contestants, index * rounds + round):
                if contestant not in self.contestants:  # it failed a moment ago
                    continue
                yield self._progress("measuring", contestant.lane.name, index + 1)
                running = contestant.run(prompt, round + 1)
                rate = None
                try:
                    result = yield from self._ticking(running, contestant.lane, index + 1)
                    results.append(result)
                    rate = result.rate
                except (PeerFailed, SpecvizError) as error:
                    self._drop(contestant, error)
                self.turns += 1
                self._turns_here += 1
                yield self._progress("measuring", contestant.lane.name, index + 1, rate)
        return results

    def _ticking(self, running: Iterator, lane: Lane, at: int) -> Iterator[BenchProgress]:
        while True:
            try:
                next(running)
            except StopIteration as end:
                return end.value
            yield self._progress("measuring", lane.name, at)

    def _read(self, index: int, results: list[Result]) -> Iterator[BenchProgress]:
        """Reckon the likelihood of what was written, and how each precision reads it; returns the readings."""
        job, prompt = self.job, self.job.prompts[index]
        if job.reference is None:
            return []
        reference = job.engine_of(job.reference)
        ids = _encode(self.first, prompt, job.settings)
        known = {}
        for result in results:
            text = tuple(result.ids)
            if text not in known:
                if job.cancelled():
                    raise Stopped
                yield self._progress("reading", result.lane, index + 1)
                known[text] = read(reference, ids, text)
            result.nll = known[text].nll
        source = _plain_text(self.document.lanes, results, job.reference)
        if source is None or {*job.dtypes} == {job.reference}:  # nothing to hold against it
            return []
        ours, text, readings = known[tuple(source.ids)], source.ids, []
        for dtype in dict.fromkeys([job.reference, *job.dtypes]):
            theirs = ours if dtype == job.reference else read(job.engine_of(dtype), ids, text)
            agreeing = int((theirs.best == ours.best).sum())
            readings.append(Reading(prompt.id, dtype, source.lane, len(text), agreeing, theirs.nll))
        return readings

    def _drop(self, contestant: Contestant, error: Exception) -> None:
        lane = contestant.lane
        lane.status = "missing" if getattr(error, "missing", False) else "failed"
        lane.message = str(error)
        if lane.status == "missing":
            lane.message = f"{error}: {PEERS[lane.peer].how_to_get}."
        self.contestants.remove(contestant)

    def _progress(self, stage: str, lane: str, at: int, rate: float | None = None) -> BenchProgress:
        prompts = len(self.job.prompts)
        per_prompt = self.job.plan.rounds * len(self.contestants)
        # The prompts behind this one, and what is left of this one: lanes may have dropped out meanwhile.
        left = (prompts - max(at, self.document.done + 1)) * per_prompt + max(0, per_prompt - self._turns_here)
        return BenchProgress(stage, lane, at, prompts, self.turns, self.turns + left, rate)


def rotated(contestants: Sequence[Contestant], turn: int) -> list[Contestant]:
    """Who begins changes from prompt to prompt, so that no lane always runs behind the same other one's heat."""
    if not contestants:
        return []
    first = turn % len(contestants)
    return [*contestants[first:], *contestants[:first]]


def _plain_text(lanes: Sequence[Lane], results: Sequence[Result], reference: str) -> Result | None:
    """The plain lane's output that precisions are compared on: the coolest one's, in the reference where it ran."""
    plain = {lane.name: lane for lane in lanes if lane.kind == "plain"}
    found = [result for result in results if result.lane in plain]
    return min(found, key=lambda one: (plain[one.lane].temperature, plain[one.lane].dtype != reference), default=None)


def _document(job: Job, engine: Engine) -> Bench:
    """The empty document of this job."""
    peer_dtype = str(choose_dtype("auto", engine.target.device)).removeprefix("torch.")
    lanes = job.plan.lanes(job.dtypes, peer_dtype)
    entries = [
        Entry(prompt.id, prompt.category, prompt.sha256, len(_encode(engine, prompt, job.settings)))
        for prompt in job.prompts
    ]
    return Bench(
        created_at=_now(),
        updated_at=_now(),
        app_version=specviz.__version__,
        command=job.command,
        versions={
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "engine code": code(),
        },
        device=engine.device,
        target=engine.target.name,
        reference=job.reference or "",
        settings={**job.settings, "rounds": job.plan.rounds, "adaptive": job.plan.adaptive},
        prompts=entries,
        lanes=lanes,
    )


def _encode(engine: Engine, prompt: Prompt, settings: dict[str, Any]) -> list[int]:
    """The ids that every lane reads."""
    try:
        return engine.encode(prompt.text, _chat(engine, settings))
    except SettingsError as error:
        raise SettingsError(f"Prompt {prompt.id!r} cannot be used: {error}") from error


def _chat(engine: Engine, settings: dict[str, Any]) -> bool:
    """Whether prompts go through the chat template: as asked, else when there is one."""
    chat = settings.get("chat")
    return engine.tokenizer.chat_template is not None if chat is None else chat


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
