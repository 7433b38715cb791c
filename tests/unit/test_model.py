"""Logits are those of a fresh pass, whatever was rolled back, kept, grown or grouped, on every architecture."""

import pytest
import torch

from specviz.engine.cache import ROOT, Pass
from specviz.engine.model import LanguageModel
from specviz.errors import ModelError, SettingsError
from tests.tiny import ARCHITECTURES, VOCAB_SIZE, tiny_model

IDS = list(range(3, 60))
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def language_model(architecture: str = "llama", **options) -> LanguageModel:
    return LanguageModel(tiny_model(architecture, **options), architecture, VOCAB_SIZE)


def fresh(lm: LanguageModel, ids: list[int]) -> torch.Tensor:
    """Logits of every row of `ids`, without a cache."""
    return lm._model(input_ids=torch.tensor([ids])).logits[0, :, :VOCAB_SIZE]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_logits_behind_a_rollback_are_those_of_a_fresh_pass(architecture):
    lm = language_model(architecture)
    expected = fresh(lm, IDS)
    lm.clear(100)
    cache = lm.open(100)
    cache.prefill(IDS[:30])
    cache.forward([250, 251, 252, 253])
    cache.rollback(30)
    assert cache.length == 30
    rows = [cache.forward(IDS[30:31]), cache.forward(IDS[31:50]), cache.forward(IDS[50:])]
    torch.testing.assert_close(torch.cat(rows), expected[30:], **CLOSE)


@torch.inference_mode()
def test_the_cache_is_written_in_place_and_reused_by_the_next_run():
    lm = language_model()
    lm.clear(64)
    cache = lm.open(64)
    cache.forward(IDS[:10])
    storage = lm.store.layers[0].keys.data_ptr()
    cache.forward(IDS[10:20])
    cache.rollback(5)
    lm.clear(40)
    cache = lm.open(40)
    cache.forward(IDS[:10])
    assert lm.store.layers[0].keys.data_ptr() == storage
    assert cache.length == 10


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_several_texts_read_together_as_each_alone(architecture):
    """Unequal lengths, texts that join later, one that is rolled back, a text left out of a pass."""
    lm = language_model(architecture)
    lm.clear(60, 3)
    texts = [IDS[:20], IDS[30:33], IDS[10:45]]
    caches = [lm.open(60) for _ in texts]
    for cache, ids in zip(caches, texts, strict=True):
        cache.prefill(ids[:-3])
    caches[0].forward([250, 251])
    caches[0].rollback(len(texts[0]) - 3)
    together = lm.run([Pass(cache, ids[-3:-1]) for cache, ids in zip(caches, texts, strict=True)])
    together = [[rows] for rows in together]
    for i, rows in zip((2, 0), lm.run([Pass(caches[i], texts[i][-1:]) for i in (2, 0)]), strict=True):
        together[i].append(rows)
    together[1].append(caches[1].forward(texts[1][-1:]))
    for rows, ids, cache in zip(together, texts, caches, strict=True):
        torch.testing.assert_close(torch.cat(rows), fresh(lm, ids)[-3:], **CLOSE)
        assert cache.length == len(ids)


@torch.inference_mode()
def test_memory_that_has_to_grow_keeps_what_is_held():
    lm = language_model()
    lm.clear(8)
    first = lm.open(8)
    first.forward(IDS[:8])
    second = lm.open(12)  # more texts and longer ones
    second.forward(IDS[20:31])
    first.forward(IDS[8:30])  # more rows than were asked for
    tree = second.forward([5, 6, 7], [ROOT, ROOT, 1])
    second.keep([1, 2])
    third = lm.open(50)
    third.forward(IDS[:3])
    torch.testing.assert_close(first.forward(IDS[30:32]), fresh(lm, IDS[:32])[-2:], **CLOSE)
    torch.testing.assert_close(tree[2], fresh(lm, [*IDS[20:31], 6, 7])[-1], **CLOSE)
    torch.testing.assert_close(second.forward([9])[0], fresh(lm, [*IDS[20:31], 6, 7, 9])[-1], **CLOSE)


@torch.inference_mode()
def test_a_stale_nan_reaches_no_later_run():
    lm = language_model()
    lm.clear(20, 2)
    cache = lm.open(20)
    cache.forward(IDS[:19])
    for layer in lm.store.layers:
        layer.keys[:, :, :19] = float("nan")
        layer.values[:, :, :19] = float("nan")
    lm.clear(20, 2)
    caches = [lm.open(20), lm.open(20)]
    caches[1].prefill(IDS[:15])  # the first text's pass attends, masked, to as many rows as the longer one's
    for rows in lm.run([Pass(caches[0], [5, 6], [ROOT, ROOT]), Pass(caches[1], [5])]):
        assert torch.isfinite(rows).all()


def test_memory_allocated_in_inference_mode_can_be_claimed_and_opened_outside_it():
    lm = language_model()
    for capacity in (10, 20):
        lm.clear(capacity)
        cache, other = lm.open(capacity), lm.open(2 * capacity)
        with torch.inference_mode():
            cache.forward(IDS[:5])
            other.forward(IDS[:5])


@torch.inference_mode()
def test_padded_logits_are_cut_to_the_tokenizer():
    lm = LanguageModel(tiny_model("llama", vocab_padding=20), "padded", VOCAB_SIZE)
    lm.clear(8)
    assert lm.open(8).forward([1, 2]).shape == (2, VOCAB_SIZE)


def test_a_head_narrower_than_the_tokenizer_is_refused_by_name():
    with pytest.raises(ModelError, match="narrow knows 300 tokens and its tokenizer 301"):
        LanguageModel(tiny_model("llama"), "narrow", VOCAB_SIZE + 1)


@torch.inference_mode()
def test_a_long_prompt_is_prefilled_in_passes(monkeypatch):
    monkeypatch.setattr("specviz.engine.model.PREFILL_ROWS", 7)
    lm = language_model("qwen2")
    lm.clear(100)
    cache = lm.open(100)
    cache.prefill(IDS[:-1])
    torch.testing.assert_close(cache.forward(IDS[-1:])[0], fresh(lm, IDS)[-1], **CLOSE)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_an_early_exit_shares_weights_and_memory_and_is_the_first_layers(architecture):
    lm = language_model(architecture, layers=4)
    exit_ = lm.exit(2)
    assert lm.exit(2) is exit_
    assert exit_.store is lm.store
    own = {weights.data_ptr() for weights in lm._model.parameters()}
    assert {weights.data_ptr() for weights in exit_._model.parameters()} <= own
    assert exit_.params < lm.params
    expected = exit_._model(input_ids=torch.tensor([IDS])).logits[0]
    lm.clear(100)
    cache = lm.open(100)
    cache.prefill(IDS[:30])
    view = cache.shallow(exit_)
    view.base = cache.length
    torch.testing.assert_close(view.forward(IDS[30:40]), expected[30:40], **CLOSE)  # reads what the target cached
    torch.testing.assert_close(cache.forward(IDS[30:35]), fresh(lm, IDS)[30:35], **CLOSE)  # and disturbs nothing


def test_an_exit_outside_the_model_is_refused():
    for layers in (0, 2, 9):
        with pytest.raises(SettingsError, match=f"exit_layer must be from 1 to 1 for llama, not {layers}"):
            language_model().exit(layers)


def test_a_model_whose_layers_are_not_found_is_refused_by_name():
    lm = language_model(layers=4)
    lm._model.model.layers = torch.nn.Sequential(*lm._model.model.layers)
    with pytest.raises(ModelError, match="The layers of llama are not found"):
        lm.exit(2)


def test_a_model_that_ignores_the_mask_is_told_from_its_logits():
    lm = language_model()
    real = lm._model.forward
    lm._model.forward = lambda **given: real(**{name: v for name, v in given.items() if name != "attention_mask"})
    lm._takes_positions = True
    assert lm.refuses_trees() == "llama ignores the attention mask of a tree."
    assert [language_model(a).refuses_trees() for a in ("llama", "qwen2", "gpt2")] == [None] * 3


def test_a_model_without_position_ids_refuses_trees():
    lm = language_model()
    lm._takes_positions = False
    assert "takes no position ids" in lm.refuses_trees()


def test_memory_that_could_not_grow_is_as_it_was(monkeypatch):
    """Kernels are told addresses and sizes: a size that is not there would be written past."""
    model = language_model()
    model.clear(16)
    before = model.store.slots, model.store.capacity

    def full():
        raise RuntimeError("not enough memory")

    monkeypatch.setattr(model.store, "grow", full)
    with pytest.raises(RuntimeError, match="not enough"):
        model.store.room(4, 4000)
    assert (model.store.slots, model.store.capacity) == before
