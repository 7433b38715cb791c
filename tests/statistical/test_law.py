"""Losslessness: the joint law of what the engine's own loop writes is the target's, whatever drafts.

Every case runs tens of thousands of seeds through `Engine.generate` on table models and compares all outputs of
gamma + 2 tokens (so at least two steps) with the exact law, worked out here without the engine's sampling code. The
same test must fail when the rule is made wrong on purpose.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from specviz.engine import verify
from specviz.lab.table import TableModel, table_engine

PROMPT = [1, 2, 0, 1, 2]


def warped(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """The target's distribution for one row, by the book."""
    logits = logits.astype(np.float64) / temperature
    order = np.argsort(-logits)
    probs = np.exp(logits - logits.max())
    if top_k:
        probs[order[top_k:]] = 0
    probs /= probs.sum()
    if top_p < 1:
        before = np.cumsum(probs[order]) - probs[order]
        probs[order[before >= top_p]] = 0
        probs /= probs.sum()
    return probs


def exact_law(target: TableModel, length: int, **warp) -> dict[tuple[int, ...], float]:
    """Probability of every output of `length` tokens behind PROMPT."""
    rows = {
        pair: warped(target.logits[pair].numpy(), **warp)
        for pair in itertools.product(range(target.vocab_size), repeat=2)
    }
    law = {(): 1.0}
    for _ in range(length):
        law = {
            (*text, token): mass * p
            for text, mass in law.items()
            for token, p in enumerate(rows[tuple([*PROMPT, *text][-2:])])
            if p > 0
        }
    return law


def p_value(law: dict[tuple[int, ...], float], outputs: list[tuple[int, ...]]) -> float:
    """Chi-squared test; cells that expect fewer than 5 are merged. Outputs the law excludes make it 0."""
    counts = dict.fromkeys(law, 0)
    for output in outputs:
        if output not in counts:
            return 0.0
        counts[output] += 1
    cells, rest = [], [0.0, 0]
    for text, mass in law.items():
        expected = mass * len(outputs)
        if expected >= 5:
            cells.append((expected, counts[text]))
        else:
            rest = [rest[0] + expected, rest[1] + counts[text]]
    if rest[0] >= 5:
        cells.append(tuple(rest))
    statistic = sum((seen - expected) ** 2 / expected for expected, seen in cells)
    return float(chi2.sf(statistic, len(cells) - 1))


#: (draft, vocabulary, gamma, warp, runs)
CASES = {
    "model, top-k": ("model", 8, 4, {"temperature": 1.0, "top_k": 3, "top_p": 1.0}, 30_000),
    "model, nucleus": ("model", 8, 2, {"temperature": 0.7, "top_k": 0, "top_p": 0.6}, 30_000),
    "lookup": ("ngram", 4, 2, {"temperature": 1.0, "top_k": 0, "top_p": 1.0}, 30_000),
    "smoothed": ("ngram-smoothed", 4, 2, {"temperature": 1.0, "top_k": 0, "top_p": 1.0}, 30_000),
    "plain": ("none", 4, 2, {"temperature": 1.5, "top_k": 3, "top_p": 1.0}, 10_000),
}


def sample(case: str, n: int | None = None) -> tuple[dict, list[tuple[int, ...]]]:
    """(the exact law, the outputs of n seeds)"""
    draft, vocabulary, gamma, warp, enough = CASES[case]
    n = n or enough
    target, other = TableModel.random(vocabulary, seed=1), TableModel.random(vocabulary, seed=2)
    engine = table_engine(target, other)
    options = {"draft": draft, "gamma": gamma, "max_new_tokens": gamma + 2, "trace": False, **warp}
    runs = [engine.generate(PROMPT, seed=seed, **options) for seed in range(n)]
    assert sum(len(run.steps) for run in runs) >= 2 * n
    return exact_law(target, gamma + 2, **warp), [tuple(run.output.token_ids) for run in runs]


@pytest.mark.parametrize("case", CASES)
def test_the_output_has_the_targets_law(case):
    assert p_value(*sample(case)) > 1e-3


def from_p_instead_of_the_residual(p, q, token):
    """The classic mistake: the correction is drawn from p, as if nothing had been refused."""
    return p


def emit_the_refused_token(p, q, token):
    return torch.zeros_like(p).index_fill_(0, torch.tensor([token]), 1.0)


@pytest.mark.parametrize("case", ["model, top-k", "model, nucleus", "lookup", "smoothed"])
@pytest.mark.parametrize("wrong", [from_p_instead_of_the_residual, emit_the_refused_token])
def test_a_wrong_residual_fails_the_same_test(monkeypatch, case, wrong):
    monkeypatch.setattr(verify, "residual_of", wrong)
    assert p_value(*sample(case, n=4_000)) < 1e-6


def test_a_wrong_acceptance_fails_the_same_test(monkeypatch):
    monkeypatch.setattr(verify, "accepts", lambda p, q, u: u < p)
    assert p_value(*sample("model, top-k", n=8_000)) < 1e-6


def test_drafting_from_unwarped_logits_fails_the_same_test(monkeypatch):
    from specviz.drafters import model

    real = model.ModelDrafter.propose

    def propose(self, context, gamma, u, warp):
        proposal = real(self, context, gamma, u, lambda logits, *_: logits.float().softmax(-1))
        proposal.q = torch.stack([warp(row.log()[None], context)[0] for row in proposal.q])
        return proposal

    monkeypatch.setattr(model.ModelDrafter, "propose", propose)
    assert p_value(*sample("model, nucleus", n=8_000)) < 1e-6
