"""What one open page does with the model: run, race, prove, stop; as batches of events that the page draws.

The model runs in a thread of its own, so its timings never wait for the page; stopping, or closing the iterator,
frees it within one step, and only the thread itself gives the device back. Held by tests/unit/test_serve.py.
"""

from __future__ import annotations

import contextvars
import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from specviz.errors import SettingsError, SpecvizError
from specviz.lab.bench.document import Bench
from specviz.lab.bench.runner import BenchCancelled
from specviz.lab.bench.sweep import stream_sweep
from specviz.lab.proof import Proof, ProofCancelled, stream_proof
from specviz.lab.race import Race, RaceCancelled, stream_race
from specviz.serve import gpu
from specviz.serve.gpu import on_device
from specviz.summary import summarise
from specviz.trace import Output, Run, Step
from specviz.zoo import Progress

if TYPE_CHECKING:
    from specviz.engine.decode import Decoding
    from specviz.engine.engine import Engine
    from specviz.serve.desk import Ticket
    from specviz.serve.host import Host

log = logging.getLogger(__name__)

#: Batches per second at most: as often as a page can usefully redraw text.
RATE = 20
#: Rows of the best tokens that each traced token carries for the card.
TOP = 5

Event = dict[str, Any]
#: Draft types asked for while a run is going, oldest first.
Swaps = queue.SimpleQueue
Emit = Callable[[Event], None]


@dataclasses.dataclass(frozen=True, slots=True)
class SwapRefused:
    """A change of draft that cannot be made, with the sentence that says why; the run goes on as it was."""

    message: str


class Session:
    """Runs, races and proofs of one page, one at a time: beginning one stops the one before."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._stop = threading.Event()
        self._swaps: Swaps[str] | None = None

    def run(self, prompt: str, dtype: str = "auto", **settings: Any) -> Iterator[list[Event]]:
        """Decode `prompt`; batches of events `queued`, `loading`, `run`, `step`, `swap_refused`, `end` or `error`.

        `step` events carry `Step`s as plain dicts; a stopped run ends with finish_reason "cancelled".
        """
        swaps: Swaps[str] = queue.SimpleQueue()

        def work(emit: Emit, stop: threading.Event) -> None:
            try:
                engine = self._host.engine(dtype, _loading(emit))
                _emit_run(emit, on_device(decode, engine, prompt, {**settings, "top": TOP}, stop, {"swaps": swaps}))
            finally:
                if self._swaps is swaps:  # nobody reads them any more
                    self._swaps = None

        batches = self._stream(work)
        self._swaps = swaps
        return batches

    def swap(self, draft: str) -> bool:
        """Let another draft type propose from the next step of the run in progress on; thread-safe, returns at once.

        The change shows in the next `Step` (`draft`, `note`); one that cannot be made comes as an event
        `swap_refused` and the run goes on. Without a run, or where the run is in another process (ZeroGPU), nothing
        happens.

        Returns:
            Whether there is a run that will see it.
        """
        swaps = self._swaps
        if swaps is None or gpu.ON_SPACES:
            return False
        swaps.put(draft)
        return True

    def race(self, prompt: str, dtype: str = "auto", **options: Any) -> Iterator[list[Event]]:
        """Race on `prompt`, options as for `specviz.lab.race.stream_race`; events `queued`, `loading`,
        `race_progress`, then `race` (the shown run of each lane), `stopped` or `error`."""

        def work(emit: Emit, stop: threading.Event) -> None:
            engine = self._host.engine(dtype, _loading(emit))
            result = None
            try:
                for item in on_device(stream_race, engine, prompt, options, stop):
                    if isinstance(item, Race):
                        result = item
                    else:
                        emit({"type": "race_progress", **dataclasses.asdict(item)})
            except RaceCancelled:
                result = None
            emit({"type": "race", "race": result.shown_only()} if result else {"type": "stopped"})

        return self._stream(work)

    def bench(self, prompt: str, dtype: str = "auto", **options: Any) -> Iterator[list[Event]]:
        """Measure a small sweep, options as for `specviz.lab.bench.sweep.stream_sweep`; events `queued`, `loading`,
        `bench_progress`, then `bench` (the prompts that were done), `stopped` or `error`."""

        def work(emit: Emit, stop: threading.Event) -> None:
            engine = self._host.engine(dtype, _loading(emit))
            result = None
            try:
                for item in on_device(stream_sweep, engine, prompt, options, stop):
                    if isinstance(item, Bench):
                        result = item
                    else:
                        emit({"type": "bench_progress", **dataclasses.asdict(item)})
            except BenchCancelled:
                result = None
            emit({"type": "bench", "bench": result} if result else {"type": "stopped"})

        return self._stream(work)

    def prove(self, **options: Any) -> Iterator[list[Event]]:
        """Prove a draft type and a rule lossless, or show what a mistake does; options as for
        `specviz.lab.proof.stream_proof`. Events `queued`, `proof_progress`, then `proof`, `stopped` or `error`.

        It needs no loaded model, but waits in line: what others measure meanwhile stays undisturbed.
        """

        def work(emit: Emit, stop: threading.Event) -> None:
            result = None
            try:
                for item in stream_proof(**options, cancelled=stop.is_set):
                    if isinstance(item, Proof):
                        result = item
                    else:
                        emit({"type": "proof_progress", **dataclasses.asdict(item)})
            except ProofCancelled:
                result = None
            emit({"type": "proof", "proof": result} if result else {"type": "stopped"})

        return self._stream(work)

    def stop(self) -> None:
        """End what is running or waiting; returns at once."""
        self._stop.set()

    def _stream(self, work: Callable[[Emit, threading.Event], None]) -> Iterator[list[Event]]:
        # Here, not in the generator: a stop that comes before its first batch is asked for must count.
        self._stop.set()
        self._stop = threading.Event()
        self._swaps = None
        return self._batches(work, self._stop)

    def _batches(self, work: Callable[[Emit, threading.Event], None], stop: threading.Event) -> Iterator[list[Event]]:
        events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        try:
            ticket = self._host.desk.take()
        except SpecvizError as error:
            yield [{"type": "error", "message": str(error)}]
            return
        worker = None
        try:
            before = None
            while (now := ticket.wait(0.25)) and not stop.is_set():
                if now != before:
                    before = now
                    yield [{"type": "queued", "position": now}]
            if stop.is_set():
                yield [{"type": "stopped"}]
                return
            # The context carries the page's request, by which a ZeroGPU Space knows whose quota pays.
            arguments = (_work, work, events, stop, ticket)
            thread = threading.Thread(target=contextvars.copy_context().run, args=arguments, daemon=True)
            thread.start()
            worker = thread  # from here on it gives the device back
            yield from _coalesced(events)
        finally:
            stop.set()
            if worker is None:
                ticket.leave()


def decode(
    engine: Engine, prompt: str, swaps: Swaps[str] | None = None, **options: Any
) -> Iterator[Run | Step | SwapRefused]:
    """The run's header (no finish_reason yet), each `Step`, then the whole `Run`.

    `swaps` are draft types to change to, looked at before each step.
    """
    decoding = engine.stream(prompt, **options)
    yield decoding.run
    while True:
        yield from _swapped(decoding, swaps)
        step = next(decoding, None)
        if step is None:
            break
        yield step
    yield decoding.run


def _emit_run(emit: Emit, items: Iterator[Run | Step | SwapRefused]) -> None:
    """The items of `decode` as events."""
    steps: list[Step] = []
    ended = False
    for item in items:
        if isinstance(item, Step):
            steps.append(item)
            emit({"type": "step", "step": item})
        elif isinstance(item, SwapRefused):
            emit({"type": "swap_refused", "message": item.message})
        elif item.output.finish_reason is None:
            emit({"type": "run", "run": _header(item)})
        else:
            ended = True
            emit({"type": "end", "output": item.output, "summary": item.summary})
    if not ended:  # stopped across a process boundary: the whole run stayed there
        tokens = [token for step in steps for token in step.emitted]
        text = "".join(token.text for token in tokens)
        output = Output([token.id for token in tokens], text, "cancelled")
        emit({"type": "end", "output": output, "summary": summarise(steps)})


def _swapped(decoding: Decoding, swaps: Swaps[str] | None) -> Iterator[SwapRefused]:
    """Makes the last change asked for since the step before."""
    draft = None
    while swaps is not None and not swaps.empty():
        draft = swaps.get()
    if draft is None:
        return
    try:
        decoding.swap(draft)
    except SettingsError as error:
        yield SwapRefused(str(error))


def _work(work: Callable[..., None], events: queue.SimpleQueue, stop: threading.Event, ticket: Ticket) -> None:
    """Body of the model's thread: whatever happens, the page hears of it and the device is given back."""
    try:
        work(events.put, stop)
    except SpecvizError as error:
        events.put({"type": "error", "message": str(error)})
    except Exception as error:
        # The boundary of a thread: nobody above could show it.
        log.exception("a run failed")
        message = f"The run failed ({type(error).__name__}: {error}); the server's log says more."
        events.put({"type": "error", "message": message})
    finally:
        ticket.leave()
        events.put(None)


def _coalesced(events: queue.SimpleQueue) -> Iterator[list[Event]]:
    """Everything that has happened, at most `RATE` times a second, until the thread's closing None."""
    while True:
        batch = [events.get()]
        time.sleep(1 / RATE)
        while not events.empty():
            batch.append(events.get())
        over = batch[-1] is None
        batch = [_plain(event) for event in batch if event is not None]
        if batch:
            yield batch
        if over:
            return


def _plain(event: Event) -> Event:
    """The event with its dataclasses as dicts; done here, in the page's thread, not in the model's."""
    return {
        key: dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value for key, value in event.items()
    }


def _header(run: Run) -> Event:
    return {key: value for key, value in run.to_dict().items() if key not in ("steps", "output", "summary")}


def _loading(emit: Emit) -> Callable[[Progress], None]:
    return lambda at: emit({"type": "loading", "stage": at.stage, "done": at.done, "total": at.total})
