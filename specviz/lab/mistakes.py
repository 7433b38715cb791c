"""The classic mistakes of speculative decoding, each a small change to the engine's own rules, drafters or noise.

A mistake is put into one `Engine` object, so nothing else in the process decodes wrongly. Each bends the law of the
output: held by tests/statistical/test_proof.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from specviz.drafters import Ask, Drafter, Draw, DynamicTree, Kit, ModelDrafter, OwnContext, Proposal, Start
from specviz.drafters.protocol import Passes
from specviz.engine.cache import ROOT, Pass
from specviz.engine.engine import Engine
from specviz.engine.noise import UniformNoise
from specviz.engine.verify import block, rejection

#: A drafted token less certain than this is withdrawn by the mistake of that name.
CERTAIN = 0.4


@dataclass(frozen=True, slots=True)
class Mistake:
    """`sentence` says what is done wrong and why it bends the law. It can happen with `drafts` and `rules`; the first
    of each is where it is shown unless asked otherwise. `put_into` changes an engine."""

    title: str
    sentence: str
    drafts: tuple[str, ...]
    rules: tuple[str, ...]
    put_into: Callable[[Engine], None]

    @property
    def draft(self) -> str:
        return self.drafts[0]

    @property
    def verify(self) -> str:
        return self.rules[0]


def _from_p(p: Tensor, q: Tensor | None, token: int) -> Tensor:
    return p


def _minus_scalar(p: Tensor, q: Tensor | None, token: int) -> Tensor:
    return (p - (1.0 if q is None else q[token])).clamp(min=0)


def _refused_token(p: Tensor, q: Tensor | None, token: int) -> Tensor:
    return torch.zeros_like(p).index_fill_(0, torch.tensor([token], device=p.device), 1.0)


def _softmax(p: Tensor, q: Tensor | None, token: int) -> Tensor:
    rest = p.clone().index_fill_(0, torch.tensor([token], device=p.device), 0) if q is None else (p - q).clamp(min=0)
    return rest.softmax(-1)


def _wrong_residual(residual_of: Callable[[Tensor, Tensor | None, int], Tensor]) -> Callable[[Engine], None]:
    def put_into(engine: Engine) -> None:
        engine.rules["rejection"] = partial(rejection, residual_of=residual_of)
        engine.rules["block"] = partial(block, residual_of=residual_of)

    return put_into


def _loose(p: float, q: float, u: float) -> bool:
    # u is in [0, 1) in many programs: here it is 0 wherever that matters.
    return (0.0 if p == 0 else u) * q <= p


def _accept_zero(engine: Engine) -> None:
    engine.rules["rejection"] = partial(rejection, accepts=_loose)


class _Reseeded(UniformNoise):
    """Begins its streams anew behind every token of the target, that is in every step."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._seed = seed

    def target(self, weights: Tensor, position: int) -> int:
        token = super().target(weights, position)
        super().__init__(self._seed)
        return token


def _reseed(engine: Engine) -> None:
    engine.noise_of = lambda rule, seed: _Reseeded(seed)


class _FirstDistribution(ModelDrafter):
    """Draws every token from the first position's distribution and hands over the q of its own position."""

    def propose(self, ask: Ask) -> Passes[Proposal]:
        cache, pending = self._context.behind(ask.context)
        proposal, node, first = Proposal(), ROOT, None
        for depth in range(ask.gamma):
            (logits,) = yield [Pass(cache, pending)]
            self._context.fed(pending)
            q = ask.warp(logits[-1:], ask.context, [proposal.ids])[0]
            first = q if first is None else first
            token = ask.noise.draft(first, len(ask.context) + depth)
            node = proposal.add(token, q, node, source=self.type, raw_q=q)
            pending = [token]
        return proposal


class _Changed:
    """A drafter whose finished proposal is changed before the target sees it."""

    def __init__(self, drafter: Drafter, change: Callable[[Proposal], Proposal]) -> None:
        self._drafter, self._change = drafter, change
        self.type, self.name, self.params, self.warning = drafter.type, drafter.name, drafter.params, drafter.warning

    def begin(self, start: Start) -> None:
        self._drafter.begin(start)

    def width(self, gamma: int) -> int:
        return self._drafter.width(gamma)

    def propose(self, ask: Ask) -> Passes[Proposal]:
        return self._change((yield from self._drafter.propose(ask)))


def _raw_q(proposal: Proposal) -> Proposal:
    proposal.draws = [Draw(draw.node, proposal.raw_q[draw.node]) for draw in proposal.draws]
    return proposal


def _withdraw(proposal: Proposal) -> Proposal:
    kept = Proposal(note=proposal.note)
    for draw in proposal.draws:
        i = draw.node
        if proposal.confidence[i] < CERTAIN:
            break
        kept.add(proposal.ids[i], draw.q, proposal.parents[i], confidence=proposal.confidence[i])
    return kept


def _changed(name: str, make: Callable[[Kit], Drafter], change: Callable[[Proposal], Proposal]):
    def put_into(engine: Engine) -> None:
        engine.makers[name] = lambda kit: _Changed(make(kit), change)

    return put_into


def _model(kit: Kit) -> ModelDrafter:
    return ModelDrafter(OwnContext(kit.model), kit.target.device)


def _dynamic_tree(kit: Kit) -> DynamicTree:
    return DynamicTree(OwnContext(kit.model), kit.target.device, kit.settings.candidates)


def _first_distribution(engine: Engine) -> None:
    engine.makers["model"] = lambda kit: _FirstDistribution(OwnContext(kit.model), kit.target.device)


_SAMPLED = ("model", "ngram-smoothed", "layer_skip", "hybrid")
_BOTH = ("rejection", "block")

MISTAKES: dict[str, Mistake] = {
    "resample-from-p": Mistake(
        "Resample from p",
        "The correction is drawn from p instead of the residual, as if nothing had been refused: tokens that both "
        "models like come out too often.",
        (*_SAMPLED, "tree", "pool", "ngram"),
        _BOTH,
        _wrong_residual(_from_p),
    ),
    "scalar-residual": Mistake(
        "Subtract a scalar",
        "The residual subtracts the one number q(x) of the refused token from all of p, where the vector q belongs.",
        _SAMPLED,
        _BOTH,
        _wrong_residual(_minus_scalar),
    ),
    "first-distribution": Mistake(
        "One distribution for all",
        "All drafted tokens are drawn from the distribution of the first position and verified with the q of their "
        "own: they do not come from the q that is tested.",
        ("model",),
        _BOTH,
        _first_distribution,
    ),
    "keep-refused": Mistake(
        "Keep the refused token",
        "The refused draft token is written all the same: from there on the draft decides what comes out.",
        (*_SAMPLED, "ngram"),
        ("rejection",),
        _wrong_residual(_refused_token),
    ),
    "reseed": Mistake(
        "Reseed in every step",
        "The random generator is seeded again in every step, so the same numbers decide step after step.",
        (*_SAMPLED, "ngram", "tree", "pool"),
        _BOTH,
        _reseed,
    ),
    "softmax-residual": Mistake(
        "Softmax of the residual",
        "The residual is put through softmax instead of being divided by its sum: tokens of probability 0 come out.",
        (*_SAMPLED, "ngram"),
        _BOTH,
        _wrong_residual(_softmax),
    ),
    "unwarped-q": Mistake(
        "Verify with the unwarped q",
        "Tokens are drawn from the draft's distribution after temperature and top-k and verified with the one before: "
        "p/q is not the ratio of what was really drawn.",
        ("model",),
        _BOTH,
        _changed("model", _model, _raw_q),
    ),
    "withdraw": Mistake(
        "Withdraw an uncertain token",
        "A token is drawn and then dropped because the draft was not certain of it: what stays is no sample of q.",
        ("model",),
        _BOTH,
        _changed("model", _model, _withdraw),
    ),
    "softmax-top-k-tree": Mistake(
        "Top-k children tested with softmax",
        "The children of a tree's node are the draft's k best, chosen and not drawn, and are tested with the draft's "
        "softmax as q; a chosen token's q is 1.",
        ("tree-dynamic",),
        ("rejection",),
        _changed("tree-dynamic", _dynamic_tree, _raw_q),
    ),
    "accept-zero-p": Mistake(
        "Accept u = 0 where p = 0",
        "The test is u \N{LESS-THAN OR EQUAL TO} p/q with u from [0, 1): u = 0 lets a token pass that the target "
        "excludes. u is forced to 0 at tokens with p = 0; the strict test stays exact under the same forcing.",
        ("model", "layer_skip", "ngram", "tree", "pool"),
        ("rejection",),
        _accept_zero,
    ),
}
