"""What a race IS: lanes with whole runs, figures against plain decoding, and the verdict; JSON of schema
specviz.race/1.

Held by tests/unit/test_race.py.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specviz.lab.why import Why
from specviz.trace import Document, Run

SCHEMA = "specviz.race/1"


@dataclass(slots=True)
class Spread:
    """Median over the rounds, with the lowest and the highest round."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(slots=True)
class Divergence:
    """Where a lane's output and plain decoding's first differ: `index` counts output tokens from 0, `position` is
    absolute.

    `margin` is the gap between the target's two best logits there, after penalties and bias, when all of the context
    is read at once: a small one is a numerical tie. `ids`, `texts` and `after` have plain decoding's first; None stands
    for an output that ended. `before` is the common text in front of the difference, `after` what each wrote from
    there on, both cut to a few tokens; `sentence` says where the texts part and why.
    """

    index: int
    position: int
    ids: list[int | None]
    texts: list[str | None]
    before: str
    after: list[str]
    margin: float
    precision: str
    sentence: str = ""


@dataclass(slots=True)
class Lane:
    """One contestant. `key` names it uniquely, as the command line writes it; `detail` is what it has of its own
    beside the draft type, in words.

    `runs` has one `Run` per round; `shown` is the index of the round whose speed-ups are nearest to the medians, the
    same for all lanes. What follows is set against plain decoding and None in its own lane: `speedup` is taken round by
    round, so slow spells of the machine cancel; `same_output` is None above temperature 0, where equal laws still give
    different texts; `why` is None where nothing was calibrated or nothing drafted got tested.
    """

    key: str
    name: str
    detail: str
    draft: str
    tokens_per_second: Spread
    prefill_s: Spread
    runs: list[Run]
    shown: int
    speedup: Spread | None = None
    same_output: bool | None = None
    first_divergence: Divergence | None = None
    verdict: str | None = None
    why: Why | None = None


@dataclass(slots=True)
class Race(Document):
    """`lanes[0]` is plain decoding. `order` has the lanes' keys, round by round, as they ran.

    `settings` are those that all lanes share. `winner` is the key of the fastest lane, None when it is too close to
    call; `lead` is the rate of the fastest lane over that of the next, round by round.
    """

    created_at: str
    rounds: int
    warmup_tokens: int
    order: list[list[str]]
    settings: dict[str, Any]
    lanes: list[Lane]
    winner: str | None
    lead: Spread
    verdict: str
    schema: str = SCHEMA

    def shown_only(self) -> Race:
        """The same race with just the shown run of each lane: what a replay needs."""
        lanes = [dataclasses.replace(lane, runs=[lane.runs[lane.shown]], shown=0) for lane in self.lanes]
        return dataclasses.replace(self, lanes=lanes)


@dataclass(frozen=True, slots=True)
class RaceProgress:
    """Where a race stands. `stage` is "costs" (what a step of the lane's draft costs is measured), "warmup" or "round";
    `round` counts from 1; `tokens` of `of` were emitted in the current run. `lane` is the lane's key, `draft` and
    `detail` as in `Lane`."""

    stage: str
    round: int
    rounds: int
    lane: str
    draft: str
    detail: str
    tokens: int
    of: int
