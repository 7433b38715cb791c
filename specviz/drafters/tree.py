"""Draft types `tree` and `tree-dynamic`: a model's drafts as a token tree with a budget of nodes.

Drafting costs one pass a level, like a chain's token, and the target verifies the whole tree in one pass.
Held by tests/unit/test_trees.py; losslessness by tests/statistical.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from specviz.drafters.model import OwnContext, SharedContext, full
from specviz.drafters.protocol import Ask, Passes, Proposal, Start
from specviz.engine.cache import ROOT, Pass

#: How likely the first, second, ... child of a node is taken to be the one accepted; decides the static shape only.
RANK_PRIORS = (0.6, 0.2, 0.1, 0.05)


@dataclass(slots=True)
class _Reading:
    """The draft model's view behind one node: its logits there and the row it stands at in the draft's cache."""

    node: int
    row: int
    logits: Tensor


class _TreeDrafter:
    """What both shapes share: one pass a level over the nodes to be expanded.

    Args:
        context: the model and its cache.
        device: the target's, where q is handed over.
        candidates: the most children of a node; the budget is `candidates` nodes for each level.
    """

    type: str

    def __init__(self, context: OwnContext | SharedContext, device: torch.device, candidates: int) -> None:
        self.model, self._device, self._candidates = context.model, device, candidates
        self.name, self.params, self.warning = context.model.name, context.model.params, context.model.warning
        self._context = context

    def begin(self, start: Start) -> None:
        self._context.begin(start)

    def width(self, gamma: int) -> int:
        return gamma * self._candidates

    def propose(self, ask: Ask) -> Passes[Proposal]:
        room = self.model.max_positions - len(ask.context) + 1
        depth = min(room, ask.gamma)
        proposal = Proposal(note=full(self.model) if room < ask.gamma else None)
        if depth <= 0:
            return proposal
        cache, pending = self._context.behind(ask.context)
        (logits,) = yield [Pass(cache, pending)]
        self._context.fed(pending)
        self._begin(depth)
        readings = [_Reading(ROOT, ROOT, logits[-1])]
        rows = 0
        for level in range(depth):
            self._expand(proposal, ask, level, readings)
            nodes = self._chosen(proposal, level) if level + 1 < depth else []
            nodes = [node for node in nodes if proposal.confidence[node] >= ask.min_confidence]
            if not nodes:
                break
            row_of = {reading.node: reading.row for reading in readings}
            (logits,) = yield [
                Pass(cache, [proposal.ids[n] for n in nodes], [row_of[proposal.parents[n]] for n in nodes])
            ]
            readings = [_Reading(n, rows + i, logits[i]) for i, n in enumerate(nodes)]
            rows += len(nodes)
        return self._finish(proposal)

    def _begin(self, depth: int) -> None:
        """Prepare for a tree of so many levels."""

    def _expand(self, proposal: Proposal, ask: Ask, level: int, readings: Sequence[_Reading]) -> None:
        """Add children behind the nodes that were read."""
        raise NotImplementedError

    def _chosen(self, proposal: Proposal, level: int) -> list[int]:
        """The nodes just added that are read next."""
        raise NotImplementedError

    def _finish(self, proposal: Proposal) -> Proposal:
        return proposal

    def _adjusted(self, ask: Ask, path: Sequence[int], reading: _Reading) -> Tensor:
        """The draft's (vocabulary,) confidences behind `path`: with penalties and bias, at temperature 1."""
        logits = reading.logits[None].to(self._device)
        return ask.warp.adjust(logits, ask.context, [path])[0].softmax(-1)

    def _best(self, proposal: Proposal, ask: Ask, reading: _Reading, count: int) -> None:
        """The `count` likeliest tokens as children, chosen and not drawn: q is one-hot for each."""
        path = path_to(proposal, reading.node)
        confidences = self._adjusted(ask, path, reading)
        raw = reading.logits.to(self._device).float().softmax(-1)
        for token in confidences.topk(min(count, len(confidences))).indices.tolist():
            confidence = float(confidences[token])
            proposal.add(token, None, reading.node, confidence=confidence, source=self.type, raw_q=raw)


class StaticTree(_TreeDrafter):
    """A tree whose shape is fixed beforehand: the budget goes to the places with the largest product of rank priors.

    Children are drawn without replacement, each from the draft's distribution renormalised over what is left, and
    keep the order drawn (SpecInfer: Miao et al. 2023, §4; Chen et al. 2024, Sequoia, §3.2). Where the distribution is
    one-hot (temperature 0) there is nothing to draw and the children are the likeliest tokens.
    """

    type = "tree"

    def _begin(self, depth: int) -> None:
        self._shape = static_shape(depth, self._candidates)
        self._ranks: dict[int, tuple[int, ...]] = {ROOT: ()}

    def _expand(self, proposal: Proposal, ask: Ask, level: int, readings: Sequence[_Reading]) -> None:
        for reading in readings:
            ranks, before = self._ranks[reading.node], len(proposal.ids)
            count = self._shape.get(ranks, 0)
            if ask.warp.greedy:
                self._best(proposal, ask, reading, count)
            else:
                self._draw(proposal, ask, level, reading, count)
            for node in range(before, len(proposal.ids)):
                self._ranks[node] = (*ranks, node - before)

    def _chosen(self, proposal: Proposal, level: int) -> list[int]:
        return [node for node, ranks in self._ranks.items() if len(ranks) == level + 1 and self._shape.get(ranks)]

    def _draw(self, proposal: Proposal, ask: Ask, level: int, reading: _Reading, count: int) -> None:
        path = path_to(proposal, reading.node)
        left = ask.warp(reading.logits[None].to(self._device), ask.context, [path])[0]
        raw = reading.logits.to(self._device).float().softmax(-1)
        for _ in range(count):
            total = left.sum()
            if total <= 0:
                break
            q = left / total
            token = ask.noise.draft(q, len(ask.context) + level)
            proposal.add(token, q, reading.node, confidence=float(raw[token]), source=self.type, raw_q=raw)
            left = q.clone()
            left[token] = 0


class DynamicTree(_TreeDrafter):
    """EAGLE-2 (Li et al. 2024, §4): expand the nodes of largest cumulated confidence, then keep the best of all.

    Children are chosen, not drawn, so leaving nodes out afterwards bends nothing.
    """

    type = "tree-dynamic"

    def _expand(self, proposal: Proposal, ask: Ask, level: int, readings: Sequence[_Reading]) -> None:
        for reading in readings:
            self._best(proposal, ask, reading, self._candidates)

    def _chosen(self, proposal: Proposal, level: int) -> list[int]:
        values, depths = cumulated(proposal), proposal.depths()
        frontier = [node for node in range(len(proposal.ids)) if depths[node] == level]
        return sorted(heapq.nlargest(self._candidates, frontier, key=lambda node: values[node]))

    def _finish(self, proposal: Proposal) -> Proposal:
        values = cumulated(proposal)
        depth = max(proposal.depths(), default=-1) + 1
        # A parent never weighs less than its child, and comes first where they tie: what is kept hangs together.
        best = sorted(range(len(values)), key=lambda node: (-values[node], node))[: depth * self._candidates]
        kept, places = Proposal(note=proposal.note), {ROOT: ROOT}
        for node in sorted(best):
            places[node] = kept.add(
                proposal.ids[node],
                None,
                places[proposal.parents[node]],
                confidence=proposal.confidence[node],
                source=proposal.source[node],
                raw_q=proposal.raw_q[node],
            )
        return kept


def path_to(proposal: Proposal, node: int) -> list[int]:
    """The ids from the root to `node`, its own last; none for the root."""
    path = []
    while node != ROOT:
        path.append(proposal.ids[node])
        node = proposal.parents[node]
    return path[::-1]


def cumulated(proposal: Proposal) -> list[float]:
    """For each node the product of confidences on its path: how likely the draft thinks it is reached and kept."""
    values: list[float] = []
    for confidence, parent in zip(proposal.confidence, proposal.parents, strict=True):
        values.append(confidence * (1.0 if parent == ROOT else values[parent]))
    return values


@cache
def static_shape(depth: int, candidates: int) -> dict[tuple[int, ...], int]:
    """How many children each place has in a tree of `depth` levels and `depth * candidates` nodes.

    A place is the tuple of ranks on its path. Best first by the product of `RANK_PRIORS` (Cai et al. 2024, Medusa,
    §2.3.3: the nodes with the highest estimated accuracy).
    """
    children: dict[tuple[int, ...], int] = {}
    heap = [(-RANK_PRIORS[rank], (rank,)) for rank in range(candidates)]
    heapq.heapify(heap)
    for _ in range(depth * candidates):
        if not heap:
            break
        value, place = heapq.heappop(heap)
        children[place[:-1]] = children.get(place[:-1], 0) + 1
        if len(place) < depth:
            for rank in range(candidates):
                heapq.heappush(heap, (value * RANK_PRIORS[rank], (*place, rank)))
    return children
