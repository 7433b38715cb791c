"""Draft type `hybrid`: copies when the match is long enough to be trusted, else asks a model or a trained head.

Held by tests/unit/test_drafters.py.
"""

from __future__ import annotations

from specviz.drafters.ngram import NgramLookup
from specviz.drafters.protocol import Ask, Drafter, Passes, Proposal, Start

#: Shortest match that is copied.
TRUSTED_MATCH = 3


class HybridDrafter:
    type = "hybrid"

    def __init__(self, lookup: NgramLookup, model: Drafter) -> None:
        self._lookup, self._model = lookup, model
        self.name, self.params, self.warning = f"{lookup.name}, else {model.name}", model.params, model.warning

    def begin(self, start: Start) -> None:
        self._lookup.begin(start)
        self._model.begin(start)

    def width(self, gamma: int) -> int:
        return gamma

    def propose(self, ask: Ask) -> Passes[Proposal]:
        proposal = self._lookup.copy(ask.context, ask.gamma, TRUSTED_MATCH)
        if proposal.ids or not ask.gamma:
            return proposal
        return (yield from self._model.propose(ask))
