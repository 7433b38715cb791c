"""What a draft type is: something that reads the committed ids and proposes the next ones, with their `q`.

A proposal is a token tree; a chain is the tree in which every node has one child. Within a run the committed ids
only grow, and a drafter learns of them in `propose` alone: nobody has to tell it what became of its last proposal,
so it cannot be out of step with the loop. Held by tests/unit/test_drafters.py and tests/unit/test_decode.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from torch import Tensor

from specviz.engine.cache import ROOT, KVCache, Pass
from specviz.engine.noise import Noise
from specviz.engine.sampling import Warp

T = TypeVar("T")
#: Work that needs forward passes: it yields those it wants now, of different texts, is sent the logits of each, and
#: returns its result. Whoever drives it decides what runs together.
Passes = Generator[list[Pass], list[Tensor], T]


def never() -> bool:
    """The `cancelled` of a run that nobody can stop."""
    return False


@dataclass(slots=True)
class Start:
    """The beginning of a run, or of a drafter's part in it.

    `ids` are the committed ids so far, `capacity` the most rows a text's memory must hold, `cache` the target's own,
    for drafters that read with it; `cancelled` ends the reading early.
    """

    ids: Sequence[int]
    capacity: int
    cache: KVCache | None = None
    cancelled: Callable[[], bool] = never


@dataclass(slots=True)
class Ask:
    """What a proposal is asked for: up to `gamma` tokens deep behind `context` (all committed ids, the pending one
    last). Tokens are drawn with `noise` from what `warp` makes of the draft's logits; drafting stops behind a token
    whose confidence is below `min_confidence`, and never takes one back."""

    context: Sequence[int]
    gamma: int
    warp: Warp
    noise: Noise
    min_confidence: float = 0.0


@dataclass(slots=True)
class Draw:
    """One draw of a token for a place in the tree: the node it became, and the (vocabulary,) distribution it was drawn
    from, None when it was not drawn but chosen (one-hot)."""

    node: int
    q: Tensor | None


@dataclass(slots=True)
class Proposal:
    """A tree of draft tokens: node i is token `ids[i]` behind node `parents[i]` (ROOT: behind the pending token).

    `draws` lists every draw in order; a token drawn twice for one place is one node with two draws. `confidence` is
    the draft's own unwarped probability of each token, `source` says where each came from, `raw_q` holds the
    unwarped (vocabulary,) distribution behind each where the draft has one; `note` says why there are fewer tokens
    than asked for.
    """

    ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    raw_q: list[Tensor | None] = field(default_factory=list)
    note: str | None = None

    def add(
        self,
        token: int,
        q: Tensor | None,
        parent: int,
        *,
        confidence: float = 1.0,
        source: str = "",
        raw_q: Tensor | None = None,
    ) -> int:
        """Record a draw behind node `parent`; the node it became."""
        for node, (other, above) in enumerate(zip(self.ids, self.parents, strict=True)):
            if (other, above) == (token, parent):
                self.draws.append(Draw(node, q))
                if source not in self.source[node].split(" + "):
                    self.source[node] += f" + {source}"
                return node
        node = len(self.ids)
        self.ids.append(token)
        self.parents.append(parent)
        self.draws.append(Draw(node, q))
        self.confidence.append(confidence)
        self.source.append(source)
        self.raw_q.append(raw_q)
        return node

    def merge(self, other: Proposal) -> None:
        """Add another drafter's tree behind this one's draws."""
        places = {ROOT: ROOT}
        for draw in other.draws:
            i = draw.node
            places[i] = self.add(
                other.ids[i],
                draw.q,
                places[other.parents[i]],
                confidence=other.confidence[i],
                source=other.source[i],
                raw_q=other.raw_q[i],
            )
        if other.note:
            self.note = f"{self.note}; {other.note}" if self.note else other.note

    @property
    def q(self) -> list[Tensor | None]:
        """For each node the distribution of its first draw."""
        first: dict[int, Tensor | None] = {}
        for draw in self.draws:
            first.setdefault(draw.node, draw.q)
        return [first[node] for node in range(len(self.ids))]

    @property
    def is_chain(self) -> bool:
        return self.parents == list(range(ROOT, len(self.parents) - 1)) and len(self.draws) == len(self.ids)

    def children(self) -> dict[int, list[Draw]]:
        """The draws for each place, in the order drawn."""
        places: dict[int, list[Draw]] = {}
        for draw in self.draws:
            places.setdefault(self.parents[draw.node], []).append(draw)
        return places

    def paths(self) -> list[list[int]]:
        """The ids from the root to each node, its own last."""
        paths: list[list[int]] = []
        for token, parent in zip(self.ids, self.parents, strict=True):
            paths.append([*(() if parent == ROOT else paths[parent]), token])
        return paths

    def depths(self) -> list[int]:
        """How many draft tokens stand before each node on its own path."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent == ROOT else depths[parent] + 1)
        return depths


class Drafter(Protocol):
    """One draft type. `name` and `params` are of the model that drafts, None and 0 without one; `warning` is to be said
    once of a run in which it drafts."""

    type: str
    name: str | None
    params: int
    warning: str | None

    def begin(self, start: Start) -> None:
        """Forget the last run and read a prompt."""

    def propose(self, ask: Ask) -> Passes[Proposal]:
        """Up to `ask.gamma` tokens deep."""

    def width(self, gamma: int) -> int:
        """The most tokens a proposal `gamma` deep can hold."""


def drive(work: Passes[T]) -> T:
    """Run work that needs passes, alone."""
    try:
        wanted = next(work)
        while True:
            wanted = work.send(run_passes(wanted))
    except StopIteration as end:
        return end.value


def run_passes(wanted: Sequence[Pass]) -> list[Tensor]:
    """The logits of each pass; those of one model run together."""
    results: list[Tensor | None] = [None] * len(wanted)
    groups: dict[int, list[int]] = {}
    for i, one in enumerate(wanted):
        groups.setdefault(id(one.cache.model), []).append(i)
    for group in groups.values():
        model = wanted[group[0]].cache.model
        for i, logits in zip(group, model.run([wanted[i] for i in group]), strict=True):
            results[i] = logits
    return results


def together(works: Sequence[Passes[T]]) -> Passes[list[T]]:
    """Several works side by side: what they want at the same time runs together."""
    results: list[T | None] = [None] * len(works)
    wanted: dict[int, list[Pass]] = {}
    answers: dict[int, list[Tensor] | None] = dict.fromkeys(range(len(works)))
    while answers:
        for i, answer in answers.items():
            try:
                wanted[i] = works[i].send(answer)
            except StopIteration as end:
                results[i] = end.value
        if not wanted:
            break
        logits = yield [one for passes in wanted.values() for one in passes]
        answers = {}
        for i, passes in wanted.items():
            answers[i], logits = logits[: len(passes)], logits[len(passes) :]
        wanted = {}
    return results
