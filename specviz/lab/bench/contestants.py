"""What runs in a lane: our engine, or a peer's process; both turn a prompt into a `Result`, counted and timed alike.

Tokens are counted from the ids that came out, the one that ended the answer included. Reading the prompt is in no
rate: ours is timed by itself; of a peer the first pass that gives tokens also reads the prompt, so its time and its
tokens are left out. Held by tests/unit/test_bench.py and tests/unit/test_bench_peers.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

import torch

from specviz.engine.engine import Engine
from specviz.lab.bench.document import Lane, Result
from specviz.lab.bench.peers import PEERS, Sources
from specviz.lab.bench.peers.worker import ANSWER_S, LOAD_S, PeerFailed, Worker
from specviz.lab.bench.plan import options
from specviz.lab.prompts import Prompt
from specviz.lab.race import touch
from specviz.settings import Settings
from specviz.summary import drafted_depth
from specviz.trace import Calibration, Run, Step

#: Seconds between two reports of progress, which a lane's clock runs through.
PROGRESS_S = 0.2
#: Room that llama.cpp's cache has beyond the longest prompt and answer.
SPARE = 64


class Stopped(Exception):
    """`cancelled` said so in the middle of a lane."""


class Contestant(Protocol):
    """A lane that can run. Both generators yield how many tokens there are so far, a few times a second."""

    lane: Lane

    def prepare(self, prompt: Prompt, tokens: int) -> Generator[int, None, None]:
        """Load, measure and warm up; nothing of it is counted."""

    def run(self, prompt: Prompt, round: int) -> Generator[int, None, Result]:
        """Answer one prompt."""

    def close(self) -> None:
        """Give back what it holds."""


class EngineLane:
    """A lane of ours; `settings` are what every lane has alike."""

    def __init__(
        self, engine: Engine, lane: Lane, settings: dict[str, Any], cancelled: Callable[[], bool], fresh: bool = False
    ) -> None:
        self.lane, self._engine, self._cancelled, self._fresh = lane, engine, cancelled, fresh
        self._options = options(lane, settings)
        lane.path = engine.device.path

    def prepare(self, prompt: Prompt, tokens: int) -> Generator[int, None, None]:
        settings = Settings.of(**self._options)
        if self.lane.kind == "draft" and self.lane.calibration is None:
            self.lane.calibration = self._engine.calibration(settings, fresh=self._fresh)
        touch(self._engine, prompt.text, settings)
        yield from self._decode(prompt, tokens)

    def run(self, prompt: Prompt, round: int) -> Generator[int, None, Result]:
        run = yield from self._decode(prompt, self._options["max_new_tokens"])
        levels = run.summary.by_position
        return Result(
            prompt=prompt.id,
            lane=self.lane.name,
            round=round,
            ids=run.output.token_ids,
            tokens=len(run.output.token_ids),
            timed=len(run.output.token_ids),
            seconds=run.steps[-1].t_end,
            prefill_s=run.prefill.target_s + run.prefill.draft_s,
            finish=run.output.finish_reason,
            steps=len(run.steps),
            accepted=sum(row.accepted for row in levels),
            tested=sum(row.tested for row in levels),
            overlap=run.summary.alpha,
            draft_s=sum(step.draft_s for step in run.steps),
            verify_s=sum(step.verify_s for step in run.steps),
            host_s=sum(step.host_s for step in run.steps),
            predicted=_predicted(run),
        )

    def _decode(self, prompt: Prompt, tokens: int) -> Generator[int, None, Run]:
        given = {**self._options, "max_new_tokens": tokens, "calibration": self.lane.calibration}
        decoding = self._engine.stream(prompt.text, cancelled=self._cancelled, **given)
        told = time.monotonic()
        for _ in decoding:
            if time.monotonic() - told > PROGRESS_S:
                yield len(decoding.run.output.token_ids)
                told = time.monotonic()
        if decoding.run.output.finish_reason == "cancelled":
            raise Stopped
        return decoding.run

    def close(self) -> None:
        pass


def _predicted(run: Run) -> dict[str, Any] | None:
    """The summary's prediction, with the one that takes the tokens per pass as they were."""
    found = run.summary.predicted
    return found and found | {"from_tokens": timed_by(run.calibration, run.steps)}


def timed_by(costs: Calibration, steps: Sequence[Step]) -> float:
    """The speed-up of these steps if each took the time that the calibration gives it."""
    tokens = sum(len(step.emitted) for step in steps)
    return (1 + costs.h0) * tokens / sum(costs.step(drafted_depth(step), step.gamma) for step in steps)


class PeerLane:
    """A lane of another engine. Lanes whose models are loaded alike share a process.

    Args:
        encode: a prompt's ids, as ours reads them.
        eos: what ends an answer; empty when nothing does.
        context: the most ids of a prompt and its answer.
    """

    def __init__(
        self,
        lane: Lane,
        bench: PeerBench,
        encode: Callable[[Prompt], list[int]],
        settings: dict[str, Any],
        eos: Sequence[int],
        cancelled: Callable[[], bool],
    ) -> None:
        self.lane, self._bench, self._encode, self._cancelled = lane, bench, encode, cancelled
        self._peer = PEERS[lane.peer]
        self._tokens, self._eos = settings["max_new_tokens"], list(eos)

    def prepare(self, prompt: Prompt, tokens: int) -> Generator[int, None, None]:
        answer = yield from self._wait(self._bench.load(self.lane))
        self.lane.note = answer["note"]
        self.lane.path = self._peer.engine
        yield from self._ask(prompt, tokens)

    def run(self, prompt: Prompt, round: int) -> Generator[int, None, Result]:
        answer = yield from self._ask(prompt, self._tokens)
        ids, at = answer["ids"], answer["at"]
        if not ids or not at or at[-1][0] != len(ids):
            raise PeerFailed(f"it gave {len(ids)} ids and timed {at[-1][0] if at else 0}")
        first, last = at[0], at[-1]
        return Result(
            prompt=prompt.id,
            lane=self.lane.name,
            round=round,
            ids=ids,
            tokens=len(ids),
            timed=last[0] - first[0],
            seconds=last[1] - first[1],
            prefill_s=first[1],
            finish=answer["finish"],
            steps=len(at) if answer.get("passes", True) else None,
        )

    def _ask(self, prompt: Prompt, tokens: int) -> Generator[int, None, dict[str, Any]]:
        request = {"prompt": self._encode(prompt), "tokens": tokens, "eos": self._eos, **self._peer.asking}
        return (yield from self._wait(self._bench.worker(self.lane).ask(request, ANSWER_S)))

    def _wait(self, answers: Any) -> Generator[int, None, dict[str, Any]]:
        for answer in answers:
            if answer is not None:
                return answer
            if self._cancelled():
                raise Stopped
            yield 0
        raise AssertionError("a worker answers or raises")

    def close(self) -> None:
        self._bench.close()


class PeerBench:
    """The processes of all peers, one for each way to load a model.

    Args:
        pythons: interpreters by engine; `own` is for those not named.
        sources: where the model's files are.
    """

    def __init__(
        self, pythons: Mapping[str, str], own: str, sources: Sources, device: torch.device, context: int
    ) -> None:
        self._pythons, self._own, self._sources = pythons, own, sources
        self._device, self._context = device, context
        self._workers: dict[tuple, tuple[Worker, dict[str, Any]]] = {}

    def load(self, lane: Lane) -> Any:
        """What `Worker.ask` yields while the lane's model is loaded; at once where it is."""
        if self._key(lane) in self._workers:
            yield self._workers[self._key(lane)][1]
            return
        peer, sources = PEERS[lane.peer], self._sources
        if lane.dtype == "q4_1" and sources.gguf is None:
            raise PeerFailed("it needs a GGUF file, and this target comes without one")
        threads = torch.get_num_threads()
        worker = Worker(self._pythons.get(peer.engine, self._own), peer.script, threads)
        request = {
            "folder": str(sources.target),
            "draft": str(sources.draft) if sources.draft else None,
            "gguf": str(sources.gguf) if sources.gguf else None,
            "dtype": lane.dtype,
            "device": str(self._device),
            "threads": threads,
            "context": self._context + SPARE,
            **peer.loading,
        }
        try:
            for answer in worker.ask({"load": request}, LOAD_S):
                if answer is not None:
                    self._workers[self._key(lane)] = worker, answer
                yield answer
        finally:
            if self._key(lane) not in self._workers:
                worker.close()

    def worker(self, lane: Lane) -> Worker:
        """The lane's process; it must have been loaded."""
        return self._workers[self._key(lane)][0]

    def close(self) -> None:
        """End them all."""
        for worker, _ in self._workers.values():
            worker.close()
        self._workers.clear()

    def _key(self, lane: Lane) -> tuple:
        peer = PEERS[lane.peer]
        return peer.engine, lane.dtype, *sorted(peer.loading.items())
