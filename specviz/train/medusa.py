"""The medusa heads as they are trained: residual blocks side by side on the target's last hidden state.

Medusa-1 (Cai et al. 2024, §2.2.1): the target is frozen, and each head learns the target's own distribution so many
tokens ahead, knowing none of the tokens between. The target's head rows serve all of them, so a matrix behind the SiLU
does what there each head's own output matrix does. Held by tests/unit/test_train.py and, against the drafter's own
pass, by tests/unit/test_medusa.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch.nn.functional as F
from torch import Tensor

from specviz.drafters.shapes import MedusaShape
from specviz.train.features import Batch
from specviz.train.learner import Learner


class MedusaHeads(Learner):
    """A fresh one says what the target itself says next: what is added begins at nothing."""

    shape: MedusaShape

    def __init__(self, shape: MedusaShape, embedding: Tensor, head: Tensor) -> None:
        self.still = tuple(f"leave{i}" for i in range(shape.depth))
        super().__init__(shape, embedding, head)
        self.positions = self.measured = shape.depth

    def outputs(self, batch: Batch, positions: int) -> Iterator[tuple[int, Tensor]]:
        hidden, eps = (self.shape.hidden,), self.shape.eps
        state = F.rms_norm(batch.features[..., -hidden[0] :].float(), hidden, eps=eps)
        for i in range(positions):
            enter, leave, keep, norm = (getattr(self, f"{name}{i}") for name in ("enter", "leave", "keep", "norm"))
            mixed = state * keep + F.linear(F.silu(F.linear(state, enter)), leave)
            yield i + 1, F.rms_norm(mixed, hidden, norm, eps)

    def final(self, rows: Tensor) -> Tensor:
        return rows.float()
