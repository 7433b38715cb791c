"""Draft type `feedforward`: a small network over the embeddings of the last few tokens, the cheapest learned draft.

A neural n-gram model (Bengio et al. 2003, §2) with the target's own embedding and head rows, over a frequency-ranked
vocabulary. It sees nothing but these tokens, which makes it the floor the other drafts are measured against. Held by
tests/unit/test_feedforward.py; losslessness by tests/statistical/test_exact.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specviz.drafters.limited import HeadChain, LimitedModel
from specviz.drafters.protocol import Start
from specviz.drafters.shapes import FeedForwardShape
from specviz.engine.cache import Pass
from specviz.engine.model import LanguageModel


@dataclass(slots=True)
class NoMemory:
    """In the place of a cache: each pass is given all that it reads."""

    model: FeedForwardModel


class FeedForwardModel(LimitedModel):
    """The network's forward pass; arguments as for `LimitedModel`."""

    shape: FeedForwardShape

    def __init__(
        self,
        target: LanguageModel,
        weights: Mapping[str, Tensor],
        shape: FeedForwardShape,
        vocabulary: Tensor,
        name: str = "feed-forward draft",
        warning: str | None = None,
    ) -> None:
        super().__init__(target, weights, shape, vocabulary, name, warning)
        self._norm = weights["norm"].to(self.device, torch.float32).contiguous()
        self._enter, self._leave = self._pack(weights["enter"]), self._pack(weights["leave"])

    def run(self, passes: Sequence[Pass]) -> list[Tensor]:
        """(1, draft vocabulary) logits of each pass, whose `ids` are the last ones, at most `window`."""
        window = self.shape.window
        ids = torch.tensor([[0] * (window - len(one.ids)) + list(one.ids) for one in passes], device=self.device)
        seen = self._normed(F.embedding(ids, self._embedding))
        for i, one in enumerate(passes):
            seen[i, : window - len(one.ids)] = 0  # the text begins here
        output = seen[:, -1] + self._leave(F.silu(self._enter(seen.flatten(1))))
        return list(self._head(self._normed(output, self._norm)).split(1))


class FeedForwardDrafter(HeadChain):
    """Drafts a chain."""

    type = "feedforward"

    def begin(self, start: Start) -> None:
        pass

    def _first(self, context: Sequence[int]) -> Pass:
        return self._next(context, ())

    def _next(self, context: Sequence[int], path: Sequence[int]) -> Pass:
        window = self.model.shape.window
        return Pass(NoMemory(self.model), [*context[-window:], *path][-window:])
