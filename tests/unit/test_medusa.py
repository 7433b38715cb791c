"""Medusa heads: their pass is that of training, the tree has its fixed shape and is no deeper than there are heads."""

import pytest
import torch
import torch.nn.functional as F

from specviz.drafters import Ask, MedusaModel, MedusaTree, Start
from specviz.drafters.medusa import Row
from specviz.drafters.protocol import drive
from specviz.drafters.shapes import MedusaShape
from specviz.drafters.tree import static_shape
from specviz.engine.cache import ROOT, Pass
from specviz.engine.model import LanguageModel
from specviz.engine.noise import UniformNoise
from specviz.engine.sampling import Warp
from specviz.settings import Settings
from specviz.train.features import Batch
from specviz.train.medusa import MedusaHeads
from tests.conftest import tiny_engine
from tests.tiny import VOCAB_SIZE, tiny_model
from tests.unit.checks import check_counts

SHAPE = MedusaShape(32, 3, (1, 2))
IDS = [5, 7, 9, 30, 41, 12, 60, 33]
VOCABULARY = torch.arange(0, 300, 3)


def made() -> tuple[LanguageModel, MedusaHeads, MedusaModel]:
    torch.manual_seed(0)
    target = LanguageModel(tiny_model("llama"), "tiny", VOCAB_SIZE)
    learner = MedusaHeads(SHAPE, target.embedding, target.head_rows(VOCABULARY)).requires_grad_(False)
    for weight in learner.parameters():
        weight.normal_(std=0.3)
    model = MedusaModel(target, learner.state_dict(), SHAPE, VOCABULARY)
    target.clear(60, 2)
    return target, learner, model


def trained(learner: MedusaHeads, features: torch.Tensor) -> torch.Tensor:
    """(depth, draft vocabulary) logits behind the last of (rows, ...) features."""
    ids = torch.zeros((1, len(features)), dtype=torch.long)
    batch = Batch(ids, features[None], ids.bool(), ids.bool(), ids, ids)
    rows = [output[0, -1] for _, output in learner.outputs(batch, SHAPE.depth)]
    return F.linear(torch.stack(rows), learner.head)


@torch.inference_mode()
def test_the_pass_is_that_of_training_alone_and_together():
    target, learner, model = made()
    caches = [target.open(20), target.open(20)]
    for cache, ids in zip(caches, (IDS, IDS[:4]), strict=True):
        cache.prefill(ids)
    together = model.run([Pass(Row(model, caches[0], 7), ()), Pass(Row(model, caches[1], 3), ())])
    for cache, rows in zip(caches, together, strict=True):
        expected = trained(learner, cache.features(0, cache.base))
        torch.testing.assert_close(rows, expected, rtol=1e-4, atol=1e-4)
        (alone,) = model.run([Pass(Row(model, cache, cache.base - 1), ())])
        torch.testing.assert_close(rows, alone, rtol=1e-4, atol=1e-4)


def proposal(gamma: int, candidates: int = 3, context=IDS, min_confidence: float = 0.0, **options):
    target, learner, model = made()
    cache = target.open(40)
    cache.prefill(context[:-1])
    drafter = MedusaTree(model, candidates)
    drafter.begin(Start(context, 40, cache))
    warp = Warp(Settings.of(**{"temperature": 1.0, **options}), 2)
    found = drive(drafter.propose(Ask(context, gamma, warp, UniformNoise(0), min_confidence)))
    assert len(found.ids) <= drafter.width(gamma)
    return found, trained(learner, cache.features(0, cache.base))


@torch.inference_mode()
def test_children_are_the_likeliest_tokens_of_their_level_in_the_fixed_shape():
    found, logits = proposal(3)
    shape, best = static_shape(3, 3), VOCABULARY[logits.topk(3).indices]
    ranks, children = {ROOT: ()}, {}
    for node, (token, parent) in enumerate(zip(found.ids, found.parents, strict=True)):
        rank = children[parent] = children.get(parent, -1) + 1
        ranks[node] = (*ranks[parent], rank)
        assert token == best[found.depths()[node], rank]
    assert {ranks[parent]: last + 1 for parent, last in children.items()} == shape
    assert all(draw.q is None for draw in found.draws)
    assert found.confidence[0] == pytest.approx(float(logits[0].softmax(-1).max()), rel=1e-4)


@torch.inference_mode()
def test_beyond_the_heads_nothing_is_proposed_and_the_note_says_so():
    found, _ = proposal(8)
    assert max(found.depths()) == 2
    assert "3 heads" in found.note
    assert proposal(3)[0].note is None
    assert max(proposal(1)[0].depths()) == 0


@torch.inference_mode()
def test_nothing_grows_behind_a_token_that_is_not_sure_enough():
    found, _ = proposal(3, min_confidence=1.0)
    assert set(found.parents) == {ROOT}


@torch.inference_mode()
def test_a_penalty_looks_at_the_path():
    """The same token at every level: a penalty takes it back behind itself only."""
    token = VOCABULARY[5].item()
    assert proposal(2, 1, logit_bias={token: 50.0})[0].ids == [token, token]
    first, second = proposal(2, 1, logit_bias={token: 50.0}, frequency_penalty=100.0)[0].ids
    assert first == token != second


def test_a_prompt_of_one_token_begins_plain_and_the_end_of_the_context_is_reached():
    engine = tiny_engine(max_positions=40)
    run = engine.generate([5], draft="medusa", gamma=3, max_new_tokens=99, ignore_eos=True)
    assert run.steps[0].gamma == 0
    assert "one token long" in run.steps[0].note
    assert run.output.finish_reason == "context"
    assert run.output == engine.generate([5], draft="none", max_new_tokens=99, ignore_eos=True).output
    check_counts(run)
