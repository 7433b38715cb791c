"""The eagle head: its pass is that of training, it is never out of step, and files that do not fit are refused."""

import json

import pytest
import torch
import torch.nn.functional as F

from specviz.drafters import Ask, EagleDrafter, EagleModel, EagleTree, Start
from specviz.drafters.eagle import HeadCache
from specviz.drafters.head import describe_target, load_head, save_head
from specviz.drafters.heads import find_heads
from specviz.drafters.protocol import drive
from specviz.drafters.shapes import EagleShape
from specviz.engine.cache import ROOT, Pass
from specviz.engine.engine import Engine
from specviz.engine.model import LanguageModel
from specviz.engine.noise import UniformNoise
from specviz.engine.sampling import Warp
from specviz.errors import ModelError, SettingsError
from specviz.lab.table import random_heads
from specviz.settings import Settings
from specviz.train.eagle import EagleLayer
from tests.conftest import tiny_engine
from tests.tiny import VOCAB_SIZE, tiny_model, tiny_tokenizer
from tests.unit.checks import check_counts

SHAPE = EagleShape(32, 4, 2, 8, 48, (1, 2))
IDS = [5, 7, 9, 30, 41, 12, 60, 33]
VOCABULARY = torch.arange(0, 300, 3)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def made(**options) -> tuple[LanguageModel, EagleLayer, EagleModel]:
    torch.manual_seed(0)
    target = LanguageModel(tiny_model("llama", **options), "tiny", VOCAB_SIZE)
    layer = EagleLayer(SHAPE, target.embedding, target.head_rows(VOCABULARY)).requires_grad_(False)
    for weight in (layer.out, layer.down):
        weight.normal_(std=0.3)
    target.clear(60)
    return target, layer, EagleModel(target, layer.state_dict(), SHAPE, VOCABULARY)


def trained(target: LanguageModel, layer: EagleLayer, features: torch.Tensor, path: list[int]) -> torch.Tensor:
    """Logits behind `path` by the unrolled layer that is trained."""
    ids, length = [*IDS, *path], len(IDS) - 1
    mask = torch.ones(length, length, dtype=torch.bool).triu_(1)
    keys, values, state = [], [], layer.fused(features[None])
    for position in range(len(path) + 1):
        tokens = torch.tensor([[*ids, *[0] * 9][position + 1 : position + 1 + length]])
        embedded = F.rms_norm(F.embedding(tokens, target.embedding), (32,), eps=SHAPE.eps)
        state = layer(embedded, state, position, keys, values, mask)
    return F.linear(layer.final(state)[0, -1], target.head_rows(VOCABULARY))


@torch.inference_mode()
def test_the_drafters_pass_is_that_of_training_for_chains_and_trees():
    target, layer, head = made()
    cache = target.open(50)
    cache.prefill(IDS[:-1])
    memory = HeadCache(head, cache, 2)  # grows
    head.read(memory, IDS[1:5])
    features = cache.features(0, len(IDS) - 1)
    (first,) = head.run([Pass(memory, IDS[5:])])
    torch.testing.assert_close(first[0], trained(target, layer, features, []), **CLOSE)
    (second,) = head.run([Pass(memory, [3], [ROOT])])
    torch.testing.assert_close(second[0], trained(target, layer, features, [3]), **CLOSE)
    (level,) = head.run([Pass(memory, [6, 9, 12], [0, ROOT, 0])])
    for row, path in zip(level, ([3, 6], [9], [3, 12]), strict=True):
        torch.testing.assert_close(row, trained(target, layer, features, path), **CLOSE)
    (deep,) = head.run([Pass(memory, [15], [3])])
    torch.testing.assert_close(deep[0], trained(target, layer, features, [3, 12, 15]), **CLOSE)
    memory.rollback(4)  # and again from what is left
    (again,) = head.run([Pass(memory, IDS[5:])])
    torch.testing.assert_close(again, first, **CLOSE)


@torch.inference_mode()
def test_several_texts_are_read_together_as_each_alone():
    target, _, head = made()
    target.clear(60, 2)
    memories = []
    for ids in (IDS, IDS[:4]):
        cache = target.open(50)
        cache.prefill(ids[:-1])
        memories.append(HeadCache(head, cache, 60))
    alone = []
    for memory, ids in zip(memories, (IDS, IDS[:4]), strict=True):
        alone += [head.run([Pass(memory, ids[1:])])[0], head.run([Pass(memory, [3, 6], [ROOT, ROOT])])[0]]
        memory.rollback(0)
    together = head.run([Pass(memories[0], IDS[1:]), Pass(memories[1], IDS[1:4])])
    together += head.run([Pass(memories[1], [3, 6], [ROOT, ROOT]), Pass(memories[0], [3, 6], [ROOT, ROOT])])
    for one, other in zip((alone[0], alone[2], alone[3], alone[1]), together, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


def proposal(drafter, context, gamma=3, **options):
    warp = Warp(Settings.of(**{"temperature": 1.0, **options}), 2)
    return drive(drafter.propose(Ask(context, gamma, warp, UniformNoise(0))))


@pytest.mark.parametrize("make", [EagleDrafter, lambda head: EagleTree(head, 2)])
@torch.inference_mode()
def test_it_reads_on_whatever_was_committed_and_whoever_proposed_it(make):
    target, _, head = made()
    cache = target.open(50)
    cache.prefill(IDS[:2])
    used = make(head)
    used.begin(Start(IDS[:3], 50, cache))
    proposal(used, IDS[:3])
    proposal(used, IDS[:3])  # asked twice
    cache.forward(IDS[2:3])
    proposal(used, IDS[:4])
    cache.forward(IDS[3:7])  # several tokens at once, drafted by others
    mine = proposal(used, IDS)
    fresh = make(head)
    fresh.begin(Start(IDS, 50, cache))
    theirs = proposal(fresh, IDS)
    assert (mine.ids, mine.parents) == (theirs.ids, theirs.parents)
    assert mine.confidence == pytest.approx(theirs.confidence, rel=1e-4)


@torch.inference_mode()
def test_a_cancelled_prompt_leaves_no_rows_that_were_not_read():
    target, _, head = made()
    cache = target.open(50)
    cache.prefill(IDS[:3])
    drafter = EagleDrafter(head)
    drafter.begin(Start(IDS, 50, cache))
    assert drafter._context._cache.base == 3
    drafter.begin(Start(IDS, 50, cache, lambda: True))
    assert drafter._context._cache.base == 0


@torch.inference_mode()
def test_q_is_zero_outside_its_vocabulary_under_every_warp():
    target, _, head = made()
    cache = target.open(50)
    cache.prefill(IDS[:-1])
    outside = torch.ones(VOCAB_SIZE, dtype=torch.bool)
    outside[VOCABULARY] = False
    for options in (
        {}, {"temperature": 0.0}, {"temperature": 1e-6}, {"top_k": 5, "top_p": 0.7}, {"min_p": 0.2},
        {"repetition_penalty": 0.01, "frequency_penalty": -100.0, "logit_bias": {1: 1e4, 4: 1e4}},
        {"repetition_penalty": 100.0, "temperature": 100.0, "logit_bias": {3: -1e4}},
    ):  # fmt: skip
        drafter = EagleDrafter(head)
        drafter.begin(Start(IDS, 50, cache))
        for q, raw, token in zip(
            *(lambda one: (one.q, one.raw_q, one.ids))(proposal(drafter, IDS, **options)), strict=True
        ):
            assert q[outside].sum() == 0
            assert float(q.sum()) == pytest.approx(1, abs=1e-5)
            assert float(raw.sum()) == pytest.approx(1, abs=1e-5)
            assert q[token] > 0


@torch.inference_mode()
def test_a_warp_means_the_same_on_the_drafts_vocabulary_as_on_all():
    """Truncation alone takes a short way; a penalty that does nothing takes the long one."""
    target, _, head = made()
    cache = target.open(50)
    cache.prefill(IDS[:-1])
    for options in ({}, {"top_k": 7}, {"top_p": 0.6}, {"min_p": 0.1, "temperature": 0.7}, {"temperature": 0.0}):
        found = []
        for bias in ({}, {5: 0.0}):
            drafter = EagleDrafter(head)
            drafter.begin(Start(IDS, 50, cache))
            found.append(proposal(drafter, IDS, logit_bias=bias, **options))
        assert found[0].ids == found[1].ids
        for one, other in zip(found[0].q, found[1].q, strict=True):
            torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("draft", ["eagle", "eagle-tree"])
def test_a_prompt_of_one_token_begins_plain_and_says_why(draft):
    engine = tiny_engine()
    run = engine.generate([5], draft=draft, gamma=3, max_new_tokens=12, ignore_eos=True)
    assert run.steps[0].gamma == 0
    assert "one token long" in run.steps[0].note
    assert run.steps[1].gamma > 0
    assert run.output == engine.generate([5], draft="none", max_new_tokens=12, ignore_eos=True).output
    check_counts(run)


@pytest.mark.parametrize("draft", ["eagle", "eagle-tree"])
def test_it_drafts_up_to_the_end_of_the_context(draft):
    engine = tiny_engine(max_positions=40)
    prompt = list(range(3, 30))
    run = engine.generate(prompt, draft=draft, gamma=4, max_new_tokens=99, ignore_eos=True)
    assert run.output.finish_reason == "context"
    assert run.output == engine.generate(prompt, draft="none", max_new_tokens=99, ignore_eos=True).output


def test_low_confidence_stops_the_draft_and_is_noted():
    run = tiny_engine().generate(
        [5, 6, 7], draft="eagle", gamma=4, min_confidence=1.0, max_new_tokens=6, ignore_eos=True
    )
    assert all(step.gamma <= 1 for step in run.steps)
    assert "is below 1" in run.steps[0].note


def test_without_a_head_the_reason_is_the_sentence():
    engine = Engine(
        LanguageModel(tiny_model("llama"), "llama", VOCAB_SIZE), tiny_tokenizer(), heads={"eagle": "It was eaten."}
    )
    assert engine.drafts()["eagle"] == engine.drafts()["eagle-tree"] == "It was eaten."
    with pytest.raises(SettingsError, match="It was eaten"):
        engine.stream("hi", draft="eagle")


def found_eagle(target: LanguageModel, folder) -> EagleModel | str:
    return find_heads(target, tiny_tokenizer(), folder)["eagle"]


@pytest.fixture
def card(tmp_path):
    """The card of a head for the tiny llama."""
    target, layer, _ = made()
    about = {
        "type": "eagle",
        "name": "tiny head",
        "target": describe_target(target, tiny_tokenizer(), SHAPE.taps),
        "shape": {name: getattr(SHAPE, name) for name in SHAPE.__slots__},
    }
    return save_head(tmp_path / "tiny", layer.state_dict(), VOCABULARY, about)


def test_a_head_is_loaded_as_it_was_saved_to_the_precision_of_int8(card):
    _, layer, _ = made()
    head = load_head(card)
    assert (head.shape, head.vocabulary.tolist()) == (SHAPE, VOCABULARY.tolist())
    for name, weight in layer.state_dict().items():
        torch.testing.assert_close(head.weights[name], weight, rtol=0, atol=float(weight.abs().max()) / 200)


def test_a_head_that_fits_is_found_and_one_for_other_weights_warns(card):
    target, _, _ = made()
    found = found_eagle(target, card.parent)
    assert (found.name, found.warning) == ("tiny head", None)
    other, _, _ = made(seed=5)
    found = found_eagle(other, card.parent)
    assert "trained for other weights" in found.warning
    engine = Engine(other, tiny_tokenizer(), heads={"eagle": found})
    run = engine.generate([5, 6, 7], draft="eagle", gamma=2, max_new_tokens=9, ignore_eos=True)
    assert [("other weights" in (step.note or "")) for step in run.steps] == [True] + [False] * (len(run.steps) - 1)
    assert run.output == engine.generate([5, 6, 7], draft="none", max_new_tokens=9, ignore_eos=True).output


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden": 64}, "wants a hidden size of 64, and this has 32"),
        ({"layers": 9}, "wants a number of layers of 9, and this has 2"),
        ({"vocab_size": 7}, "wants a vocabulary of 7, and this has 300"),
        ({"tokenizer_sha256": "x"}, "trained with another tokenizer"),
    ],
)
def test_a_head_that_does_not_fit_is_refused_with_a_sentence(card, change, words):
    about = json.loads(card.read_text())
    about["target"] |= change
    card.write_text(json.dumps(about))
    reason = found_eagle(made()[0], card.parent)
    assert words in reason
    assert reason.startswith("No trained head fits tiny: ")


def test_damaged_files_are_sentences_and_never_end_the_program(card, tmp_path):
    target = made()[0]
    assert "there is none in" in found_eagle(target, tmp_path / "nowhere")
    weights = card.with_suffix(".safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "is damaged" in found_eagle(target, card.parent)
    weights.unlink()
    assert "cannot be read" in found_eagle(target, card.parent)
    card.write_text("{")
    assert "cannot be read" in found_eagle(target, card.parent)
    with pytest.raises(ModelError):
        load_head(card)


def test_a_target_whose_layers_are_not_found_is_refused(card, monkeypatch):
    target = made()[0]
    monkeypatch.setattr(target, "refuses_taps", lambda: "The layers are not found.")
    assert found_eagle(target, card.parent) == "The layers are not found."


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions_draft_too(dtype):
    target = LanguageModel(tiny_model("llama").to(dtype), "tiny", VOCAB_SIZE)
    try:
        engine = Engine(target, tiny_tokenizer(), heads=random_heads(target, 32, (1, 2)))
        for draft in ("eagle", "eagle-tree"):
            run = engine.generate([5, 6, 7], draft=draft, gamma=3, temperature=1.0, max_new_tokens=10, ignore_eos=True)
            check_counts(run)
    finally:
        target._model.float()
