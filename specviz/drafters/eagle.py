"""Draft types `eagle` and `eagle-tree`: one trained layer beside the target, which reads the target's own features.

EAGLE-3 (Li et al. 2025) over a frequency-ranked vocabulary (FR-Spec: Zhao et al. 2025). Row t of the head's memory is
made of the target's features at t and the token behind it, so behind n committed ids it has n - 1 rows of features;
what is drafted hangs behind them as a tree and reads the head's own output instead. Rows of features never change,
since committed ids never do: whatever else wrote the text, the head reads on from the target's memory. Held by
tests/unit/test_eagle.py; losslessness by tests/statistical/test_exact.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from specviz.drafters.limited import HeadChain, LimitedModel, likeliest
from specviz.drafters.protocol import Ask, Passes, Proposal, Start
from specviz.drafters.shapes import EagleShape, rotate, rotations
from specviz.drafters.tree import DynamicTree, _Reading, path_to
from specviz.engine.cache import ROOT, KVCache, Pass
from specviz.engine.model import LanguageModel

#: Rows of features read at a time.
READ_ROWS = 512
TOO_SHORT = "the head has nothing to read yet: the text is one token long"


class HeadCache:
    """What the head keeps of one text: `base` rows made of features, and a tree of drafted rows behind them.

    Args:
        model: the head.
        target: the target's memory of the same text.
        capacity: rows that are expected.
    """

    def __init__(self, model: EagleModel, target: KVCache, capacity: int) -> None:
        shape = model.shape
        self.model, self.target = model, target
        self.base = 0
        self._links: list[int] = []
        self._depths: list[int] = []
        self._states: list[Tensor] = []  # (1, hidden) outputs: of the last row of features, then of the drafted rows
        options = {"dtype": model.precision, "device": model.device}
        self._keys = torch.zeros((shape.kv_heads, shape.head_dim, capacity), **options)
        self._values = torch.zeros((shape.kv_heads, capacity, shape.head_dim), **options)

    def rollback(self, base: int) -> None:
        """Forget what was drafted, and all but the first `base` rows."""
        assert base <= self.base
        self.base = base
        self._links, self._depths, self._states = [], [], []

    def states(self, parents: Sequence[int]) -> Tensor:
        """(len(parents), hidden) outputs of the rows that are drafted behind."""
        return torch.cat([self._states[parent + 1] for parent in parents])

    def grow(self, parents: Sequence[int] | None, count: int) -> tuple[int, list[int]]:
        """Make place for `count` rows; (the first one's place, rotary position of each)."""
        start = self.base + len(self._links)
        if parents is None:
            assert not self._links
            self.base += count
            positions = list(range(start, start + count))
        else:
            for parent in parents:
                self._depths.append(0 if parent == ROOT else self._depths[parent] + 1)
            self._links += parents
            positions = [self.base + depth for depth in self._depths[-count:]]
        if (missing := start + count - self._keys.shape[2]) > 0:
            more = max(missing, self._keys.shape[2])
            self._keys, self._values = F.pad(self._keys, (0, more)), F.pad(self._values, (0, 0, 0, more))
        return start, positions

    def write(self, start: int, keys: Tensor, values: Tensor) -> None:
        """Keep (rows, kv_heads, head_dim) keys and values from place `start` on."""
        end = start + len(keys)
        self._keys[:, :, start:end] = keys.permute(1, 2, 0)
        self._values[:, start:end] = values.transpose(0, 1)

    def attend(self, queries: Tensor, mask: Tensor | None) -> Tensor:
        """(rows, heads * head_dim) for (rows, heads, head_dim) queries of the latest rows."""
        rows, heads, size = queries.shape
        end, kv_heads = self.base + len(self._links), self._keys.shape[0]
        grouped = queries.view(rows, kv_heads, -1, size).permute(1, 2, 0, 3).reshape(kv_heads, -1, size)
        scores = grouped.bmm(self._keys[:, :, :end]).mul_(size**-0.5)
        if mask is not None:
            scores.view(kv_heads, -1, rows, end)[..., self.base :].masked_fill_(mask, -torch.inf)
        mixed = scores.softmax(-1).bmm(self._values[:, :end])
        return mixed.view(kv_heads, -1, rows, size).permute(2, 0, 1, 3).reshape(rows, heads * size)

    def unseen(self, count: int) -> Tensor | None:
        """(count, drafted rows) true where one of the latest rows must not look: anything but its own ancestors."""
        total = len(self._links)
        if self._links == list(range(ROOT, total - 1)) and count == 1:
            return None
        hidden = torch.ones((count, total), dtype=torch.bool)
        for i in range(count):
            row = total - count + i
            while row != ROOT:
                hidden[i, row] = False
                row = self._links[row]
        return hidden.to(self._keys.device)

    def note(self, outputs: Tensor, is_chain: bool) -> None:
        """Keep the outputs of the latest rows; of rows of features the last one's only."""
        self._states = [outputs[-1:]] if is_chain else [*self._states, *outputs.split(1)]


class EagleModel(LimitedModel):
    """The head's forward pass, over the target's features or its own output; arguments as for `LimitedModel`."""

    shape: EagleShape

    def __init__(
        self,
        target: LanguageModel,
        weights: Mapping[str, Tensor],
        shape: EagleShape,
        vocabulary: Tensor,
        name: str = "eagle head",
        warning: str | None = None,
    ) -> None:
        super().__init__(target, weights, shape, vocabulary, name, warning)
        self._norm = weights["norm"].to(self.device, torch.float32).contiguous()
        # The part for the embedding reads the first half of what qkv reads: side by side they are one product.
        wide = F.pad(weights["embed"], (0, shape.hidden))
        self._fuse, self._joined = self._pack(weights["fuse"]), self._pack(torch.cat([weights["qkv"], wide]))
        self._out, self._up, self._down = (self._pack(weights[name]) for name in ("out", "up", "down"))
        self._turns = rotations(shape, 0, 0, self.precision, self.device)

    def read(self, cache: HeadCache, ids: Sequence[int]) -> None:
        """Make rows of features of the next `ids`, without an output."""
        ids = list(ids)
        _, _, joined = self._enter(self._fused(cache, len(ids)), ids)
        self._remember(cache, joined, None)

    def run(self, passes: Sequence[Pass]) -> list[Tensor]:
        """(1 or len(ids), draft vocabulary) logits of each pass.

        With `parents` None the rows are made of features and the last one speaks; else they are drafted, and all do.
        """
        states = [
            self._fused(one.cache, len(one.ids)) if one.parents is None else one.cache.states(one.parents)
            for one in passes
        ]
        ids = [token for one in passes for token in one.ids]
        state, added, joined = self._enter(torch.cat(states) if len(states) > 1 else states[0], ids)
        mixed, speaking, at = [], [], 0
        for one in passes:
            end, first = at + len(one.ids), at + len(one.ids) - 1 if one.parents is None else at
            queries = self._remember(one.cache, joined[at:end], one.parents)[first - at :]
            mask = None if one.parents is None else one.cache.unseen(len(one.ids))
            mixed.append(one.cache.attend(queries, mask))
            speaking.append(slice(first, end))
            at = end
        output = self._leave(_rows(state, speaking), _rows(added, speaking), torch.cat(mixed))
        logits = self._head(self._normed(output, self._norm))
        sizes = [part.stop - part.start for part in speaking]
        for one, part in zip(passes, output.split(sizes), strict=True):
            one.cache.note(part, one.parents is None)
        return list(logits.split(sizes))

    def _fused(self, cache: HeadCache, count: int) -> Tensor:
        features = cache.target.features(cache.base, cache.base + count).unflatten(-1, (-1, self.shape.hidden))
        return self._fuse(self._normed(features).flatten(-2).to(self.dtype))

    def _enter(self, state: Tensor, ids: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """(normalised state, what the embedding adds to it, (rows, heads, head_dim) queries, keys and values)."""
        shape = self.shape
        embedded = self._normed(F.embedding(torch.tensor(ids, device=self.device), self._embedding))
        state = self._normed(state)
        joined = self._joined(torch.cat([embedded, state], -1))
        return state, joined[:, -shape.hidden :], joined[:, : -shape.hidden].unflatten(-1, (-1, shape.head_dim))

    def _remember(self, cache: HeadCache, joined: Tensor, parents: Sequence[int] | None) -> Tensor:
        """Keep keys and values; (rows, heads, head_dim) queries at their positions."""
        shape = self.shape
        start, positions = cache.grow(parents, len(joined))
        if positions[-1] >= len(self._turns[0]):
            length = max(256, 2 * (max(positions) + 1))
            self._turns = rotations(shape, 0, length, self.precision, self.device)
        if len(positions) == 1 or parents is None:
            where = slice(positions[0], positions[-1] + 1)
        else:
            where = torch.tensor(positions, device=self.device)
        cos, sin = (turn[where, None] for turn in self._turns)
        joined = joined.to(self.precision)
        turned = rotate(joined[:, : shape.heads + shape.kv_heads], cos, sin)
        cache.write(start, turned[:, shape.heads :], joined[:, shape.heads + shape.kv_heads :])
        return turned[:, : shape.heads]

    def _leave(self, state: Tensor, added: Tensor, mixed: Tensor) -> Tensor:
        state = state + added + self._out(mixed.to(state.dtype))
        gate, up = self._up(self._normed(state)).chunk(2, -1)
        return state + self._down(F.silu(gate) * up)


def _rows(rows: Tensor, parts: Sequence[slice]) -> Tensor:
    return rows[parts[0]] if len(parts) == 1 else torch.cat([rows[part] for part in parts])


class EagleContext:
    """The head's memory, kept to a prefix of the committed ids."""

    def __init__(self, model: EagleModel) -> None:
        self.model = model
        self._cache: HeadCache | None = None

    def begin(self, start: Start) -> None:
        self._cache = HeadCache(self.model, start.cache, start.capacity)
        known = min(len(start.ids) - 1, start.cache.base)  # less where reading the prompt was cancelled
        for first in range(0, known, READ_ROWS):
            if start.cancelled():
                return
            self.model.read(self._cache, start.ids[first + 1 : min(first + READ_ROWS, known) + 1])

    def behind(self, context: Sequence[int]) -> tuple[HeadCache, list[int]]:
        """(the cache, the ids of the rows it lacks: at least the last, whose output is drafted from)."""
        keep = min(self._cache.base, len(context) - 2)
        self._cache.rollback(keep)
        return self._cache, list(context[keep + 1 :])

    def fed(self, ids: Sequence[int]) -> None:
        pass


class EagleDrafter(HeadChain):
    """Drafts a chain."""

    type = "eagle"
    too_short = TOO_SHORT

    def __init__(self, model: EagleModel) -> None:
        super().__init__(model)
        self._context = EagleContext(model)
        self._cache: HeadCache | None = None

    def begin(self, start: Start) -> None:
        self._context.begin(start)

    def _first(self, context: Sequence[int]) -> Pass | None:
        if len(context) < 2:
            return None
        self._cache, pending = self._context.behind(context)
        return Pass(self._cache, pending)

    def _next(self, context: Sequence[int], path: Sequence[int]) -> Pass:
        return Pass(self._cache, path[-1:], [len(path) - 2])


class EagleTree(DynamicTree):
    """Drafts a dynamic tree (EAGLE-2: Li et al. 2024, §4), a level at a time."""

    type = "eagle-tree"

    def __init__(self, model: EagleModel, candidates: int) -> None:
        super().__init__(EagleContext(model), model.device, candidates)

    def propose(self, ask: Ask) -> Passes[Proposal]:
        if len(ask.context) < 2:
            return Proposal(note=TOO_SHORT)
        return (yield from super().propose(ask))

    def _expand(self, proposal: Proposal, ask: Ask, level: int, readings: Sequence[_Reading]) -> None:
        logits = torch.stack([reading.logits for reading in readings])
        paths = [path_to(proposal, reading.node) for reading in readings]
        tokens, confidences = likeliest(self.model, ask, logits, paths, self._candidates)
        for reading, ids, values in zip(readings, tokens, confidences, strict=True):
            for token, confidence in zip(ids, values, strict=True):
                proposal.add(token, None, reading.node, confidence=confidence, source=self.type)
