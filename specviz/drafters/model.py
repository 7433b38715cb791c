"""Draft type `model`: any causal LM that shares the target's tokenizer, with its own cache.

Before each proposal the cache is brought to a prefix of the committed ids: rolled back to where they part, then
fed what it lacks (after full acceptance that is the last drafted token too). Held by tests/unit/test_drafters.py
(draft = target accepts everything) and tests/unit/test_decode.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specviz.drafters.protocol import Ask, Passes, Proposal, Start
from specviz.engine.cache import ROOT, KVCache, Pass
from specviz.engine.model import LanguageModel
from specviz.engine.sampling import finite, require_finite


class OwnContext:
    """A draft model's own cache, kept to a prefix of the committed ids."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self._cache: KVCache | None = None
        self._fed: list[int] = []  # what the cache's chain holds
        self._agreed = 0  # how many of these are known to be committed

    def begin(self, start: Start) -> None:
        limit = self.model.max_positions
        self._cache = self.model.open(start.capacity)
        self._fed = list(start.ids[:-1]) if len(start.ids) <= limit else []
        self._cache.prefill(self._fed, start.cancelled)
        self._fed = self._fed[: self._cache.length]
        self._agreed = len(self._fed)

    def behind(self, context: Sequence[int]) -> tuple[KVCache, list[int]]:
        """(the cache at the longest prefix it shares with `context`, the ids it lacks: at least the last)."""
        keep, end = self._agreed, min(len(self._fed), len(context) - 1)
        while keep < end and self._fed[keep] == context[keep]:
            keep += 1
        self._fed = self._fed[:keep]
        self._cache.rollback(keep)
        self._agreed = keep
        return self._cache, list(context[keep:])

    def fed(self, ids: Sequence[int]) -> None:
        """Note what was fed to the cache's chain."""
        self._fed += ids


class SharedContext:
    """The target's own cache, read by its first layers: it always lacks the pending token only."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self._target: KVCache | None = None

    def begin(self, start: Start) -> None:
        self._target = start.cache

    def behind(self, context: Sequence[int]) -> tuple[KVCache, list[int]]:
        # A new view each time: what earlier drafts wrote behind the target's rows is nobody's.
        cache = self._target.shallow(self.model)
        cache.base = self._target.length
        return cache, list(context[cache.base :])

    def fed(self, ids: Sequence[int]) -> None:
        pass


def full(model: LanguageModel) -> str:
    """The note of a draft whose context has no room."""
    return f"the draft's context of {model.max_positions} tokens is full"


@dataclass(slots=True)
class Drawn:
    """A token drawn and not read from the device yet: () token, confidence and whether the logits were finite; the
    (vocabulary,) distribution it was drawn from, and the unwarped one."""

    token: Tensor
    q: Tensor
    raw_q: Tensor
    confidence: Tensor
    finite: Tensor


class ModelDrafter:
    """Drafts a chain with a model, one pass a token (Leviathan et al. 2023, §2).

    Nothing is read from the device before the draft is whole, unless penalties or `min_confidence` must see a token.

    Args:
        context: the model and its cache: its own, or the target's for the target's first layers.
        device: the target's, where q is handed over.
        type: the draft type it appears as.
    """

    def __init__(self, context: OwnContext | SharedContext, device: torch.device, type: str = "model") -> None:
        self.type, self.model, self._device = type, context.model, device
        self.name, self.params, self.warning = context.model.name, context.model.params, context.model.warning
        self._context = context

    def begin(self, start: Start) -> None:
        self._context.begin(start)

    def width(self, gamma: int) -> int:
        return gamma

    def propose(self, ask: Ask) -> Passes[Proposal]:
        # Drafting the last of g tokens feeds position len(context) + g - 2.
        room = self.model.max_positions - len(ask.context) + 1
        proposal = Proposal(note=full(self.model) if room < ask.gamma else None)
        if min(room, ask.gamma) <= 0:
            return proposal
        cache, pending = self._context.behind(ask.context)
        drawn: list[Drawn] = []
        for depth in range(min(room, ask.gamma)):
            (logits,) = yield [Pass(cache, pending)]
            if not drawn:
                self._context.fed(pending)
            logits = logits[-1:].to(self._device)
            path = [int(one.token) for one in drawn] if ask.warp.reads_path else []
            q = ask.warp(logits, ask.context, [path], checked=False)[0]
            token = ask.noise.later(q, len(ask.context) + depth)
            raw = logits[0].float().softmax(-1)
            drawn.append(Drawn(token, q, raw, raw[token], finite(logits)))
            if ask.min_confidence and depth + 1 < ask.gamma and drawn[-1].confidence < ask.min_confidence:
                proposal.note = (
                    f"stopped drafting: confidence {drawn[-1].confidence:.2f} is below {ask.min_confidence:g}"
                )
                break
            pending = token[None]
        self._read(proposal, drawn)
        self._context.fed(proposal.ids[:-1])  # the last was drawn and not read on from
        return proposal

    def _read(self, proposal: Proposal, drawn: Sequence[Drawn]) -> None:
        """The whole draft from the device at once."""
        numbers = [torch.stack([one.token.double(), one.confidence.double(), one.finite.double()]) for one in drawn]
        node = ROOT
        for one, (token, confidence, is_finite) in zip(drawn, torch.stack(numbers).tolist(), strict=True):
            require_finite(is_finite)
            node = proposal.add(int(token), one.q, node, confidence=confidence, source=self.type, raw_q=one.raw_q)
