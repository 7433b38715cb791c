"""The rules on distributions small enough to work out by hand; their laws are tested in tests/statistical."""

import itertools

import pytest
import torch

from specviz.drafters import Proposal
from specviz.engine import verify
from specviz.engine.cache import ROOT
from specviz.engine.noise import CoupledNoise
from specviz.engine.verify import RULES, accepts, block, coupled, overlap, rejection, residual_of

P = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6]])
Q = torch.tensor([[0.2, 0.6, 0.2], [0.4, 0.4, 0.2]])


class Numbers:
    """The u of each test in turn; the target's own token is the one at quantile `own`, or what `weights` shows."""

    def __init__(self, *us, own=0.5):
        self._us, self._own = iter(us), own

    def accept(self):
        return next(self._us)

    def target(self, weights, position):
        self.weights, self.position = weights, position
        return int(torch.searchsorted((weights / weights.sum()).cumsum(0), torch.tensor(self._own), right=True))


def chain(ids, qs=None):
    proposal, node = Proposal(), ROOT
    for i, token in enumerate(ids):
        node = proposal.add(token, None if qs is None else qs[i], node)
    return proposal


def test_all_accepted_gives_a_bonus_from_the_last_row():
    noise = Numbers(0.99, 0.99, own=0.9)
    verdict = rejection(P, chain([0, 2], Q), noise, 7)
    assert (verdict.path, verdict.token, verdict.residual, verdict.residual_mass) == ([0, 1], 2, None, None)
    assert verdict.token_p == pytest.approx(0.6)
    assert noise.position == 9
    assert not verdict.refused_last(chain([0, 2], Q))


def test_refused_where_u_is_above_p_over_q_and_redrawn_from_the_residual():
    proposal = chain([1, 2], Q)
    verdict = rejection(P, proposal, Numbers(0.51), 7)
    assert (verdict.path, verdict.refused, verdict.u) == ([], [0], [0.51, None])
    assert verdict.accept_prob[0] == pytest.approx(0.5)
    torch.testing.assert_close(verdict.residual, torch.tensor([1.0, 0.0, 0.0]))
    assert verdict.residual_mass == pytest.approx(0.3)
    assert (verdict.token, verdict.token_p) == (0, pytest.approx(0.5))
    assert verdict.refused_last(proposal)


def test_a_deterministic_proposal_is_accepted_with_probability_p():
    assert rejection(P, chain([1, 2]), Numbers(0.29, 0.79), 0).path == [0, 1]
    verdict = rejection(P, chain([1, 2]), Numbers(0.31), 0)
    assert (verdict.path, verdict.q) == ([], [1.0, 1.0])
    torch.testing.assert_close(verdict.residual, torch.tensor([5 / 7, 0, 2 / 7]))


@pytest.mark.parametrize("rule", [rejection, block])
def test_nothing_drafted_is_a_plain_sample(rule):
    noise = Numbers(own=0.6)
    verdict = rule(P[:1], Proposal(), noise, 5)
    assert (verdict.path, verdict.token, verdict.p, verdict.tests) == ([], 1, [], [])
    assert noise.position == 5


def test_zero_temperature_accepts_exactly_the_argmax():
    p = torch.tensor([[0.0, 1, 0], [1, 0, 0]])
    for rule in (rejection, block):
        assert rule(p, chain([1]), Numbers(0.999), 0).path == [0]
        verdict = rule(p, chain([2]), Numbers(1e-12), 0)
        assert (verdict.path, verdict.token) == ([], 1)


def test_a_token_of_probability_zero_never_passes():
    assert not accepts(0.0, 1.0, 1e-300)
    assert not accepts(0.0, 1e-30, 2**-53)


def test_what_is_left_after_a_refusal():
    torch.testing.assert_close(residual_of(P[0], Q[0], 1), torch.tensor([0.3, 0, 0]))
    torch.testing.assert_close(residual_of(P[0], None, 1), torch.tensor([0.5, 0, 0.2]))
    for rule in (rejection, block):  # p = q and yet refused, by rounding: p itself is owed
        verdict = rule(P, chain([1], P), Numbers(1.0, own=0.4), 0)
        assert verdict.path == []
        torch.testing.assert_close(verdict.residual, P[0])


def test_overlap_is_the_chance_of_acceptance():
    proposal = chain([0, 2], Q)
    verdict = rejection(P, proposal, Numbers(0.1, 0.1), 0)
    assert overlap(P, proposal, verdict) == pytest.approx([0.2 + 0.3 + 0.2, 0.1 + 0.1 + 0.2])
    proposal = chain([0, 2])
    verdict = rejection(P, proposal, Numbers(0.1, 0.1), 0)
    assert overlap(P, proposal, verdict) == pytest.approx([0.5, 0.8])


# Trees.


def test_siblings_are_tried_in_the_order_drawn_against_what_is_left():
    proposal = Proposal()
    proposal.add(1, Q[0], ROOT)
    proposal.add(0, Q[0], ROOT)
    proposal.add(2, Q[1], 1)
    p = torch.cat([P[:1], P])  # rows behind the pending token and nodes 0, 1, 2
    verdict = rejection(p, proposal, Numbers(0.51, 0.99, 0.99), 0)
    # 1 is refused at 0.3 / 0.6; what is left is token 0 for certain.
    assert (verdict.path, verdict.refused) == ([1, 2], [0])
    assert verdict.accept_prob == pytest.approx([0.5, 1.0, 1.0])
    assert verdict.tests == pytest.approx([0.5, 1.0, 1.0])
    assert not verdict.refused_last(proposal)


def test_when_no_sibling_is_left_the_target_draws_from_the_last_residual():
    proposal, noise = Proposal(), Numbers(0.6, 0.5)
    proposal.add(0, None, ROOT)
    proposal.add(2, None, ROOT)
    verdict = rejection(P, proposal, noise, 3)
    assert (verdict.path, verdict.refused, verdict.token) == ([], [0, 1], 1)
    assert verdict.accept_prob == pytest.approx([0.5, 0.2 / 0.5])
    torch.testing.assert_close(verdict.residual, torch.tensor([0, 1.0, 0]))
    assert verdict.p == pytest.approx([0.5, 0.2])  # p itself, not what was left of it


def test_a_duplicate_draw_is_a_trial_of_its_own_though_it_cannot_pass():
    proposal = Proposal()
    proposal.add(1, Q[0], ROOT, source="a")
    proposal.add(1, Q[0], ROOT, source="b")
    proposal.add(0, Q[0], ROOT, source="b")
    verdict = rejection(torch.cat([P[:1]] * 3), proposal, Numbers(0.6, 1e-9, 0.9), 0)
    assert (verdict.path, verdict.refused) == ([1], [0])
    assert verdict.tests == pytest.approx([0.5, 0.0, 1.0])
    assert (verdict.u[0], verdict.accept_prob[0]) == (0.6, pytest.approx(0.5))


def test_each_draw_is_tested_with_its_own_q():
    proposal = Proposal()
    proposal.add(1, None, ROOT, source="ngram")
    proposal.add(0, Q[0], ROOT, source="model")
    verdict = rejection(torch.cat([P[:1]] * 3), proposal, Numbers(0.4, 0.99), 0)
    # After the one-hot refusal (5/7, 0, 2/7) is left, and q(0) is 0.2.
    assert verdict.tests == pytest.approx([0.3, 1.0])
    assert verdict.path == [1]


# Block verification.

EXAMPLE_P, EXAMPLE_Q = torch.tensor([1 / 3, 2 / 3]).double(), torch.tensor([2 / 3, 1 / 3]).double()


def expected_accepted(rule, ps, qs) -> float:
    """Expected accepted draft tokens, over all drafts and all outcomes of u; `ps`, `qs` do not depend on the path.

    A test passes with the chance the rule itself gives, and each rule says in `tests` what that is.
    """
    total = 0.0
    for ids in itertools.product(range(len(qs[0])), repeat=len(qs)):
        mass = float(torch.stack([q[token] for q, token in zip(qs, ids, strict=True)]).prod())
        if mass:
            verdict = rule(ps, chain(ids, qs), Numbers(*[0.5] * len(ids)), 0)
            total += mass * kept(rule, verdict.accept_prob)
    return total


def kept(rule, chances) -> float:
    if rule is block:  # the longest i with u_i < h_i
        longest, beaten = 0.0, 1.0
        for i in range(len(chances), 0, -1):
            longest += i * beaten * chances[i - 1]
            beaten *= 1 - chances[i - 1]
        return longest
    reached, total = 1.0, 0.0
    for chance in chances:
        reached *= chance
        total += reached
    return total


def test_block_keeps_eleven_ninths_where_rejection_keeps_ten_ninths():
    ps, qs = EXAMPLE_P.repeat(3, 1), [EXAMPLE_Q] * 2
    assert expected_accepted(rejection, ps, qs) == pytest.approx(10 / 9)
    assert expected_accepted(block, ps, qs) == pytest.approx(11 / 9)


def test_block_beats_the_limit_of_rejection_on_that_example():
    ps, qs = EXAMPLE_P.repeat(6, 1), [EXAMPLE_Q] * 5
    assert 1 + expected_accepted(block, ps, qs) == pytest.approx(3.37, abs=0.005)
    assert 1 + expected_accepted(rejection, ps, qs) < 3


@pytest.mark.parametrize("seed", range(25))
def test_block_never_keeps_fewer_than_rejection_and_equally_many_at_gamma_one(seed):
    generator = torch.Generator().manual_seed(seed)
    gamma, vocabulary = 1 + seed % 4, 2 + seed % 3
    spread = (0.5, 2.0, 6.0)[seed % 3]
    ps = (spread * torch.randn(gamma + 1, vocabulary, generator=generator).double()).softmax(-1)
    qs = list((spread * torch.randn(gamma, vocabulary, generator=generator).double()).softmax(-1))
    few, many = expected_accepted(rejection, ps, qs), expected_accepted(block, ps, qs)
    assert many >= few - 1e-12
    if gamma == 1:
        assert many == pytest.approx(few)


def test_block_gives_h_and_u_for_all_and_keeps_the_longest():
    ps, qs = EXAMPLE_P.repeat(4, 1), [EXAMPLE_Q] * 3
    proposal = chain([0, 1, 0], qs)
    # p_i is 1/2, 1, 1/2; S_1 = sum of max(p/2 - q, 0) = 0, so h_1 = 0; h_2 = 1; h_3 = p_3.
    verdict = block(ps, proposal, Numbers(0.9, 0.99, 0.51, own=0.99), 4)
    assert verdict.accept_prob == pytest.approx([0.0, 1.0, 0.5])
    assert verdict.u == [0.9, 0.99, 0.51]
    assert (verdict.path, verdict.refused) == ([0, 1], [2])
    torch.testing.assert_close(verdict.residual, torch.tensor([0.0, 1.0]).double())
    assert verdict.residual_mass == pytest.approx(1 / 3)
    assert block(ps, proposal, Numbers(0.9, 0.99, 0.49), 4).path == [0, 1, 2]


def test_block_is_for_chains():
    proposal = Proposal()
    proposal.add(0, Q[0], ROOT)
    proposal.add(1, Q[0], ROOT)
    with pytest.raises(ValueError, match="chains only"):
        block(torch.cat([P] * 2), proposal, Numbers(0.5, 0.5), 0)


# Coupling.


def test_coupled_follows_the_draft_as_long_as_it_agrees():
    noise = CoupledNoise(3)
    agreeing = [noise.target(P[0], 5), noise.target(P[1], 6)]
    verdict = coupled(P, chain(agreeing, Q), noise, 5)
    assert (verdict.path, verdict.token, verdict.residual) == ([0, 1], noise.target(P[2], 7), None)
    other = (agreeing[0] + 1) % 3
    verdict = coupled(P, chain([other, agreeing[1]], Q), noise, 5)
    assert (verdict.path, verdict.refused, verdict.token) == ([], [0], agreeing[0])
    assert verdict.u == [None, None]


def test_coupled_walks_to_the_child_that_is_the_targets_token():
    noise = CoupledNoise(8)
    token = noise.target(P[0], 2)
    proposal = Proposal()
    for child in ((token + 1) % 3, token, (token + 2) % 3):
        proposal.add(child, None, ROOT)
    verdict = coupled(torch.cat([P[:1], P]), proposal, noise, 2)
    assert (verdict.path, verdict.refused) == ([1], [0])


def test_the_chance_that_a_coupled_draft_agrees_is_what_comes_out():
    hits, tries = torch.zeros(3), torch.zeros(3)
    for seed in range(6000):
        noise = CoupledNoise(seed)
        token = noise.draft(Q[0], 0)
        verdict = coupled(P, chain([token], Q), noise, 0)
        tries[token] += 1
        hits[token] += len(verdict.path)
        if not tries[token] - 1:
            assert verdict.accept_prob[0] == pytest.approx(verify._agreement(P[0], Q[0], token))
    chances = torch.tensor([verify._agreement(P[0], Q[0], token) for token in range(3)])
    errors = (chances * (1 - chances) / tries).sqrt()
    assert ((hits / tries - chances).abs() < 4 * errors + 1e-9).all()
    share = float(torch.minimum(P[0], Q[0]).sum())
    assert float((chances * Q[0]).sum()) >= share / (2 - share)  # (1 - TV) / (1 + TV)


def test_the_rules_on_offer():
    assert list(RULES) == ["rejection", "block", "coupled"]
