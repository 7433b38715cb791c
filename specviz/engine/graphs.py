"""The fast path in passes of few, fixed shapes, which a GPU captures once and replays as CUDA graphs.

A pass of some rows over one text is padded to the next of `ROWS` and attends to all of the text's room, so that few
shapes occur; what differs from pass to pass (ids, positions, places, what the rows of a tree see) is written into
buffers on the device, without waiting for it. Other passes (prefill, several texts) run eagerly. On a CPU the same
code runs without graphs, where tests/unit/test_graphs.py holds it: the logits are those of the eager fast path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specviz.engine.cache import KVCache, Many, Pass
from specviz.engine.fast import FastModel
from specviz.engine.model import genealogy
from specviz.errors import ModelError

#: Sizes that passes are padded to; longer ones run eagerly.
ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
#: Room of a text is rounded up to a multiple of this, so that runs of about the same length share their graphs.
SPAN = 256
#: Pinned buffers in turn: one is not written again before the copy from it is over, as a step has fewer passes.
RING = 64
#: Largest difference between a replayed pass and the eager one before it, in standard deviations of the logits.
SAME = 0.05


@dataclass(slots=True)
class Frame:
    """Buffers of one shape: (3, rows) ids, positions and places; for a tree the (rows, span) rows each row sees; the
    captured graph (None where passes run eagerly) and the logits it writes."""

    inputs: Tensor
    seen: Tensor | None
    span: int
    graph: torch.cuda.CUDAGraph | None = None
    logits: Tensor | None = None


class GraphModel(FastModel):
    """`FastModel` in passes of fixed shapes (CUDA graphs: as in gpt-fast and vLLM, for one text)."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._forget()

    @property
    def path(self) -> str:
        """Which forward runs: graphs, or the same code eagerly."""
        return "cuda-graph" if self.device.type == "cuda" else "static"

    def exit(self, layers: int) -> GraphModel:
        known = layers in self._exits
        exit_ = super().exit(layers)
        if not known:  # a copy of this one, and its graphs are not its own
            exit_._forget()
        return exit_

    def _forget(self) -> None:
        self._frames: dict[tuple[int, int, bool], Frame] = {}
        self._memory: tuple = ()
        self._ring: list[Tensor] = []
        self._turn = 0

    def _chain(self, cache: KVCache, ids: Sequence[int] | Tensor, rows: int) -> Tensor:
        if cache.links or not self._fits(cache, len(ids)):
            return super()._chain(cache, ids, rows)
        return self._padded(cache, ids, None)[-rows:]

    def _masked(self, passes: Sequence[Pass]) -> list[Tensor]:
        if len(passes) > 1 or not self._fits(passes[0].cache, len(passes[0].ids)):
            return super()._masked(passes)
        return [self._padded(one.cache, one.ids, one.parents) for one in passes]

    @staticmethod
    def _fits(cache: KVCache, count: int) -> bool:
        return cache.slot == 0 and count <= ROWS[-1]

    def _padded(self, cache: KVCache, ids: Sequence[int] | Tensor, parents: Sequence[int] | None) -> Tensor:
        count, end = len(ids), cache.length + len(ids)
        self.store.room(1, max(end, -(-max(end, cache.capacity) // SPAN) * SPAN))
        self.store.touch(end)
        span = min(self.store.capacity, -(-max(end, cache.capacity) // SPAN) * SPAN)
        frame = self._frame(next(size for size in ROWS if size >= count), span, parents is not None)
        self._fill(frame, cache, ids, parents)
        logits = self._run(frame)[:count]
        cache.grown(count, parents)
        return logits

    def _frame(self, rows: int, span: int, is_tree: bool) -> Frame:
        self._rotate_up_to(self.store.capacity)
        memory = (self.store.held[0].data_ptr(), self._turns.data_ptr(), self._tapped, self.store.features is None)
        if memory != self._memory:  # what was captured writes to addresses that are no longer ours
            self._frames, self._memory = {}, memory
        key = (rows, span, is_tree)
        if key not in self._frames:
            inputs = torch.zeros((3, rows), dtype=torch.long, device=self.device)
            seen = torch.zeros((rows, span), dtype=torch.bool, device=self.device) if is_tree else None
            self._frames[key] = Frame(inputs, seen, span)
        return self._frames[key]

    def _fill(self, frame: Frame, cache: KVCache, ids: Sequence[int] | Tensor, parents: Sequence[int] | None) -> None:
        count = len(ids)
        given = self._staging(frame.inputs.shape[1])
        given.zero_()
        given[2] = self.store.capacity  # where padding writes
        given[2, :count] = torch.arange(cache.length, cache.length + count)
        if frame.seen is None:
            given[1, :count] = given[2, :count]
        else:
            depths, ancestors = genealogy(cache.links, count, parents)
            given[1, :count] = cache.base + depths
            seen = torch.zeros(frame.seen.shape, dtype=torch.bool)
            seen[count:, 0] = True  # padding has to see something
            seen[:count, : cache.base] = True
            seen[:count, cache.base : cache.length + count] = ancestors
            frame.seen.copy_(seen, non_blocking=True)
        if not isinstance(ids, Tensor):
            given[0, :count] = torch.tensor(ids)
        frame.inputs.copy_(given, non_blocking=True)
        if isinstance(ids, Tensor):  # drafted on the device, and not read from there yet
            frame.inputs[0, :count] = ids

    def _staging(self, rows: int) -> Tensor:
        """(3, rows) on the host, from where it can be copied without waiting."""
        if len(self._ring) < RING:
            self._ring.append(torch.zeros((3, ROWS[-1]), dtype=torch.long, pin_memory=self.device.type == "cuda"))
        self._turn = (self._turn + 1) % RING
        return self._ring[self._turn % len(self._ring)][:, :rows]

    def _run(self, frame: Frame) -> Tensor:
        if self.device.type != "cuda":
            return self._body(frame)
        if frame.graph is None:
            self._capture(frame)
        frame.graph.replay()
        return frame.logits.clone()  # the next replay writes there

    def _body(self, frame: Frame) -> Tensor:
        """(rows, vocabulary) logits; all that it reads is in the frame's buffers."""
        ids, positions, places = frame.inputs
        self.store.plan = Many(torch.zeros(1, dtype=torch.long, device=self.device), places[None], 0, frame.span, True)
        seen = frame.seen
        if seen is None:
            seen = torch.arange(frame.span, device=self.device) <= positions[:, None]
        mask = torch.zeros(seen.shape, device=self.device).masked_fill_(~seen, -torch.inf)
        return self._forward(ids[None], ids.shape[0], attention_mask=mask[None, None], position_ids=positions[None])[0]

    def _capture(self, frame: Frame) -> None:
        """Run once eagerly, which allocates what is allocated once, then capture.

        Raises:
            ModelError: the replayed pass gives other logits.
        """
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            eager = self._body(frame)
        torch.cuda.current_stream(self.device).wait_stream(side)
        frame.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(frame.graph):
            frame.logits = self._body(frame)
        frame.graph.replay()
        off = (frame.logits - eager).abs().max() / eager.float().std()
        if not bool(off < SAME) and bool(eager.isfinite().all()):
            raise ModelError(
                f"A captured pass of {self.name} gives other logits than the same pass run directly: "
                "load it with path='transformers'."
            )
