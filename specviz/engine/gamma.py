"""How deep the next step drafts: a fixed gamma, or one chosen from what the run has shown and what steps cost here.

Nothing here reads a clock while a run decodes: costs are calibrated before and fixed, so the same run with the same
calibration chooses the same gammas. Held by tests/unit/test_gamma.py.
"""

from __future__ import annotations

from typing import Protocol

from specviz.summary import expected_tokens
from specviz.trace import Calibration


class Gamma(Protocol):
    """Chooses how deep to draft, and learns what became of it."""

    def choose(self, room: int) -> tuple[int, str | None]:
        """(gamma of at most `room`, why it is 0 although there is room)."""

    def learn(self, depth: int, nodes: int, tested: int, accepted: int, emitted: int) -> None:
        """A step drafted `depth` tokens deep and `nodes` in all; `accepted` of `tested` levels held."""


class FixedGamma:
    """The same gamma in every step."""

    def __init__(self, gamma: int) -> None:
        self._gamma = gamma

    def choose(self, room: int) -> tuple[int, str | None]:
        return min(self._gamma, room), None

    def learn(self, depth: int, nodes: int, tested: int, accepted: int, emitted: int) -> None:
        pass


class AdaptiveGamma:
    """Maximises expected tokens less lambda times expected time, with lambda the run's tokens per modelled time so far.

    That is one step of Dinkelbach's method for the ratio tokens / time. alpha is the share of levels accepted,
    forgotten geometrically and begun at `PRIOR`. When not even gamma 1 pays, the run goes plain and probes again
    after 4, 8, ... 64 steps, so a hopeless draft costs next to nothing and a changed text is noticed.

    Args:
        most: the deepest draft.
        calibration: costs of a step.
        branches: nodes for each level (1 for a chain), which the target pass has to read too.
    """

    #: Each step weighs this much of the one behind it: the last 15 steps or so count.
    MEMORY = 0.93
    #: Accepted and tested levels assumed at the start.
    PRIOR = (1.2, 2.0)
    FIRST_PROBE, LAST_PROBE = 4, 64

    def __init__(self, most: int, calibration: Calibration, branches: int = 1) -> None:
        self._most, self._calibration, self._branches = most, calibration, branches
        self._accepted, self._tested = self.PRIOR
        self._tokens = self._time = 0.0
        self._idle = 0  # plain steps since the last draft
        self._patience = self.FIRST_PROBE

    @property
    def alpha(self) -> float:
        return self._accepted / self._tested

    def choose(self, room: int) -> tuple[int, str | None]:
        best = self._best(min(self._most, room))
        if best or not room:
            return best, None
        if self._idle >= self._patience:
            self._patience = min(2 * self._patience, self.LAST_PROBE)
            return 1, f"probing: does drafting pay again? (estimated acceptance {self.alpha:.0%})"
        return 0, f"fallback to plain decoding: drafting does not pay (estimated acceptance {self.alpha:.0%})"

    def learn(self, depth: int, nodes: int, tested: int, accepted: int, emitted: int) -> None:
        self._tokens += emitted
        self._time += self._calibration.step(depth, nodes)
        if not tested:
            # Steps in which the draft had nothing to say are as plain as those in which it was not asked.
            self._idle += 1
            return
        self._idle = 0
        self._accepted = self.MEMORY * self._accepted + accepted
        self._tested = self.MEMORY * self._tested + tested
        if self._best(self._most):
            self._patience = self.FIRST_PROBE

    def _best(self, most: int) -> int:
        # Before the first step: the rate of plain decoding, which any draft has to beat.
        rate = self._tokens / self._time if self._time else 1 / self._calibration.step(0)
        return max(range(most + 1), key=lambda gamma: (self._value(gamma, rate), -gamma))

    def _value(self, gamma: int, rate: float) -> float:
        return expected_tokens(self.alpha, gamma) - rate * self._calibration.step(gamma, gamma * self._branches)
