"""What the trained heads share: weights beside the target's own embedding and head rows, over some of its tokens.

A head drafts from a frequency-ranked part of the target's vocabulary (FR-Spec: Zhao et al. 2025): its q is normalised
there and 0 elsewhere, whatever the warp does. Held by tests/unit/test_eagle.py and tests/unit/test_heads.py;
losslessness by tests/statistical/test_exact.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from specviz.drafters.protocol import Ask, Passes, Proposal, Start
from specviz.drafters.shapes import Shape
from specviz.engine.cache import ROOT, Pass
from specviz.engine.matrices import Matrix, dense, pack, refuses
from specviz.engine.model import LanguageModel
from specviz.engine.sampling import best

#: A logit that no warp lifts to where it counts; -inf would be taken for damage.
OUTSIDE = -1e30


class LimitedModel:
    """A head's weights, packed for the device, and the rows of the target's that it uses.

    Args:
        target: whose embedding and head rows it uses; its layers `shape.taps` are tapped where features are read.
        weights: as `shape.sizes()` names them.
        vocabulary: (n,) sorted ids of the tokens it can draft.
        name: what people call it.
        warning: what is to be said of every run it drafts in.
    """

    def __init__(
        self,
        target: LanguageModel,
        weights: Mapping[str, Tensor],
        shape: Shape,
        vocabulary: Tensor,
        name: str = "trained head",
        warning: str | None = None,
    ) -> None:
        if shape.reads_features:
            target.tap(shape.taps)
        self.target, self.shape, self.name, self.warning = target, shape, name, warning
        self.max_positions, self.vocab_size, self.device = target.max_positions, target.vocab_size, target.device
        self.vocabulary = vocabulary.to(target.device)
        self.params = sum(weight.numel() for weight in weights.values())
        self.dtype = target.dtype
        self.precision = torch.float64 if target.dtype == torch.float64 else torch.float32
        self._embedding = target.embedding
        self._ones = torch.ones(shape.hidden)
        self._head = self._pack(target.head_rows(self.vocabulary))

    def _pack(self, weight: Tensor) -> Matrix:
        return packed(weight, self.target)

    def _vector(self, weight: Tensor) -> Tensor:
        return weight.to(self.device, self.dtype)

    def _normed(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        if x.device.type == "cpu" and x.dtype in (torch.bfloat16, torch.float32):
            from specviz.engine.kernels import rms_norm

            return rms_norm(x, self._ones if weight is None else weight, self.shape.eps)
        return F.rms_norm(x, (self.shape.hidden,), None if weight is None else weight.to(x.dtype), self.shape.eps)

    def run(self, passes: Sequence[Pass]) -> list[Tensor]:
        """(rows, draft vocabulary) logits of each pass."""
        raise NotImplementedError

    def spread(self, rows: Tensor, fill: float) -> Tensor:
        """(rows, draft vocabulary) values at their places in the target's vocabulary, `fill` elsewhere."""
        return spread(rows, self.vocabulary, self.vocab_size, fill)


def packed(weight: Tensor, target: LanguageModel) -> Matrix:
    """(out, in) weights as a matrix that goes with a target: int4 beside bf16 on a CPU, int8 where that does not fit.

    A head is read whole for every token, so its size is its cost; in int4 the bundled one is accepted as often as in
    int8 (1.578 and 1.576 tokens per target pass on 20 Spec-Bench prompts).
    """
    weight = weight.to(target.device)
    if target.dtype == torch.bfloat16 and target.device.type == "cpu":
        return pack("int8" if refuses("int4", [tuple(weight.shape)]) else "int4", [weight])
    return dense(weight, target.dtype)


def spread(rows: Tensor, vocabulary: Tensor, vocab_size: int, fill: float) -> Tensor:
    """(rows, vocab_size) with (rows, n) values at the places of `vocabulary`, `fill` elsewhere."""
    full = rows.new_full((*rows.shape[:-1], vocab_size), fill)
    return full.index_copy_(-1, vocabulary, rows)


def is_plain(ask: Ask) -> bool:
    """Whether the warp looks at nothing but the logits: then it means the same on the draft's vocabulary alone."""
    settings = ask.warp.settings
    return settings.repetition_penalty == 1 and settings.frequency_penalty == 0 and not settings.logit_bias


def distributions(model: LimitedModel, ask: Ask, logits: Tensor, path: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(q, unwarped q) over the target's vocabulary of (1, draft vocabulary) logits behind `path`."""
    logits = logits.to(model.precision)
    raw = model.spread(logits.softmax(-1), 0.0)[0]
    if is_plain(ask):
        return model.spread(ask.warp(logits, (), [()]), 0.0)[0], raw
    # Penalties and biases name ids of the whole vocabulary.
    return ask.warp(model.spread(logits, OUTSIDE), ask.context, [path])[0], raw


def likeliest(
    model: LimitedModel, ask: Ask, logits: Tensor, paths: Sequence[Sequence[int]], count: int
) -> tuple[list[list[int]], list[list[float]]]:
    """(ids, confidences at temperature 1) of the `count` likeliest tokens of each of (rows, draft vocabulary) logits
    behind its path, with penalties and bias."""
    plain, logits = is_plain(ask), logits.to(model.precision)
    if not plain:
        logits = ask.warp.adjust(model.spread(logits, OUTSIDE), ask.context, paths)
    top = logits.softmax(-1).topk(min(count, len(model.vocabulary)))
    tokens = model.vocabulary[top.indices] if plain else top.indices
    return tokens.tolist(), top.values.tolist()


class HeadChain:
    """Drafts a chain with a head, one pass a token."""

    type: str
    #: The note of a text that the head cannot draft behind yet.
    too_short: str = ""

    def __init__(self, model: LimitedModel) -> None:
        self.model, self.name, self.params, self.warning = model, model.name, model.params, model.warning

    def begin(self, start: Start) -> None:
        raise NotImplementedError

    def width(self, gamma: int) -> int:
        return gamma

    def _first(self, context: Sequence[int]) -> Pass | None:
        """The pass whose logits the first token is drawn from; None where the text is too short."""
        raise NotImplementedError

    def _next(self, context: Sequence[int], path: Sequence[int]) -> Pass:
        """The pass behind the tokens drafted so far."""
        raise NotImplementedError

    def propose(self, ask: Ask) -> Passes[Proposal]:
        proposal = Proposal()
        wanted = self._first(ask.context)
        if wanted is None:
            proposal.note = self.too_short
            return proposal
        node = ROOT
        for depth in range(ask.gamma):
            (logits,) = yield [wanted]
            q, raw = distributions(self.model, ask, logits, proposal.ids)
            # Where q is one-hot there is nothing to draw.
            token = int(best(q[None])) if ask.warp.greedy else ask.noise.draft(q, len(ask.context) + depth)
            confidence = float(raw[token])
            node = proposal.add(token, q, node, confidence=confidence, source=self.type, raw_q=raw)
            if depth + 1 == ask.gamma:
                break
            if confidence < ask.min_confidence:
                proposal.note = f"stopped drafting: confidence {confidence:.2f} is below {ask.min_confidence:g}"
                break
            wanted = self._next(ask.context, proposal.ids)
        return proposal
