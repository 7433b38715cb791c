"""The feed-forward draft as it is trained: an MLP over the last few tokens' embeddings (Bengio et al. 2003, §2).

Held by tests/unit/test_train.py and, against the drafter's own pass, by tests/unit/test_feedforward.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from specviz.drafters.shapes import FeedForwardShape
from specviz.train.features import Batch
from specviz.train.learner import Learner


class FeedForward(Learner):
    """It makes what is added to the latest token's embedding. Later positions are drafted from its own tokens, by the
    same weights, so one is learnt."""

    shape: FeedForwardShape

    def outputs(self, batch: Batch, positions: int) -> Iterator[tuple[int, Tensor]]:
        table, window = self.embedded(batch.ids), self.shape.window
        # Where the text is shorter than the window there is nothing, and nothing is zeros.
        padded = F.pad(table, (0, 0, window - 1, 0)).to(self.working())
        wide = torch.cat([padded[:, i : i + table.shape[1]] for i in range(window)], -1)
        yield 0, table + F.linear(F.silu(F.linear(wide, self.enter)), self.leave)
