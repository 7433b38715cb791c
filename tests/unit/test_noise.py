"""Who draws, and from which stream: what a draft does moves no number of the target's, and coupled noise is keyed."""

import pytest
import torch

from specviz.engine.noise import CoupledNoise, UniformNoise, noise_of

WEIGHTS = torch.tensor([0.1, 0.0, 0.6, 0.3])


def test_each_rule_has_its_noise():
    assert isinstance(noise_of("coupled", 1), CoupledNoise)
    assert isinstance(noise_of("rejection", 1), UniformNoise)
    assert isinstance(noise_of("block", 1), UniformNoise)


def test_the_streams_repeat_with_the_seed_and_know_nothing_of_one_another():
    def numbers(seed, drafts, tests):
        noise = UniformNoise(seed)
        drawn = []
        for i in range(50):
            for _ in range(drafts):
                noise.draft(WEIGHTS, i)
            us = [noise.accept() for _ in range(tests)]
            drawn.append((us[:1], noise.target(WEIGHTS, i)))
        return drawn

    assert numbers(42, 0, 1) == numbers(42, 0, 1) == numbers(42, 5, 1)
    assert [token for _, token in numbers(42, 3, 0)] == [token for _, token in numbers(42, 0, 4)]
    assert numbers(42, 0, 1) != numbers(43, 0, 1)
    a, b = UniformNoise(7), UniformNoise(7)
    for _ in range(9):
        b.accept(), b.target(WEIGHTS, 0)
    assert [a.draft(WEIGHTS, 0) for _ in range(30)] == [b.draft(WEIGHTS, 0) for _ in range(30)]


def test_the_three_streams_are_different_numbers():
    noise, even = UniformNoise(3), torch.ones(1000)
    rows = [(noise.draft(even, 0), noise.target(even, 0), int(1000 * noise.accept())) for _ in range(300)]
    values = torch.tensor(rows).double().T
    assert (torch.corrcoef(values) - torch.eye(3)).abs().max() < 0.25


def test_u_lies_inside():
    noise = UniformNoise(0)
    us = [noise.accept() for _ in range(2000)]
    assert all(0 < u < 1 for u in us)
    assert sum(us) / len(us) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("who", ["draft", "target"])
@pytest.mark.parametrize("coupled", [False, True])
def test_tokens_come_as_often_as_they_weigh(who, coupled):
    draws = 8000
    noise = UniformNoise(1)
    counts = torch.zeros(4)
    for position in range(draws):
        # Under coupling a position is drawn for once: both ways of getting a fresh number are fresh.
        source = (CoupledNoise(5) if position % 2 else CoupledNoise(6 + position)) if coupled else noise
        counts[getattr(source, who)(2 * WEIGHTS, position)] += 1  # weights need not be normalised
    assert counts[1] == 0
    errors = (WEIGHTS * (1 - WEIGHTS) / draws).sqrt()
    assert ((counts / draws - WEIGHTS).abs() <= 4 * errors).all()


def test_coupled_noise_is_keyed_by_seed_position_and_id_and_the_same_for_both():
    weights = torch.rand(50, generator=torch.Generator().manual_seed(0))
    a, b = CoupledNoise(9), CoupledNoise(9)
    drafted = [a.draft(weights, position) for position in range(100)]
    # Another order, other draws between: the key decides, not the history.
    for position in reversed(range(100)):
        b.draft(weights.flip(0), position)
        assert b.target(weights, position) == drafted[position]
    assert len(set(drafted)) > 20
    assert [CoupledNoise(10).draft(weights, position) for position in range(100)] != drafted
    assert a.accept() is None
    # Keyed by id: the weight of one token changes nothing about the race of the others.
    for position in range(100):
        without = weights.clone()
        without[drafted[position]] = 0
        second = a.target(without, position)
        raised = without.clone()
        raised[second] *= 1.5
        assert a.target(raised, position) == second


def test_positions_that_were_forgotten_come_back_the_same():
    noise = CoupledNoise(4)
    first = [noise.target(torch.ones(30), position) for position in range(3 * CoupledNoise.KEPT)]
    assert [noise.target(torch.ones(30), position) for position in range(3 * CoupledNoise.KEPT)] == first


def test_precision_of_the_weights_is_kept():
    weights = torch.full((6,), 1 / 6)
    noise = CoupledNoise(2)
    assert [noise.target(weights, p) for p in range(40)] == [noise.target(weights.double(), p) for p in range(40)]
