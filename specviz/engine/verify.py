"""Acceptance rules as pure functions on tensors: which draft tokens stay, and what the target says instead.

Whatever the draft proposed, what a rule lets through is distributed as the target's own output; random numbers
come in as arguments. Held by tests/statistical/test_law.py (with wrong variants that must fail) and
tests/unit/test_verify.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specviz.engine.sampling import draw


@dataclass(slots=True)
class Verdict:
    """What a rule decided about one chain of draft tokens.

    `accepted` counts the kept ones; `token` is the target's own: the correction after a rejection, the bonus after
    full acceptance, the sample when nothing was drafted. `p`, `q`, `accept_prob` hold one number per draft token,
    `token_p` the warped p of `token`. `residual` is the (vocabulary,) distribution `token` was redrawn from
    after a rejection, else None.
    """

    accepted: int
    token: int
    token_p: float
    p: list[float] = field(default_factory=list)
    q: list[float] = field(default_factory=list)
    accept_prob: list[float] = field(default_factory=list)
    residual: Tensor | None = None


#: (p, q, draft ids, u per draft token, u of the last token) -> Verdict
Rule = Callable[[Tensor, "Tensor | None", Sequence[int], Sequence[float], float], Verdict]


def rejection(p: Tensor, q: Tensor | None, ids: Sequence[int], u: Sequence[float], u_last: float) -> Verdict:
    """Speculative sampling (Leviathan et al. 2023, Algorithm 1; Chen et al. 2023, Algorithm 2).

    Args:
        p: (gamma + 1, vocabulary) float32, the target's distributions at the draft tokens' positions and one behind.
        q: (gamma, vocabulary) float32, the distributions the draft tokens were really drawn from; None for a
            deterministic proposal, whose q is one-hot on its token.
        ids: the gamma draft tokens.
        u: gamma numbers in (0, 1), one per test.
        u_last: the number in (0, 1) that draws the target's own token.
    """
    gamma = len(ids)
    p_x, q_x = _probabilities(p, q, ids)
    accepted = 0
    while accepted < gamma and accepts(p_x[accepted], q_x[accepted], u[accepted]):
        accepted += 1
    residual = None
    weights = p[accepted]
    if accepted < gamma:
        weights = residual = residual_of(p[accepted], None if q is None else q[accepted], ids[accepted])
    token = draw(weights, u_last)
    return Verdict(
        accepted=accepted,
        token=token,
        token_p=float(p[accepted, token]),
        p=p_x,
        q=q_x,
        accept_prob=[min(1.0, a / b) if b > 0 else 1.0 for a, b in zip(p_x, q_x, strict=True)],
        residual=residual,
    )


def accepts(p: float, q: float, u: float) -> bool:
    """Whether a draft token passes: u < p/q, in logarithms so that a token with p = 0 never can."""
    if p <= 0:
        return False
    return math.log(u) + math.log(q) < math.log(p) if q > 0 else True


def residual_of(p: Tensor, q: Tensor | None, token: int) -> Tensor:
    """max(0, p - q), normalised: (vocabulary,) what the target still owes after refusing `token`.

    Where nothing is left (p = q up to rounding) it is p itself.
    """
    if q is None:
        rest = p.clone()
        rest[token] = 0
    else:
        rest = (p - q).clamp_(min=0)
    total = rest.sum()
    return rest / total if total > 0 else p


def overlap(p: Tensor, q: Tensor | None, ids: Sequence[int]) -> list[float]:
    """Sum of min(p, q) at each of the gamma draft positions: the chance that a fresh draw there is accepted.

    Shapes as in `rejection` (Leviathan et al. 2023, Definition 3.2 and Theorem 3.5).
    """
    if q is None:
        return _probabilities(p, None, ids)[0]
    return torch.minimum(p[: len(ids)], q).sum(-1).clamp_(max=1).tolist()


def _probabilities(p: Tensor, q: Tensor | None, ids: Sequence[int]) -> tuple[list[float], list[float]]:
    if not ids:
        return [], []
    column = torch.tensor(ids, device=p.device)[:, None]
    p_x = p[: len(ids)].gather(1, column)[:, 0]
    if q is None:
        return p_x.tolist(), [1.0] * len(ids)
    both = torch.stack([p_x, q.gather(1, column)[:, 0]]).tolist()
    return both[0], both[1]


RULES: dict[str, Rule] = {"rejection": rejection}
