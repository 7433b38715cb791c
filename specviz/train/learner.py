"""What every trained draft has in common while it learns: its own weights, the target's frozen rows, and the loss.

A learner says what it makes of a `Batch`: rows that the target's head rows multiply, for each position it drafts.
How these are judged is the same for all of them. Held by tests/unit/test_train.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specviz.drafters.shapes import Shape
from specviz.train.features import Batch

#: How much less each later position counts.
DECAY = 0.8
#: How much the negative log of the overlap counts beside the cross entropy.
OVERLAP_WEIGHT = 0.5
#: Rows whose logits are held at a time: they stay in the processor's cache.
ROWS = 128


@dataclass(slots=True)
class Figures:
    """Of each drafted position: rows, mean overlap with the target, share of equal argmax."""

    rows: list[int]
    overlap: list[float]
    agreement: list[float]


class Learner(nn.Module):
    """Weights of a head in float32; the target's embedding and head rows are beside them, frozen and not saved.

    Args:
        shape: its sizes; the weights are those of `shape.sizes()`.
        embedding: (vocabulary, hidden) of the target.
        head: (draft vocabulary, hidden) rows of the target's output head.
    """

    #: Positions a step of training looks at, and those measured.
    positions: ClassVar[int] = 1
    measured: ClassVar[int] = 1
    #: Weights that begin at nothing, by the last part of their names: what is added to a stream.
    still: ClassVar[tuple[str, ...]] = ()

    def __init__(self, shape: Shape, embedding: Tensor, head: Tensor) -> None:
        super().__init__()
        self.shape, self._frozen = shape, (embedding, head)
        for name, size in shape.sizes().items():
            owner, last = self._owner(name)
            if len(size) == 1:
                weight = torch.ones(size)
            else:
                weight = torch.zeros(size) if last in self.still else torch.randn(size) / math.sqrt(size[1])
            owner.register_parameter(last, nn.Parameter(weight))

    def _owner(self, name: str) -> tuple[nn.Module, str]:
        """The module that holds a weight, and the weight's name there."""
        *path, last = name.split(".")
        owner: nn.Module = self
        for part in path:
            if not hasattr(owner, part):
                owner.add_module(part, nn.Module())
            owner = getattr(owner, part)
        return owner, last

    @property
    def embedding(self) -> Tensor:
        return self._frozen[0]

    @property
    def head(self) -> Tensor:
        return self._frozen[1]

    def parts(self) -> dict[str, list[int]]:
        """How many rows of each matrix belong together: what is optimised as one matrix."""
        return {}

    def outputs(self, batch: Batch, positions: int) -> Iterator[tuple[int, Tensor]]:
        """For each position (how many tokens of the batch it is given ahead of its place, (B, L, hidden) rows).

        The row at place t speaks of the token behind place t + ahead.
        """
        raise NotImplementedError

    def final(self, rows: Tensor) -> Tensor:
        """What the head's rows multiply, for (n, hidden) outputs of a position."""
        return F.rms_norm(rows.float(), (self.shape.hidden,), self.norm, self.shape.eps)

    def judged(self, batch: Batch, positions: int, answers_only: bool = False) -> tuple[Tensor, Figures]:
        """(loss, figures) of a batch; with `answers_only` of places whose next token is the target's answer."""
        batch_size, length = batch.ids.shape
        counted = batch.answer if answers_only else batch.asked
        loss, figures = self.embedding.new_zeros((), dtype=torch.float32), Figures([], [], [])
        for position, (ahead, output) in enumerate(self.outputs(batch, positions)):
            wanted = torch.zeros_like(counted)
            wanted[:, : length - ahead] = counted[:, ahead:]
            where = wanted.flatten().nonzero()[:, 0]
            there = (where + ahead).clamp_(max=batch_size * length - 1)
            rows = self.final(output.flatten(0, 1)[where])
            top, p = (part.flatten(0, 1)[there] for part in (batch.top, batch.p))
            part, overlap, agreement = HeadLoss.apply(rows, self.head, top, p)
            loss = loss + DECAY**position * part
            figures.rows.append(len(where))
            figures.overlap.append(float(overlap.detach()))
            figures.agreement.append(float(agreement.detach()))
        return loss, figures

    def embedded(self, ids: Tensor) -> Tensor:
        """(..., hidden) embeddings, normalised without weights."""
        hidden = self.shape.hidden
        return F.rms_norm(F.embedding(ids, self.embedding).float(), (hidden,), eps=self.shape.eps)

    def working(self) -> torch.dtype:
        """What matrix products run in."""
        kind = self.embedding.device.type
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32


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
