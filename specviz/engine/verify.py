"""Acceptance rules as pure functions on tensors: which draft tokens stay, and what the target says instead.

Whatever the draft proposed, what a rule lets through is distributed as the target's own output; random numbers come
in with `noise`. Held by tests/statistical (exact and sampled, with wrong variants that must fail) and
tests/unit/test_verify.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specviz.drafters.protocol import Proposal
from specviz.engine.cache import ROOT
from specviz.engine.noise import Noise

Residual = Callable[[Tensor, "Tensor | None", int], Tensor]


@dataclass(slots=True)
class Verdict:
    """What a rule decided about one tree of draft tokens.

    `path` are the kept nodes from the root on; `token` is the target's own behind them: the correction after a
    refusal, the bonus after full acceptance, the sample when nothing was drafted; `token_p` is its warped p.
    `p`, `q`, `accept_prob` and `u` have an entry for each node: its probabilities, the chance its test gave it (`h`
    under `block`), the number drawn for it (None where there was no test, or one without u). `refused` are the nodes
    tested in vain. `residual` is the (vocabulary,) distribution `token` was drawn from after a refusal, else None,
    and `residual_mass` the mass it had before it was normalised. `tests` lists the chance of every test in the
    order made, draws that met a node again included.
    """

    path: list[int]
    token: int
    token_p: float
    p: list[float]
    q: list[float]
    accept_prob: list[float]
    u: list[float | None]
    refused: list[int]
    residual: Tensor | None
    residual_mass: float | None
    tests: list[float]

    def refused_last(self, proposal: Proposal) -> bool:
        """Whether `token` stands in the place of refused draft tokens."""
        last = self.path[-1] if self.path else ROOT
        return any(proposal.parents[node] == last for node in self.refused)


#: (p, proposal, noise, absolute position of the first draft token) -> Verdict. `p` holds (nodes + 1, vocabulary)
#: distributions of the target: behind the pending token, then behind each node.
Rule = Callable[[Tensor, Proposal, Noise, int], Verdict]


def accepts(p: float, q: float, u: float) -> bool:
    """Whether a draft token passes: u < p/q, in logarithms so that a token with p = 0 never can."""
    if p <= 0:
        return False
    return math.log(u) + math.log(q) < math.log(p) if q > 0 else True


def residual_of(p: Tensor, q: Tensor | None, token: int) -> Tensor:
    """max(0, p - q), not normalised: (vocabulary,) what the target still owes after refusing `token`.

    `q` None is one-hot on `token`.
    """
    if q is None:
        rest = p.clone()
        rest[token] = 0
        return rest
    return (p - q).clamp_(min=0)


def rejection(
    p: Tensor,
    proposal: Proposal,
    noise: Noise,
    position: int,
    *,
    accepts: Callable[[float, float, float], bool] = accepts,
    residual_of: Residual = residual_of,
) -> Verdict:
    """Speculative sampling (Leviathan et al. 2023, Algorithm 1; Chen et al. 2023, Algorithm 2), on a tree by recursive
    rejection (SpecInfer: Miao et al. 2023, Algorithm 2; Yang et al. 2024).

    The draws for a place are tried in the order drawn, each against what is left of p after those refused before.
    A chain is the case of one draw for each place.
    """
    verdict = _begin(p, proposal)
    children = proposal.children()
    at, rest = ROOT, p[0]
    while at in children:
        taken = None
        for draw in children[at]:
            node, token = draw.node, proposal.ids[draw.node]
            if verdict.residual is None:
                p_x, q_x = verdict.p[node], verdict.q[node]
            else:
                p_x, q_x = float(rest[token]), 1.0 if draw.q is None else float(draw.q[token])
            u, chance = noise.accept(), _ratio(p_x, q_x)
            verdict.tests.append(chance)
            if verdict.u[node] is None:
                verdict.u[node], verdict.accept_prob[node] = u, chance
            if accepts(p_x, q_x, u):
                taken = node
                break
            if node not in verdict.refused:
                verdict.refused.append(node)
            owed = residual_of(rest, draw.q, token)
            verdict.residual_mass = float(owed.sum())
            # Where rounding left nothing it is p itself that is owed.
            rest = verdict.residual = owed / verdict.residual_mass if verdict.residual_mass > 0 else rest
        if taken is None:
            break
        verdict.path.append(taken)
        verdict.residual = verdict.residual_mass = None
        at, rest = taken, p[taken + 1]
    return _finish(verdict, rest, p, noise, position)


def block(
    p: Tensor, proposal: Proposal, noise: Noise, position: int, *, residual_of: Residual = residual_of
) -> Verdict:
    """Block verification (Sun et al. 2024, Algorithm 2): the draft is judged as a whole, never fewer tokens stay.

    Raises:
        ValueError: the proposal branches.
    """
    if not proposal.is_chain:
        raise ValueError("block verification is defined for chains only")
    verdict = _begin(p, proposal)
    gamma, qs = len(proposal.ids), proposal.q
    weights = [1.0]  # the p_i of the paper
    for i in range(gamma):
        weights.append(min(1.0, weights[-1] * _quotient(verdict.p[i], verdict.q[i])))
    for i in range(1, gamma + 1):
        h = weights[i]
        if 0 < h < 1 and i < gamma:
            owed = float(residual_of(weights[i] * p[i], qs[i], proposal.ids[i]).sum())
            h = owed / (owed + 1 - weights[i])
        verdict.accept_prob[i - 1], verdict.u[i - 1] = h, noise.accept()
        verdict.tests.append(h)
    kept = max((i for i in range(1, gamma + 1) if verdict.u[i - 1] < verdict.accept_prob[i - 1]), default=0)
    verdict.path = list(range(kept))
    rest = p[kept]
    if kept < gamma:
        verdict.refused = [kept]
        owed = residual_of(weights[kept] * p[kept], qs[kept], proposal.ids[kept])
        verdict.residual_mass = float(owed.sum())
        rest = verdict.residual = owed / verdict.residual_mass if verdict.residual_mass > 0 else rest
    return _finish(verdict, rest, p, noise, position)


def coupled(p: Tensor, proposal: Proposal, noise: Noise, position: int) -> Verdict:
    """Gumbel-max coupling (Daliri, Musco, Suresh 2024): the target draws with the noise the draft drew with, and the
    draft is followed as long as it agrees. On a tree, to the child that equals the target's token.

    `accept_prob` is the chance that both agree, given the draft's token, over the noise; no u decides. (Of a later
    sibling it is the chance its own q would give it: what the earlier ones told about the noise is left out.)
    """
    verdict = _begin(p, proposal)
    children, qs = proposal.children(), proposal.q
    at = ROOT
    while True:
        row = p[at + 1]
        token = noise.target(row, position + len(verdict.path))
        taken = None
        for draw in children.get(at, ()):
            node = draw.node
            verdict.accept_prob[node] = _agreement(row, qs[node], proposal.ids[node])
            verdict.tests.append(verdict.accept_prob[node])
            if proposal.ids[node] == token:
                taken = node
                break
            if node not in verdict.refused:
                verdict.refused.append(node)
        if taken is None:
            verdict.token, verdict.token_p = token, float(row[token])
            return verdict
        verdict.path.append(taken)
        at = taken


def overlap(p: Tensor, proposal: Proposal, verdict: Verdict) -> list[float]:
    """For each node the sum of min(p, q) at its position: the chance that a fresh draw from its q is accepted there.

    Shapes as for a rule (Leviathan et al. 2023, Definition 3.2 and Theorem 3.5).
    """
    shares = []
    for node, (parent, q) in enumerate(zip(proposal.parents, proposal.q, strict=True)):
        shares.append(verdict.p[node] if q is None else min(1.0, float(torch.minimum(p[parent + 1], q).sum())))
    return shares


def _begin(p: Tensor, proposal: Proposal) -> Verdict:
    p_x, q_x = _probabilities(p, proposal)
    chances = [_ratio(a, b) for a, b in zip(p_x, q_x, strict=True)]
    return Verdict([], -1, 0.0, p_x, q_x, chances, [None] * len(p_x), [], None, None, [])


def _finish(verdict: Verdict, weights: Tensor, p: Tensor, noise: Noise, position: int) -> Verdict:
    last = verdict.path[-1] if verdict.path else ROOT
    verdict.token = noise.target(weights, position + len(verdict.path))
    verdict.token_p = float(p[last + 1, verdict.token])
    return verdict


def _quotient(p: float, q: float) -> float:
    return p / q if q > 0 else math.inf if p > 0 else 0.0


def _ratio(p: float, q: float) -> float:
    return min(1.0, _quotient(p, q))


def _agreement(p: Tensor, q: Tensor | None, token: int) -> float:
    """Chance that `token` wins the target's race given that it won the draft's: 1 / sum of max(p_y q_x / p_x, q_y)."""
    if q is None or p[token] <= 0:
        return float(p[token])
    return float(1 / torch.maximum(p * (q[token] / p[token]), q).sum())


def _probabilities(p: Tensor, proposal: Proposal) -> tuple[list[float], list[float]]:
    """(p, q) of each node's token, read from the device at once."""
    if not proposal.ids:
        return [], []
    rows = torch.tensor(proposal.parents, device=p.device) + 1
    ids = torch.tensor(proposal.ids, device=p.device)
    p_x = p[rows, ids]
    qs = proposal.q
    drawn = [node for node, q in enumerate(qs) if q is not None]
    values = [1.0] * len(qs)
    if not drawn:
        return p_x.tolist(), values
    q_x = torch.stack([qs[node][proposal.ids[node]] for node in drawn])
    both = torch.cat([p_x, q_x]).tolist()
    for node, value in zip(drawn, both[len(qs) :], strict=True):
        values[node] = value
    return both[: len(qs)], values


RULES: dict[str, Rule] = {"rejection": rejection, "block": block, "coupled": coupled}
