"""Draft type `pool`: several drafters propose side by side, and the target verifies all of it as one tree.

Where they agree the tree has one node with a draw of each, and each draw is a trial of its own with its own q. The
order of trials is the order of members, which no draw decides. Held by tests/unit/test_trees.py; losslessness by
tests/statistical.
"""

from __future__ import annotations

from collections.abc import Sequence

from specviz.drafters.protocol import Ask, Drafter, Passes, Proposal, Start, together


class PoolDrafter:
    type = "pool"

    def __init__(self, members: Sequence[Drafter]) -> None:
        self.members = list(members)
        self.name = " + ".join(member.name or member.type for member in members)
        self.params = sum(member.params for member in members)
        self.warning = "; ".join(dict.fromkeys(member.warning for member in members if member.warning)) or None

    def begin(self, start: Start) -> None:
        for member in self.members:
            member.begin(start)

    def width(self, gamma: int) -> int:
        return sum(member.width(gamma) for member in self.members)

    def propose(self, ask: Ask) -> Passes[Proposal]:
        proposals = yield from together([member.propose(ask) for member in self.members])
        merged, seen = Proposal(), {}
        for member, proposal in zip(self.members, proposals, strict=True):
            seen[member.type] = number = seen.get(member.type, 0) + 1
            if number > 1:
                proposal.source = [f"{source} (no. {number})" for source in proposal.source]
            merged.merge(proposal)
        if merged.ids:  # somebody had something to say
            merged.note = None
        return merged
