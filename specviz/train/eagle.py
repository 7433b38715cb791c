"""The eagle head as it is trained: one decoder layer that reads its own output back, as it will when it drafts.

EAGLE-3 (Li et al. 2025, §3.2, "training-time test"): the first position reads the target's features, each later one
the layer's own output at the position before. Held by tests/unit/test_train.py and, against the drafter's own
forward pass, by tests/unit/test_eagle.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specviz.drafters.head import HeadShape, rotate, rotations
from specviz.train.features import Batch

#: Positions it is unrolled over, and how much less each later one counts.
POSITIONS, DECAY = 3, 0.8
#: How much the negative log of the overlap counts beside the cross entropy.
OVERLAP_WEIGHT = 0.5
#: Rows whose logits are held at a time: they stay in the processor's cache.
ROWS = 128


class EagleLayer(nn.Module):
    """Weights of the head; the target's embedding and head rows are not among them.

    Norms have no weights where a matrix follows that can learn them.
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        for name, size in shape.sizes().items():
            # What is added to the stream begins at nothing.
            still = name in ("out", "down") or len(size) == 1
            weight = torch.zeros(size) if still else torch.randn(size) / math.sqrt(size[1])
            setattr(self, name, nn.Parameter(weight + 1 if name == "norm" else weight))

    def parts(self) -> dict[str, list[int]]:
        """How many rows of each matrix belong together: what is optimised as one matrix."""
        shape = self.shape
        return {
            "qkv": [shape.heads * shape.head_dim, *[shape.kv_heads * shape.head_dim] * 2],
            "up": [shape.inner, shape.inner],
        }

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

    def normed(self, output: Tensor) -> Tensor:
        """What the head's rows multiply."""
        return F.rms_norm(output.float(), (self.shape.hidden,), self.norm, self.shape.eps)


@dataclass(slots=True)
class Figures:
    """Of each unrolled position: rows, mean overlap with the target, share of equal argmax."""

    rows: list[int]
    overlap: list[float]
    agreement: list[float]


def unroll(
    layer: EagleLayer, embedding: Tensor, head: Tensor, batch: Batch, positions: int, answers_only: bool = False
) -> tuple[Tensor, Figures]:
    """(loss, figures) of a batch.

    Args:
        embedding: (vocabulary, hidden) of the target. head: (draft vocabulary, hidden) rows of the target's.
        answers_only: count only places whose next token is the target's answer.
    """
    shape = layer.shape
    batch_size, length = batch.ids.shape
    table = F.rms_norm(F.embedding(batch.ids, embedding).float(), (shape.hidden,), eps=shape.eps)
    counted = batch.answer if answers_only else batch.asked
    dtype = torch.get_autocast_dtype(table.device.type) if torch.is_autocast_enabled(table.device.type) else table.dtype
    mask = torch.ones((length, length), dtype=torch.bool, device=table.device).triu_(1)
    state = layer.fused(batch.features)
    keys: list[Tensor] = []
    values: list[Tensor] = []
    loss, figures = table.new_zeros(()), Figures([], [], [])
    for position in range(positions):
        ahead = position + 1
        embedded = torch.roll(table, -ahead, 1).to(dtype)
        state = layer(embedded, state, position, keys, values, mask)
        # Place t now speaks of the token behind t + ahead.
        wanted = torch.zeros_like(counted)
        wanted[:, : length - ahead] = counted[:, ahead:]
        where = wanted.flatten().nonzero()[:, 0]
        there = (where + ahead).clamp_(max=batch_size * length - 1)
        rows = layer.normed(state.flatten(0, 1)[where])
        top, p = (part.flatten(0, 1)[there] for part in (batch.top, batch.p))
        part, overlap, agreement = HeadLoss.apply(rows, head, top, p)
        loss = loss + DECAY**position * part
        figures.rows.append(len(where))
        figures.overlap.append(float(overlap.detach()))
        figures.agreement.append(float(agreement.detach()))
    return loss, figures


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


class HeadLoss(torch.autograd.Function):
    """Cross entropy with the target's distribution, and the negative log of the overlap Σ min(p, q).

    The head's rows are frozen, so the gradient with respect to its input is made along with the loss, a few rows at a
    time, and the logits are never kept.
    """

    @staticmethod
    def forward(ctx, rows: Tensor, head: Tensor, top: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        count = max(len(rows), 1)
        loss, overlaps, agreement = rows.new_zeros(()), rows.new_zeros(()), rows.new_zeros(())
        grad = torch.zeros_like(rows)
        for at in range(0, len(rows), ROWS):
            part = slice(at, at + ROWS)
            logits = F.linear(rows[part].to(head.dtype), head).float()
            log_mass = logits.logsumexp(-1, keepdim=True)
            q = (logits - log_mass).exp_()
            ours, theirs = q.gather(1, top[part]), p[part]
            overlap = torch.minimum(ours, theirs).sum(-1, keepdim=True).clamp_min(1e-6)
            below = ours.where(ours < theirs, torch.zeros_like(ours))
            loss -= (theirs * ours.clamp_min(1e-12).log()).sum() + OVERLAP_WEIGHT * overlap.log().sum()
            overlaps += overlap.sum()
            agreement += (q.argmax(-1) == top[part, 0]).sum()
            weight = OVERLAP_WEIGHT / overlap
            q *= theirs.sum(-1, keepdim=True) + weight * below.sum(-1, keepdim=True)
            q.scatter_add_(1, top[part], -(theirs + weight * below))
            grad[part] = F.linear(q.to(head.dtype), head.T).to(grad.dtype)
        ctx.save_for_backward(grad / count)
        ctx.mark_non_differentiable(overlaps, agreement)
        return loss / count, overlaps / count, agreement / count

    @staticmethod
    def backward(ctx, grad: Tensor, *_) -> tuple[Tensor, None, None, None]:
        return grad * ctx.saved_tensors[0], None, None, None
