"""The rule on distributions small enough to work out by hand; its law is tested in tests/statistical."""

import pytest
import torch

from specviz.engine.verify import accepts, overlap, rejection, residual_of

P = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6]])
Q = torch.tensor([[0.2, 0.6, 0.2], [0.4, 0.4, 0.2]])


def test_all_accepted_gives_a_bonus_from_the_last_row():
    verdict = rejection(P, Q, [0, 2], [0.99, 0.99], 0.9)
    assert (verdict.accepted, verdict.token, verdict.residual) == (2, 2, None)
    assert verdict.token_p == pytest.approx(0.6)


def test_refused_where_u_is_above_p_over_q_and_redrawn_from_the_residual():
    verdict = rejection(P, Q, [1, 2], [0.51, 0.0001], 0.5)
    assert verdict.accepted == 0
    assert verdict.accept_prob[0] == pytest.approx(0.5)
    torch.testing.assert_close(verdict.residual, torch.tensor([1.0, 0.0, 0.0]))
    assert (verdict.token, verdict.token_p) == (0, pytest.approx(0.5))


def test_a_deterministic_proposal_is_accepted_with_probability_p():
    assert rejection(P, None, [1, 2], [0.29, 0.79], 0.5).accepted == 2
    verdict = rejection(P, None, [1, 2], [0.31, 0.5], 0.5)
    assert verdict.accepted == 0
    torch.testing.assert_close(verdict.residual, torch.tensor([5 / 7, 0, 2 / 7]))


def test_nothing_drafted_is_a_plain_sample():
    verdict = rejection(P[:1], None, [], [], 0.6)
    assert (verdict.accepted, verdict.token, verdict.p) == (0, 1, [])


def test_zero_temperature_accepts_exactly_the_argmax():
    p = torch.tensor([[0.0, 1, 0], [1, 0, 0]])
    assert rejection(p, None, [1], [0.999], 0.5).accepted == 1
    verdict = rejection(p, None, [2], [1e-12], 0.5)
    assert (verdict.accepted, verdict.token) == (0, 1)


def test_a_token_of_probability_zero_never_passes():
    assert not accepts(0.0, 1.0, 1e-300)
    assert not accepts(0.0, 1e-30, 2**-53)


def test_where_nothing_is_left_the_residual_is_p():
    torch.testing.assert_close(residual_of(P[0], P[0], 1), P[0])


def test_overlap_is_the_chance_of_acceptance():
    assert overlap(P, Q, [0, 2]) == pytest.approx([0.2 + 0.3 + 0.2, 0.1 + 0.1 + 0.2])
    assert overlap(P, None, [0, 2]) == pytest.approx([0.5, 0.8])
