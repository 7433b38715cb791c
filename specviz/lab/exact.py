"""The exact law of what the engine's parts write, by enumerating every draw and every acceptance.

The drafters, the warp and the rules are the engine's own; only their noise is replaced, by one that takes every
branch in turn and knows its probability. Nothing is sampled. Held by tests/statistical/test_exact.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from specviz.drafters import Ask, Proposal, Start
from specviz.drafters.protocol import drive
from specviz.engine.cache import ROOT, KVCache
from specviz.engine.engine import Engine
from specviz.engine.sampling import Warp
from specviz.engine.verify import Verdict
from specviz.settings import Settings

T = TypeVar("T")
#: A law: probability of every text (tuple of ids) that can be written.
Law = dict[tuple[int, ...], float]
#: The u that passes every test that can be passed, and the one that fails every test that can be failed.
PASSES, FAILS = 2.0**-53, 1 - 2.0**-53


class Branches:
    """A `specviz.engine.noise.Noise` that takes a given branch at each of its first choices, then always the first.

    `options` holds, for each choice met, the probabilities of its branches; None for a test, whose chance only the
    rule knows.
    """

    def __init__(self, script: Sequence[int]) -> None:
        self._script = script
        self.taken: list[int] = []
        self.options: list[list[float] | None] = []

    def draft(self, weights: Tensor, position: int) -> int:
        weights = weights.double()
        tokens = weights.nonzero()[:, 0]
        shares = weights[tokens] / weights.sum()
        return int(tokens[self._choose(shares.tolist())])

    def later(self, weights: Tensor, position: int) -> Tensor:
        return torch.tensor(self.draft(weights, position))

    def accept(self) -> float:
        return (PASSES, FAILS)[self._choose(None)]

    def target(self, weights: Tensor, position: int) -> int:
        return self.draft(weights, position)

    def _choose(self, options: list[float] | None) -> int:
        number = len(self.taken)
        branch = self._script[number] if number < len(self._script) else 0
        self.taken.append(branch)
        self.options.append(options)
        return branch

    def mass(self, tests: Sequence[float] = ()) -> float:
        """Probability of the branches taken; `tests` are the chances of the tests among them, in order."""
        mass, chances = 1.0, iter(tests)
        for branch, options in zip(self.taken, self.options, strict=True):
            if options is None:
                chance = next(chances)
                mass *= chance if branch == 0 else 1 - chance
            else:
                mass *= options[branch]
        return mass


def every_branch(work: Callable[[Branches], T]) -> Iterator[tuple[T, Branches]]:
    """The result of `work` for every way its noise can fall."""
    open_scripts: list[list[int]] = [[]]
    while open_scripts:
        script = open_scripts.pop()
        noise = Branches(script)
        yield work(noise), noise
        for number in range(len(script), len(noise.taken)):
            branches = 2 if noise.options[number] is None else len(noise.options[number])
            open_scripts += [[*noise.taken[:number], branch] for branch in range(1, branches)]


def drafts_to_enumerate(engine: Engine, settings: Settings, prompt: Sequence[int], law: Law, most: int) -> int:
    """How many drafts `output_law` will look at, about, given the target's `law`; counted no further than `most`."""
    texts = len({text[:length] for text in law for length in range(len(text))})
    with torch.inference_mode():
        _, drafts = _drafts(engine, settings, list(prompt), Warp(settings, len(prompt)))
        return texts * sum(1 for _ in itertools.islice(drafts, most // texts + 1))


def output_law(
    engine: Engine, settings: Settings, prompt: Sequence[int], length: int, tick: Callable[[], None] = lambda: None
) -> Law:
    """The joint law of the first `length` tokens that speculative decoding writes behind `prompt`.

    `tick` is called before each text that is gone on from; what it raises ends the work.
    """
    known: dict[tuple[int, ...], Law] = {}

    def law(text: tuple[int, ...]) -> Law:
        """Of what follows `text`, cut to `length` in all."""
        if text not in known:
            tick()
            total: Law = {}
            for block, mass in _step_law(engine, settings, [*prompt, *text], len(prompt)).items():
                block = block[: length - len(text)]
                if len(text) + len(block) == length:
                    total[block] = total.get(block, 0.0) + mass
                    continue
                for rest, share in law((*text, *block)).items():
                    total[(*block, *rest)] = total.get((*block, *rest), 0.0) + mass * share
            known[text] = total
        return known[text]

    with torch.inference_mode():
        return law(())


def target_law(engine: Engine, settings: Settings, prompt: Sequence[int], length: int) -> Law:
    """The joint law of the first `length` tokens of the target itself, the product of its own distributions."""
    warp, law = Warp(settings, len(prompt)), {(): 1.0}
    with torch.inference_mode():
        cache = engine.target.open(len(prompt) + length)
        for _ in range(length):
            longer: Law = {}
            for text, mass in law.items():
                cache.rollback(0)
                context = [*prompt, *text]
                row = warp(cache.forward(context)[-1:], context, [()])[0].double()
                for token in row.nonzero()[:, 0].tolist():
                    longer[(*text, token)] = mass * float(row[token] / row.sum())
            law = longer
    return law


def total_variation(one: Law, other: Law) -> float:
    """Half the sum of absolute differences: the largest difference in the probability of any event."""
    return sum(abs(one.get(text, 0.0) - other.get(text, 0.0)) for text in {*one, *other}) / 2


def _step_law(engine: Engine, settings: Settings, context: list[int], prompt_length: int) -> Law:
    """Probability of every block of tokens that one step can add behind `context`."""
    warp, rule = Warp(settings, prompt_length), engine.rules[settings.verify]
    cache, proposals = _drafts(engine, settings, context, warp)
    law: Law = {}
    for proposal, draws in proposals:
        parents = None if proposal.is_chain else [ROOT, *(parent + 1 for parent in proposal.parents)]
        logits = cache.forward([context[-1], *proposal.ids], parents)
        p = warp(logits, context, [(), *proposal.paths()])
        cache.rollback(len(context) - 1)
        for verdict, tests in every_branch(lambda noise, p=p, plan=proposal: rule(p, plan, noise, len(context))):
            mass = draws.mass() * tests.mass(_chances(verdict, tests))
            if mass:
                block = (*(proposal.ids[node] for node in verdict.path), verdict.token)
                law[block] = law.get(block, 0.0) + mass
    return law


def _drafts(
    engine: Engine, settings: Settings, context: list[int], warp: Warp
) -> tuple[KVCache, Iterator[tuple[Proposal, Branches]]]:
    """(the target's cache behind all of `context` but the last, every draft that can stand behind `context`)."""
    drafter = engine.drafter(settings.draft, settings)
    capacity = len(context) + drafter.width(settings.gamma) + 1
    cache = engine.target.open(capacity)
    cache.prefill(context[:-1])
    drafter.begin(Start(context, capacity, cache))
    return cache, every_branch(
        lambda noise: drive(
            drafter.propose(Ask(context, settings.gamma, warp, noise, settings.min_confidence))
            if settings.gamma
            else _nothing()
        )
    )


def _nothing():
    return Proposal()
    yield


def _chances(verdict: Verdict, noise: Branches) -> list[float]:
    """The chances of the tests that asked for a u; `coupled` makes tests without one."""
    return verdict.tests if None in noise.options else []
