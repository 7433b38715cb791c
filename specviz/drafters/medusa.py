"""Draft type `medusa`: heads side by side on the target's last hidden state, one for each position, as a tree.

Medusa-1 (Cai et al. 2024, §2.2.1) over a frequency-ranked vocabulary. All levels come from one small pass over the last
row the target has read, so no head knows which token the one before it proposed. Children are a level's likeliest
tokens, chosen and not drawn (q is one-hot for each), and the tree's shape is fixed beforehand by products of rank
priors (§2.3.3). Held by tests/unit/test_medusa.py; losslessness by tests/statistical/test_exact.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specviz.drafters.limited import LimitedModel, likeliest
from specviz.drafters.protocol import Ask, Passes, Proposal, Start
from specviz.drafters.shapes import MedusaShape
from specviz.drafters.tree import path_to, static_shape
from specviz.engine.cache import ROOT, KVCache, Pass
from specviz.engine.model import LanguageModel

TOO_SHORT = "the heads have nothing to read yet: the text is one token long"


@dataclass(slots=True)
class Row:
    """The row of a text's features that the heads read, in the place of a cache."""

    model: MedusaModel
    target: KVCache
    at: int


class MedusaModel(LimitedModel):
    """The heads' forward pass; arguments as for `LimitedModel`."""

    shape: MedusaShape

    def __init__(
        self,
        target: LanguageModel,
        weights: Mapping[str, Tensor],
        shape: MedusaShape,
        vocabulary: Tensor,
        name: str = "medusa heads",
        warning: str | None = None,
    ) -> None:
        super().__init__(target, weights, shape, vocabulary, name, warning)
        heads = range(shape.depth)
        # All heads read the same state: the first matrices are one.
        self._enter = self._pack(torch.cat([weights[f"enter{i}"] for i in heads]))
        self._leave = [self._pack(weights[f"leave{i}"]) for i in heads]
        self._keep, self._norm = (
            torch.stack([self._vector(weights[f"{name}{i}"]) for i in heads]) for name in ("keep", "norm")
        )

    def run(self, passes: Sequence[Pass]) -> list[Tensor]:
        """(depth, draft vocabulary) logits behind the row of each pass, whose cache is a `Row`."""
        rows = [one.cache.target.features(one.cache.at, one.cache.at + 1) for one in passes]
        state = self._normed(torch.cat(rows)[:, -self.shape.hidden :]).to(self.dtype)
        seen = F.silu(self._enter(state)).unflatten(-1, (self.shape.depth, -1))
        added = torch.stack([leave(seen[:, i].contiguous()) for i, leave in enumerate(self._leave)], 1)
        outputs = self._normed(state[:, None] * self._keep + added) * self._norm
        return list(self._head(outputs.flatten(0, 1)).unflatten(0, (len(passes), -1)))


class MedusaTree:
    """Proposes the heads' likeliest tokens as a tree of fixed shape.

    Args:
        model: the heads.
        candidates: the most children of a node; the budget is `candidates` nodes for each level.
    """

    type = "medusa"

    def __init__(self, model: MedusaModel, candidates: int) -> None:
        self.model, self._candidates = model, candidates
        self.name, self.params, self.warning = model.name, model.params, model.warning
        self._target: KVCache | None = None

    def begin(self, start: Start) -> None:
        self._target = start.cache

    def width(self, gamma: int) -> int:
        return min(gamma, self.model.shape.depth) * self._candidates

    def propose(self, ask: Ask) -> Passes[Proposal]:
        depth = min(ask.gamma, self.model.shape.depth)
        proposal = Proposal()
        if len(ask.context) < 2:
            proposal.note = TOO_SHORT
            return proposal
        if depth < ask.gamma:
            proposal.note = f"there are {depth} heads, so the draft is {depth} tokens deep"
        (logits,) = yield [Pass(Row(self.model, self._target, len(ask.context) - 2), ())]
        shape, ranks = static_shape(depth, self._candidates), {ROOT: ()}
        for level in range(depth):
            parents = [node for node, path in ranks.items() if len(path) == level and shape.get(path)]
            parents = [node for node in parents if node == ROOT or proposal.confidence[node] >= ask.min_confidence]
            if not parents:
                break
            self._expand(proposal, ask, logits[level], parents, shape, ranks)
        return proposal

    def _expand(
        self,
        proposal: Proposal,
        ask: Ask,
        logits: Tensor,
        parents: Sequence[int],
        shape: Mapping[tuple[int, ...], int],
        ranks: dict[int, tuple[int, ...]],
    ) -> None:
        """Add the children of a level; behind every node they are the same but for penalties."""
        paths = [path_to(proposal, node) for node in parents]
        rows = logits.expand(len(parents), -1)
        tokens, confidences = likeliest(self.model, ask, rows, paths, self._candidates)
        for parent, ids, values in zip(parents, tokens, confidences, strict=True):
            place = ranks[parent]
            for rank, (token, confidence) in enumerate(zip(ids[: shape[place]], values, strict=False)):
                node = proposal.add(token, None, parent, confidence=confidence, source=self.type)
                ranks[node] = (*place, rank)
