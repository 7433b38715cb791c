"""Draft type `none`: proposes nothing, which makes the loop plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

from specviz.drafters.protocol import Cancelled, Proposal, never
from specviz.engine.sampling import Warp


class NoDrafter:
    type, name, params = "none", None, 0

    def begin(self, prompt_ids: Sequence[int], capacity: int, cancelled: Cancelled = never) -> None:
        pass

    def propose(self, context: Sequence[int], gamma: int, u: Sequence[float], warp: Warp) -> Proposal:
        return Proposal()
