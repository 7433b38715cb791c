"""Draft type `none`: proposes nothing, which makes the loop plain decoding."""

from __future__ import annotations

from specviz.drafters.protocol import Ask, Passes, Proposal, Start


class NoDrafter:
    type, name, params, warning = "none", None, 0, None

    def begin(self, start: Start) -> None:
        pass

    def propose(self, ask: Ask) -> Passes[Proposal]:
        return Proposal()
        yield  # makes it a generator, like every drafter

    def width(self, gamma: int) -> int:
        return 0
