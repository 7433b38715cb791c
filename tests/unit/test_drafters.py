"""Drafters: what they copy, what their q is, and that nothing of an earlier run or step stays behind."""

import pytest
import torch

from specviz.drafters import MAKERS, Ask, HybridDrafter, ModelDrafter, NgramLookup, NgramSmoothed, OwnContext, Start
from specviz.drafters.hybrid import TRUSTED_CONFIDENCE, TRUSTED_MATCH
from specviz.drafters.ngram import DISCOUNT
from specviz.drafters.protocol import drive
from specviz.engine.model import LanguageModel
from specviz.engine.noise import UniformNoise
from specviz.engine.sampling import Warp
from specviz.settings import DRAFTS, Settings
from tests.conftest import tiny_engine
from tests.tiny import VOCAB_SIZE, tiny_model

GREEDY = Warp(Settings.of(temperature=0), 0)
SAMPLED = Warp(Settings.of(temperature=1), 0)
CPU = torch.device("cpu")


def propose(drafter, context, gamma=4, warp=SAMPLED, min_confidence=0.0, seed=0):
    return drive(drafter.propose(Ask(context, gamma, warp, UniformNoise(seed), min_confidence)))


def model_drafter(**options) -> ModelDrafter:
    lm = LanguageModel(tiny_model("llama", **options), "draft", VOCAB_SIZE)
    lm.clear(100)
    return ModelDrafter(OwnContext(lm), CPU)


def test_every_draft_type_on_offer_can_be_made():
    assert tuple(MAKERS) == DRAFTS


def lookup(context, gamma=4):
    drafter = NgramLookup()
    drafter.begin(Start(context[:2], 64))
    return propose(drafter, context, gamma, GREEDY)


def test_lookup_copies_what_followed_the_longest_match():
    # The suffix 1 2 stands twice; 9 1 2 is the longer match, so 5 6 follows rather than the later 7 8.
    proposal = lookup([9, 1, 2, 5, 6, 3, 1, 2, 7, 8, 9, 1, 2], 2)
    assert proposal.ids == [5, 6]
    assert proposal.q == [None, None]
    assert proposal.is_chain
    assert proposal.source == ["ngram 3:5"] * 2


def test_lookup_prefers_the_latest_of_equal_matches():
    assert lookup([1, 2, 5, 1, 2, 6, 1, 2], 1).ids == [6]


def test_lookup_goes_on_into_its_own_copy():
    assert lookup([1, 2, 3, 1, 2, 3], 5).ids == [1, 2, 3, 1, 2]


def test_lookup_without_a_match_proposes_nothing_and_says_so():
    proposal = lookup([1, 2, 3, 4])
    assert proposal.ids == []
    assert "no earlier match" in proposal.note


@pytest.mark.parametrize("make", [NgramLookup, lambda: NgramSmoothed(20, CPU)])
def test_the_index_holds_nothing_of_an_earlier_run(make):
    used, fresh = make(), make()
    used.begin(Start([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2], 64))
    propose(used, [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3], 3, GREEDY)
    for drafter in (used, fresh):
        drafter.begin(Start([1, 2, 3], 64))
    a, b = (propose(drafter, [1, 2, 3, 1, 2], 3, SAMPLED) for drafter in (used, fresh))
    assert a.ids == b.ids
    assert a.source == b.source


def test_the_index_grows_as_if_built_at_once():
    context = [1, 2, 3, 1, 2, 4, 1, 2, 3, 5, 1, 2]
    grown, whole = (NgramSmoothed(8, CPU) for _ in range(2))
    grown.begin(Start(context[:3], 64))
    for end in range(4, len(context) + 1):
        last = propose(grown, context[:end], 2, SAMPLED)
    whole.begin(Start(context, 64))
    other = propose(whole, context, 2, SAMPLED)
    assert last.ids == other.ids
    torch.testing.assert_close(torch.stack(last.q), torch.stack(other.q))


def test_smoothed_q_is_interpolated_kneser_ney():
    # a b a b a with a = 0, b = 1: after "b a" and its pads, worked out by hand for the orders that have seen it.
    drafter = NgramSmoothed(3, CPU)
    drafter.begin(Start([0, 1, 0, 1, 0], 64))
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
    drafter = NgramSmoothed(50, CPU)
    drafter.begin(Start([1, 2, 3], 64))
    proposal = propose(drafter, [1, 2, 3], 5, SAMPLED)
    assert len(proposal.ids) == 5
    q = torch.stack(proposal.q)
    assert (q > 0).all()
    torch.testing.assert_close(q.sum(-1), torch.ones(5))


@torch.inference_mode()
def test_the_draft_models_cache_is_a_prefix_of_the_context_whatever_was_accepted():
    drafter, context = model_drafter(seed=3), [5, 6, 7]
    drafter.begin(Start(context, 100))
    cache, rows, before = drafter._context._cache, [], 0
    real = drafter.model.run
    drafter.model.run = lambda passes: rows.append(len(passes[0].ids)) or real(passes)
    for accepted in (0, 4, 2, 4, 4, 1):
        rows.clear()
        proposal = propose(drafter, context)
        assert rows == [2 if before == 4 else 1, 1, 1, 1]  # nothing is read twice
        before = accepted
        assert cache.length == len(context) + 3  # the last drafted token is not fed until it is known to stay
        expected = tiny_model("llama", seed=3)(input_ids=torch.tensor([[*context, *proposal.ids[:-1]]])).logits[0, -4:]
        torch.testing.assert_close(torch.stack(proposal.q), expected.softmax(-1), rtol=1e-3, atol=1e-5)
        context = [*context, *proposal.ids[:accepted], 9]


@torch.inference_mode()
def test_steps_that_another_drafter_took_do_not_confuse_the_cache():
    drafter, context = model_drafter(seed=3), [5, 6, 7]
    drafter.begin(Start(context, 100))
    first = propose(drafter, context)
    # The second drafted token was refused, yet the third happens to stand at its place.
    wrong = (first.ids[1] + 1) % VOCAB_SIZE
    context = [*context, first.ids[0], wrong, first.ids[2], 9, 10]
    proposal = propose(drafter, context, 1)
    expected = tiny_model("llama", seed=3)(input_ids=torch.tensor([context])).logits[0, -1]
    torch.testing.assert_close(proposal.q[0], expected.softmax(-1), rtol=1e-3, atol=1e-5)


@torch.inference_mode()
def test_a_draft_whose_context_is_full_says_so():
    drafter, context = model_drafter(max_positions=64), [3] * 62
    drafter.begin(Start(context, 200))
    assert len(propose(drafter, context, 8).ids) == 3
    proposal = propose(drafter, [3] * 66, 8)
    assert (proposal.ids, proposal.note) == ([], "the draft's context of 64 tokens is full")


@torch.inference_mode()
@pytest.mark.parametrize("make", [model_drafter, lambda: NgramSmoothed(300, CPU)])
def test_drafting_stops_behind_an_unsure_token_and_keeps_it(make):
    drafters = [make(), make()]
    for drafter in drafters:
        drafter.begin(Start([5, 6, 7, 5, 6, 7, 5], 100))
    whole, stopped = (propose(drafter, [5, 6, 7, 5, 6, 7, 5], 8, min_confidence=at)
                      for drafter, at in zip(drafters, (0.0, 0.2), strict=True))  # fmt: skip
    unsure = next(i for i, confidence in enumerate(whole.confidence) if confidence < 0.2)
    assert unsure < 7
    assert stopped.ids == whole.ids[: unsure + 1]
    assert f"confidence {whole.confidence[unsure]:.2f} is below 0.2" in stopped.note


@torch.inference_mode()
def test_hybrid_copies_a_long_match_and_else_asks_the_model():
    drafter = HybridDrafter(NgramLookup(), model_drafter(), CPU)
    drafter.begin(Start([1, 2], 100))
    copied = propose(drafter, [1, 2, 3, 4, 9, 1, 2, 3], 2)
    assert (copied.ids, copied.source[0][:5]) == ([4, 9], "ngram")
    assert TRUSTED_MATCH == 3
    short = [1, 2, 3, 4, 9, 1, 2, 3, 8, 1, 2]  # 1 2 is too short a match
    asked = propose(drafter, short, 2)
    assert asked.source == ["model"]
    assert f"below {TRUSTED_CONFIDENCE}" in asked.note  # an untrained model is sure of nothing
    drafter = HybridDrafter(NgramLookup(), model_drafter(), torch.device("cuda"))  # where a look would cost a wait
    drafter.begin(Start([1, 2], 100))
    assert propose(drafter, short, 2).source == ["model", "model"]
    assert drafter.params == drafter._model.params > 0


def test_hybrid_with_nobody_to_ask_copies_as_ngram_does_and_says_so():
    alone = HybridDrafter(NgramLookup(), None, CPU)
    alone.begin(Start([1, 2], 64))
    for context in ([1, 2, 3, 4, 5, 1], [1, 2, 3, 9]):
        assert propose(alone, context, 3, GREEDY) == lookup(context, 3)
    engine = tiny_engine("llama", layers=1)
    engine.use_head("eagle", "It was eaten.")
    engine.use_head("model", "It was eaten.")
    options = {"gamma": 3, "max_new_tokens": 20, "ignore_eos": True}
    run = engine.generate([5, 6, 7], draft="hybrid", **options)
    assert "hybrid only copies" in run.steps[0].note
    assert run.draft.name == "prompt lookup alone"
    assert run.output == engine.generate([5, 6, 7], draft="ngram", **options).output


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_drafter_says_what_it_is_and_how_wide_it_gets(draft):
    engine = tiny_engine(draft_seed=1)
    settings = Settings.of(draft=draft, gamma=5, candidates=3, temperature=1.0)
    drafter = engine.drafter(draft, settings)
    assert drafter.type == draft
    assert (drafter.name is None) == (draft == "none")
    weights = {
        "model": engine.draft_model.params,
        **{kind: head.params for kind, head in engine.heads.items()},
        "layer_skip": engine.target.exit(1).params,
    }
    model = {"hybrid": "model", "tree": "model", "tree-dynamic": "model", "eagle-tree": "eagle"}
    model = model.get(draft, draft)
    pooled = weights["model"] + weights["eagle"]
    assert drafter.params == (pooled if draft == "pool" else weights.get(model, 0))
    run = engine.generate([5, 6, 7, 5, 6], draft=draft, gamma=5, candidates=3, temperature=1.0, max_new_tokens=20)
    assert all(step.gamma <= drafter.width(5) for step in run.steps)
    assert max(step.gamma for step in run.steps) > (0 if draft != "none" else -1)
    assert run.draft.type == draft


def test_a_pool_is_the_drafters_there_are_one_more_for_each_candidate():
    names = {n: [m.type for m in tiny_engine(draft_seed=1).drafter("pool", Settings.of(candidates=n)).members]
             for n in range(1, 5)}  # fmt: skip
    assert names[4] == ["ngram", "model", "eagle", "ngram-smoothed"]
    assert all(names[n] == names[4][:n] for n in names)
    alone = [m.type for m in tiny_engine().drafter("pool", Settings.of(candidates=4)).members]
    assert alone == ["ngram", "eagle", "ngram-smoothed", "layer_skip"]
    flat = tiny_engine(layers=1)
    for engine, without, expected in (
        (tiny_engine(), ("eagle",), ["ngram", "ngram-smoothed", "layer_skip", "ngram-smoothed"]),
        (tiny_engine(draft_seed=1), ("eagle",), ["ngram", "model", "ngram-smoothed", "model"]),
        (flat, (), ["ngram", "eagle", "ngram-smoothed", "ngram-smoothed"]),
    ):
        for kind in without:
            engine.use_head(kind, "It was eaten.")
        assert [m.type for m in engine.drafter("pool", Settings.of(candidates=4)).members] == expected
