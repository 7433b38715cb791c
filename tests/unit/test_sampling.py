"""Logits to distribution: each cut against its definition, and no NaN at any extreme."""

import pytest
import torch

from specviz.engine.sampling import Warp, draw, prefixes, truncate
from specviz.errors import NumericsError
from specviz.settings import Settings


def warp(logits, context=(), paths=None, prompt_length=0, **settings):
    paths = [()] * len(logits) if paths is None else paths
    return Warp(Settings.of(**settings), prompt_length)(torch.tensor(logits), context, paths)


def test_temperature_zero_is_one_hot_at_the_argmax():
    assert warp([[0.1, 3.0, 2.0]], temperature=0).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("temperature", [5e-324, 1e-46, 1e-38, 1e-6, 1e-3, 100.0])
@pytest.mark.parametrize(("top_p", "top_k"), [(0.0, 0), (1.0, 0), (1.0, 1), (0.5, 3)])
def test_extremes_give_a_distribution(temperature, top_p, top_k):
    probs = warp([[80.0, -90.0, 79.0, 3.0]], temperature=temperature, top_p=top_p, top_k=top_k)
    assert torch.isfinite(probs).all()
    assert probs.sum().item() == pytest.approx(1)
    if temperature < 1 or top_p == 0 or top_k == 1:
        assert probs.argmax().item() == 0


def test_temperature_divides_the_logits():
    expected = (torch.tensor([1.0, 2.0, 3.0]) / 0.7).softmax(0)
    torch.testing.assert_close(warp([[1.0, 2.0, 3.0]], temperature=0.7)[0], expected)


def test_top_k_keeps_exactly_k_also_where_logits_tie():
    assert (truncate(torch.zeros(1, 10), top_k=3) > 0).sum() == 3


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass():
    probs = truncate(torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log(), top_p=0.75)
    torch.testing.assert_close(probs, torch.tensor([[0.625, 0.375, 0, 0]]))


@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
def test_the_nucleus_is_that_of_sorting_the_whole_row(top_p, spread):
    logits = spread * torch.randn(1, 5000, generator=torch.Generator().manual_seed(0))
    best, order = logits[0].softmax(0).sort(descending=True)
    kept = order[: int((best.cumsum(0) - best < top_p).sum())]
    assert set(truncate(logits, top_p=top_p)[0].nonzero()[:, 0].tolist()) == set(kept.tolist())


def test_min_p_cuts_relative_to_the_best():
    probs = truncate(torch.tensor([[0.6, 0.3, 0.1]]).log(), min_p=0.4)
    torch.testing.assert_close(probs, torch.tensor([[2 / 3, 1 / 3, 0]]))


def test_repetition_penalty_sees_prompt_output_and_own_path_only():
    rows = warp(
        [[2.0, 2.0, -2.0, 2.0]] * 3, context=[0], paths=[(), (2,), (3,)], temperature=1.0, repetition_penalty=2.0
    )
    torch.testing.assert_close(rows[0], torch.tensor([1.0, 2.0, -2.0, 2.0]).softmax(0))
    torch.testing.assert_close(rows[1], torch.tensor([1.0, 2.0, -4.0, 2.0]).softmax(0))
    torch.testing.assert_close(rows[2], torch.tensor([1.0, 2.0, -2.0, 1.0]).softmax(0))


def test_frequency_penalty_counts_the_own_path():
    rows = warp([[2.0, 2.0, 2.0]] * 2, context=[0], paths=[(1, 1), (2,)], prompt_length=1, frequency_penalty=0.5,
                temperature=1.0)  # fmt: skip
    torch.testing.assert_close(rows[0], torch.tensor([2.0, 1.0, 2.0]).softmax(0))
    torch.testing.assert_close(rows[1], torch.tensor([2.0, 2.0, 1.5]).softmax(0))


def test_the_rows_of_a_chain_have_seen_its_prefixes():
    assert [list(path) for path in prefixes([4, 5])] == [[], [4], [4, 5]]


def test_precision_is_float32_unless_the_logits_are_float64():
    for given, made in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        probs = Warp(Settings.of(temperature=0.8, top_p=0.9), 0)(torch.randn(2, 9).to(given), [1], [(), (2,)])
        assert probs.dtype == made
        torch.testing.assert_close(probs.sum(-1), torch.ones(2, dtype=made))


def test_frequency_penalty_counts_output_only():
    row = warp([[2.0, 2.0, 2.0]], context=[0, 1, 1], prompt_length=1, temperature=1.0, frequency_penalty=0.5)[0]
    torch.testing.assert_close(row, torch.tensor([2.0, 1.0, 2.0]).softmax(0))


def test_logit_bias_is_added():
    assert warp([[1.0, 2.0]], temperature=0, logit_bias={0: 5}).tolist() == [[1, 0]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_raise(bad):
    with pytest.raises(NumericsError, match="not finite"):
        warp([[1.0, bad]])


def test_draw_inverts_the_cumulative_weights_and_never_hits_a_zero():
    weights = torch.tensor([0.0, 2.0, 0.0, 6.0, 0.0])
    assert [draw(weights, u) for u in (2**-53, 0.2, 0.26, 1 - 2**-53)] == [1, 1, 3, 3]
