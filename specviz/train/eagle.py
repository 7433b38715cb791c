"""The eagle head as it is trained: one decoder layer that reads its own output back, as it will when it drafts.

EAGLE-3 (Li et al. 2025, §3.2, "training-time test"): the first position reads the target's features, each later one
the layer's own output at the position before. Held by tests/unit/test_train.py and, against the drafter's own
forward pass, by tests/unit/test_eagle.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from specviz.drafters.shapes import EagleShape, rotate, rotations
from specviz.train.features import Batch
from specviz.train.learner import Learner


class EagleLayer(Learner):
    """Norms have no weights where a matrix follows that can learn them."""

    shape: EagleShape
    positions: ClassVar[int] = 3
    measured: ClassVar[int] = 4
    still: ClassVar[tuple[str, ...]] = ("out", "down")

    def parts(self) -> dict[str, list[int]]:
        shape = self.shape
        return {
            "qkv": [shape.heads * shape.head_dim, *[shape.kv_heads * shape.head_dim] * 2],
            "up": [shape.inner, shape.inner],
        }

    def outputs(self, batch: Batch, positions: int) -> Iterator[tuple[int, Tensor]]:
        length = batch.ids.shape[1]
        table, dtype = self.embedded(batch.ids), self.working()
        mask = torch.ones((length, length), dtype=torch.bool, device=table.device).triu_(1)
        state = self.fused(batch.features)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for position in range(positions):
            ahead = position + 1
            embedded = torch.roll(table, -ahead, 1).to(dtype)
            state = self(embedded, state, position, keys, values, mask)
            yield ahead, state

    def fused(self, features: Tensor) -> Tensor:
        """(..., hidden) of (..., sources * hidden) features: each source normalised by itself."""
        hidden = self.shape.hidden
        parts = features.unflatten(-1, (-1, hidden))
        return F.linear(F.rms_norm(parts.float(), (hidden,), eps=self.shape.eps).flatten(-2), self.fuse)

    def forward(
        self, embedded: Tensor, state: Tensor, start: int, keys: list[Tensor], values: list[Tensor], mask: Tensor
    ) -> Tensor:
        """(B, L, hidden) output of one position of the unrolled layer.

        Args:
            embedded: (B, L, hidden) normalised embeddings of the token behind each place.
            state: (B, L, hidden) fused features, or the output of the position before.
            start: rotary position of the first place.
            keys, values: (B, heads, L, head_dim) of the positions before; this one's are appended.
            mask: (L, L) true where a place does not see the target's past.
        """
        shape = self.shape
        state = F.rms_norm(state, (shape.hidden,), eps=shape.eps)
        batch, length, _ = state.shape
        joined = F.linear(torch.cat([embedded, state.to(embedded.dtype)], -1), self.qkv)
        joined = joined.view(batch, length, -1, shape.head_dim)
        cos, sin = rotations(shape, start, length, joined.dtype, joined.device)
        turned = rotate(joined[:, :, : shape.heads + shape.kv_heads], cos[:, None], sin[:, None])
        group = shape.heads // shape.kv_heads
        query = turned[:, :, : shape.heads].transpose(1, 2)
        keys.append(turned[:, :, shape.heads :].transpose(1, 2).repeat_interleave(group, 1))
        values.append(joined[:, :, shape.heads + shape.kv_heads :].transpose(1, 2).repeat_interleave(group, 1))
        mixed = _attend(query, keys, values, mask)
        state = state + F.linear(embedded, self.embed) + F.linear(mixed.transpose(1, 2).flatten(2), self.out)
        gate, up = F.linear(F.rms_norm(state, (shape.hidden,), eps=shape.eps), self.up).chunk(2, -1)
        return state + F.linear(F.silu(gate) * up, self.down)


def _attend(query: Tensor, keys: list[Tensor], values: list[Tensor], mask: Tensor) -> Tensor:
    """Places see the target's past up to themselves, and of the unrolled positions their own only."""
    if len(keys) == 1:
        return F.scaled_dot_product_attention(query, keys[0], values[0], is_causal=True)
    length, scale = query.shape[2], query.shape[3] ** -0.5
    past = (query * scale @ keys[0].transpose(-1, -2)).masked_fill(mask, -torch.inf)
    own = [(query * scale * key).sum(-1, keepdim=True) for key in keys[1:]]
    weights = torch.cat([past, *own], -1).softmax(-1).to(query.dtype)
    mixed = weights[..., :length] @ values[0]
    for i, value in enumerate(values[1:]):
        mixed = mixed + weights[..., length + i : length + i + 1] * value
    return mixed
