"""Drafters: what they copy, what their q is, and that nothing of an earlier run or step stays behind."""

import pytest
import torch

from specviz.drafters import MAKERS, ModelDrafter, NgramLookup, NgramSmoothed
from specviz.drafters.ngram import DISCOUNT
from specviz.engine.model import LanguageModel
from specviz.engine.sampling import Warp
from specviz.settings import DRAFTS, Settings
from tests.tiny import VOCAB_SIZE, tiny_model

GREEDY = Warp(Settings.of(temperature=0), 0)
SAMPLED = Warp(Settings.of(temperature=1), 0)
U = [0.1, 0.3, 0.5, 0.7, 0.9]


def test_every_draft_type_on_offer_can_be_made():
    assert tuple(MAKERS) == DRAFTS


def lookup(context, gamma=4):
    drafter = NgramLookup()
    drafter.begin(context[:2], 64)
    return drafter.propose(context, gamma, U, GREEDY)


def test_lookup_copies_what_followed_the_longest_match():
    # The suffix 1 2 stands twice; 9 1 2 is the longer match, so 5 6 follows rather than the later 7 8.
    proposal = lookup([9, 1, 2, 5, 6, 3, 1, 2, 7, 8, 9, 1, 2], 2)
    assert proposal.ids == [5, 6]
    assert proposal.q is None
    assert proposal.source == ["ngram 3:5"] * 2


def test_lookup_prefers_the_latest_of_equal_matches():
    assert lookup([1, 2, 5, 1, 2, 6, 1, 2], 1).ids == [6]


def test_lookup_goes_on_into_its_own_copy():
    assert lookup([1, 2, 3, 1, 2, 3], 5).ids == [1, 2, 3, 1, 2]


def test_lookup_without_a_match_proposes_nothing_and_says_so():
    proposal = lookup([1, 2, 3, 4])
    assert proposal.ids == []
    assert "no earlier match" in proposal.note


@pytest.mark.parametrize("make", [NgramLookup, lambda: NgramSmoothed(20, torch.device("cpu"))])
def test_the_index_holds_nothing_of_an_earlier_run(make):
    used, fresh = make(), make()
    used.begin([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2], 64)
    used.propose([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3], 3, U, GREEDY)
    for drafter in (used, fresh):
        drafter.begin([1, 2, 3], 64)
    a, b = (drafter.propose([1, 2, 3, 1, 2], 3, U, SAMPLED) for drafter in (used, fresh))
    assert a.ids == b.ids
    assert a.source == b.source


def test_the_index_grows_as_if_built_at_once():
    context = [1, 2, 3, 1, 2, 4, 1, 2, 3, 5, 1, 2]
    grown, whole = (NgramSmoothed(8, torch.device("cpu")) for _ in range(2))
    grown.begin(context[:3], 64)
    for end in range(4, len(context) + 1):
        last = grown.propose(context[:end], 2, U, SAMPLED)
    whole.begin(context, 64)
    torch.testing.assert_close(last.q, whole.propose(context, 2, U, SAMPLED).q)


def test_smoothed_q_is_interpolated_kneser_ney():
    # a b a b a with a = 0, b = 1: after "b a" and its pads, worked out by hand for the orders that have seen it.
    drafter = NgramSmoothed(3, torch.device("cpu"))
    drafter.begin([0, 1, 0, 1, 0], 64)
    probs, order = drafter._distribution([0, 1, 0, 1, 0])
    # Order 1: distinct left neighbours of a: {pad, b}, of b: {a}.
    base = [(2 - DISCOUNT) / 3 + 2 * DISCOUNT / 3 / 3, (1 - DISCOUNT) / 3 + 2 * DISCOUNT / 3 / 3, 2 * DISCOUNT / 3 / 3]
    # Order 2 after a: b, with left neighbours {pad, b}. Order 3 after "b a": b, with left neighbour {a}.
    # Order 4 after "a b a": b, seen once.
    for count in (2, 1, 1):
        base = [DISCOUNT / count * mass + ((count - DISCOUNT) / count if i == 1 else 0) for i, mass in enumerate(base)]
    assert order == 4
    assert probs.tolist() == pytest.approx(base)
    assert probs.sum().item() == pytest.approx(1)


def test_smoothed_draws_from_the_q_it_returns_and_covers_the_vocabulary():
    drafter = NgramSmoothed(50, torch.device("cpu"))
    drafter.begin([1, 2, 3], 64)
    proposal = drafter.propose([1, 2, 3], 5, U, SAMPLED)
    assert len(proposal.ids) == 5
    assert (proposal.q > 0).all()
    torch.testing.assert_close(proposal.q.sum(-1), torch.ones(5))


@torch.inference_mode()
def test_the_draft_models_cache_is_a_prefix_of_the_context_whatever_was_accepted():
    lm = LanguageModel(tiny_model("llama", seed=3), "draft", VOCAB_SIZE)
    drafter = ModelDrafter(lm, torch.device("cpu"))
    context = [5, 6, 7]
    drafter.begin(context, 100)
    for accepted in (0, 4, 2, 4, 4, 1):
        proposal = drafter.propose(context, 4, U, SAMPLED)
        assert lm.length == len(context) + 3  # the last drafted token is not fed until it is known to stay
        expected = tiny_model("llama", seed=3)(input_ids=torch.tensor([[*context, *proposal.ids[:-1]]])).logits[0, -4:]
        torch.testing.assert_close(proposal.q, expected.softmax(-1), rtol=1e-3, atol=1e-5)
        context = [*context, *proposal.ids[:accepted], 9]


@torch.inference_mode()
def test_steps_that_another_drafter_took_do_not_confuse_the_cache():
    lm = LanguageModel(tiny_model("llama", seed=3), "draft", VOCAB_SIZE)
    drafter = ModelDrafter(lm, torch.device("cpu"))
    context = [5, 6, 7]
    drafter.begin(context, 100)
    first = drafter.propose(context, 4, U, SAMPLED)
    # The second drafted token was refused, yet the third happens to stand at its place.
    wrong = (first.ids[1] + 1) % VOCAB_SIZE
    context = [*context, first.ids[0], wrong, first.ids[2], 9, 10]
    proposal = drafter.propose(context, 1, U, SAMPLED)
    expected = tiny_model("llama", seed=3)(input_ids=torch.tensor([context])).logits[0, -1:]
    torch.testing.assert_close(proposal.q, expected.softmax(-1), rtol=1e-3, atol=1e-5)


def test_a_draft_whose_context_is_full_says_so():
    lm = LanguageModel(tiny_model("llama", max_positions=64), "draft", VOCAB_SIZE)
    drafter = ModelDrafter(lm, torch.device("cpu"))
    context = [3] * 62
    drafter.begin(context, 200)
    assert len(drafter.propose(context, 8, U * 2, SAMPLED).ids) == 3
    proposal = drafter.propose([3] * 66, 8, U * 2, SAMPLED)
    assert (proposal.ids, proposal.note) == ([], "the draft's context of 64 tokens is full")
