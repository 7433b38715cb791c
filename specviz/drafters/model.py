"""Draft type `model`: any causal LM that shares the target's tokenizer, with its own cache.

Before each proposal the cache is brought to a prefix of the committed ids: rolled back to where they part, then
fed what it lacks (after full acceptance that is the last drafted token too). Held by tests/unit/test_drafters.py
(draft = target accepts everything) and tests/unit/test_decode.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specviz.drafters.protocol import Cancelled, Proposal, never
from specviz.engine.model import LanguageModel
from specviz.engine.sampling import Warp, draw


class ModelDrafter:
    type = "model"

    def __init__(self, model: LanguageModel, device: torch.device) -> None:
        """`device` is the target's: q is handed over there."""
        self.model, self._device = model, device
        self.name, self.params = model.name, model.params
        self._fed: list[int] = []  # what the cache holds
        self._agreed = 0  # how many of these are known to be committed

    def begin(self, prompt_ids: Sequence[int], capacity: int, cancelled: Cancelled = never) -> None:
        limit = self.model.max_positions
        self.model.reset(min(capacity, limit))
        self._fed = list(prompt_ids[:-1]) if len(prompt_ids) <= limit else []
        self.model.prefill(self._fed, cancelled)
        self._fed = self._fed[: self.model.length]
        self._agreed = len(self._fed)

    def propose(self, context: Sequence[int], gamma: int, u: Sequence[float], warp: Warp) -> Proposal:
        # Drafting the last of g tokens feeds position len(context) + g - 2.
        room = self.model.max_positions - len(context) + 1
        proposal = Proposal()
        if room < gamma:
            proposal.note = f"the draft's context of {self.model.max_positions} tokens is full"
            gamma = max(room, 0)
        if gamma == 0:
            return proposal
        self._keep_common_prefix(context)
        pending = list(context[len(self._fed) :])
        rows = []
        for number in u[:gamma]:
            logits = self.model.forward(pending)[-1:]
            self._fed += pending
            q = warp(logits, context, proposal.ids, len(proposal.ids))[0]
            token = draw(q, number)
            raw = logits[0].float().softmax(-1)
            proposal.confidence.append(float(raw[token]))
            proposal.source.append(self.type)
            proposal.ids.append(token)
            rows.append(q)
            proposal.raw_q.append(raw)
            pending = [token]
        proposal.q = torch.stack(rows).to(self._device)
        return proposal

    def _keep_common_prefix(self, context: Sequence[int]) -> None:
        """Roll the cache back to the longest prefix it shares with `context`, leaving at least one token to feed."""
        keep, end = self._agreed, min(len(self._fed), len(context) - 1)
        while keep < end and self._fed[keep] == context[keep]:
            keep += 1
        self._fed = self._fed[:keep]
        self.model.rollback(keep)
        self._agreed = keep
