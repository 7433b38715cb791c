"""What a draft type is: something that reads the committed ids and proposes the next ones, with their `q`.

Within a run the committed ids only grow, and a drafter learns of them in `propose` alone: nobody has to tell it what
became of its last proposal, so it cannot be out of step with the loop.
Held by tests/unit/test_drafters.py and tests/unit/test_decode.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from specviz.engine.sampling import Warp

Cancelled = Callable[[], bool]


def never() -> bool:
    """The `cancelled` of a run that nobody can stop."""
    return False


@dataclass(slots=True)
class Proposal:
    """A chain of draft tokens.

    `q` holds the (len(ids), vocabulary) float32 distributions they were drawn from, None for a deterministic
    proposal (one-hot). `confidence` is the draft's own unwarped probability of each token, `source` says where
    each came from, `note` why there are fewer than asked for. `raw_q` holds the unwarped (vocabulary,) distribution
    behind each token where the draft has one.
    """

    ids: list[int] = field(default_factory=list)
    q: Tensor | None = None
    confidence: list[float] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    note: str | None = None
    raw_q: list[Tensor] = field(default_factory=list)


class Drafter(Protocol):
    """One draft type."""

    type: str
    name: str | None
    params: int

    def begin(self, prompt_ids: Sequence[int], capacity: int, cancelled: Cancelled = never) -> None:
        """Forget the last run and read a prompt.

        `capacity` is the longest the context can become, in tokens; `cancelled` ends the reading early.
        """

    def propose(self, context: Sequence[int], gamma: int, u: Sequence[float], warp: Warp) -> Proposal:
        """Up to `gamma` tokens behind `context` (all committed ids, the pending one last).

        Each is drawn with its own number of `u`, in (0, 1), from the `q` that is returned.
        """
