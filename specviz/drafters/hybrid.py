"""Draft type `hybrid`: copies when the match is long enough to be trusted, else asks a model or a trained head, which
stops behind a token that it is not sure of.

Where nothing was trained for the target there is nobody to ask: it copies behind shorter matches, too, and says so.

Held by tests/unit/test_drafters.py.
"""

from __future__ import annotations

import dataclasses

import torch

from specviz.drafters.ngram import NgramLookup
from specviz.drafters.protocol import Ask, Drafter, Passes, Proposal, Start

#: Shortest match that is copied.
TRUSTED_MATCH = 3
#: Behind a token of less confidence nothing more is drafted: on 13 Spec-Bench prompts (gamma 3, greedy) a pass still
#: gives 1.70 tokens instead of 1.79, and what is left out was mostly drafted for nothing.
TRUSTED_CONFIDENCE = 0.5
ALONE = "no trained draft and no draft model fit this target: hybrid only copies"


class HybridDrafter:
    type = "hybrid"

    def __init__(self, lookup: NgramLookup, model: Drafter | None, device: torch.device) -> None:
        self._lookup, self._model = lookup, model
        # On a GPU a look at each token would cost more than a draft for nothing: the host would wait for it.
        self._sure = TRUSTED_CONFIDENCE if device.type == "cpu" else 0.0
        if model is None:
            self.name, self.params, self.warning = f"{lookup.name} alone", 0, ALONE
        else:
            self.name, self.params, self.warning = f"{lookup.name}, else {model.name}", model.params, model.warning

    def begin(self, start: Start) -> None:
        self._lookup.begin(start)
        if self._model:
            self._model.begin(start)

    def width(self, gamma: int) -> int:
        return gamma

    def propose(self, ask: Ask) -> Passes[Proposal]:
        if self._model is None:
            return self._lookup.copy(ask.context, ask.gamma)
        proposal = self._lookup.copy(ask.context, ask.gamma, TRUSTED_MATCH)
        if proposal.ids or not ask.gamma:
            return proposal
        sure = dataclasses.replace(ask, min_confidence=max(ask.min_confidence, self._sure))
        return (yield from self._model.propose(sure))
