"""The random numbers of a run: who draws, and from which stream.

Nothing but the seed decides them: not the machine, not tracing, not the length limit. `UniformNoise` serves
`rejection` and `block`, `CoupledNoise` serves `coupled`. Held by tests/unit/test_noise.py.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from specviz.engine.sampling import best, draw

#: The smallest number drawn: u lies in (0, 1), so that log u exists.
TINY = 2.0**-53


class Noise(Protocol):
    """Draws tokens for the draft and the target, and the u of acceptance tests."""

    def draft(self, weights: Tensor, position: int) -> int:
        """A draft token for the absolute `position` from (vocabulary,) non-negative weights."""

    def later(self, weights: Tensor, position: int) -> Tensor:
        """() the same, not yet read from the device."""

    def accept(self) -> float | None:
        """The u in (0, 1) of the next test; None where tests need none."""

    def target(self, weights: Tensor, position: int) -> int:
        """The target's own token for the absolute `position`."""


class UniformNoise:
    """Inverse transform sampling from three independent streams, so that how much a draft draws moves no other.

    The streams come from the CPU on every device: the same seed gives the same numbers everywhere.
    """

    def __init__(self, seed: int) -> None:
        streams = np.random.SeedSequence(seed).spawn(3)
        self._draft, self._accept, self._target = (np.random.Generator(np.random.PCG64(stream)) for stream in streams)

    def draft(self, weights: Tensor, position: int) -> int:
        return int(self.later(weights, position))

    def later(self, weights: Tensor, position: int) -> Tensor:
        return draw(weights, self._number(self._draft))

    def accept(self) -> float:
        return self._number(self._accept)

    def target(self, weights: Tensor, position: int) -> int:
        return int(draw(weights, self._number(self._target)))

    @staticmethod
    def _number(stream: np.random.Generator) -> float:
        return max(stream.random(), TINY)


class CoupledNoise:
    """Gumbel-max with noise keyed by (seed, absolute position, token id), the same for draft and target.

    The token is argmax of log w + G, in the equal form of an exponential race, argmax of w / E with E = exp(-G)
    (Gumbel-max coupling: Daliri, Musco, Suresh 2024). What is drawn for a position depends on the weights alone, so
    plain and speculative decoding write the same text.
    """

    #: Positions whose noise is kept: a step looks at each of its positions a few times.
    KEPT = 64

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._races: dict[int, Tensor] = {}

    def draft(self, weights: Tensor, position: int) -> int:
        return int(self.later(weights, position))

    def later(self, weights: Tensor, position: int) -> Tensor:
        return best((weights / self._race(position, weights).to(weights.device))[None])[0]

    def accept(self) -> None:
        return None

    def target(self, weights: Tensor, position: int) -> int:
        return self.draft(weights, position)

    def _race(self, position: int, weights: Tensor) -> Tensor:
        race = self._races.get(position)
        if race is None:
            if len(self._races) >= self.KEPT:
                del self._races[min(self._races)]
            stream = np.random.Generator(np.random.Philox(np.random.SeedSequence([self._seed, position])))
            numbers = stream.standard_exponential(len(weights), dtype=np.float32)
            race = torch.from_numpy(np.maximum(numbers, np.finfo(np.float32).tiny))
            self._races[position] = race
        return race


def noise_of(rule: str, seed: int) -> Noise:
    """The noise that an acceptance rule needs."""
    return CoupledNoise(seed) if rule == "coupled" else UniformNoise(seed)
