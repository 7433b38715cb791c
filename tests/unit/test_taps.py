"""Tapped hidden states are those of a fresh pass, at the same rows as keys and values, whatever became of the rows."""

import pytest
import torch

from specviz.engine.cache import ROOT, Pass
from specviz.engine.fast import FastModel
from specviz.engine.model import LanguageModel, layer_stack
from specviz.engine.weights import read_weights
from specviz.errors import ModelError
from tests.tiny import ARCHITECTURES, VOCAB_SIZE, tiny_model

IDS = list(range(3, 40))
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def tapped(architecture: str = "llama", texts: int = 1, capacity: int = 60) -> LanguageModel:
    lm = LanguageModel(tiny_model(architecture), architecture, VOCAB_SIZE)
    lm.tap((1, lm.layers))
    lm.clear(capacity, texts)
    return lm


def fresh(lm: LanguageModel, ids: list[int]) -> torch.Tensor:
    """Outputs of the first and the last layer, caught by hooks of the test's own."""
    caught, hooks = [], []
    stack = layer_stack(lm._model)
    for layer in (stack[0], stack[-1]):
        hooks.append(
            layer.register_forward_hook(lambda _, __, out: caught.append(out[0] if isinstance(out, tuple) else out))
        )
    lm._model(input_ids=torch.tensor([ids]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return torch.cat(caught, -1)[0]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_features_behind_a_rollback_are_those_of_a_fresh_pass(architecture):
    lm = tapped(architecture)
    expected = fresh(lm, IDS)
    cache = lm.open(60)
    cache.prefill(IDS[:20])
    cache.forward([250, 251, 252])
    cache.rollback(20)
    cache.forward(IDS[20:])
    torch.testing.assert_close(cache.features(0, len(IDS)), expected, **CLOSE)
    torch.testing.assert_close(cache.features(5, 9), expected[5:9], **CLOSE)


@torch.inference_mode()
def test_a_kept_path_takes_its_features_along():
    lm = tapped()
    cache = lm.open(60)
    cache.forward(IDS[:10])
    cache.forward([200, IDS[10], 201, IDS[11]], [ROOT, ROOT, 0, 1])
    cache.keep([1, 3])
    torch.testing.assert_close(cache.features(0, 12), fresh(lm, IDS[:12]), **CLOSE)


@torch.inference_mode()
def test_several_texts_and_grown_memory_keep_their_features_apart():
    lm = tapped(texts=1, capacity=12)
    one, two = lm.open(12), lm.open(12)
    lm.run([Pass(one, IDS[:10]), Pass(two, IDS[5:8])])
    three = lm.open(30)
    lm.run([Pass(two, IDS[8:20]), Pass(three, IDS[:4]), Pass(one, IDS[10:11])])
    for cache, ids in ((one, IDS[:11]), (two, IDS[5:20]), (three, IDS[:4])):
        torch.testing.assert_close(cache.features(0, len(ids)), fresh(lm, ids), **CLOSE)


@torch.inference_mode()
def test_nothing_is_kept_of_a_model_that_is_not_tapped_or_of_an_early_exit():
    lm = LanguageModel(tiny_model("llama"), "llama", VOCAB_SIZE)
    lm.open(20).forward(IDS[:5])
    assert lm.store.features is None
    lm.tap((1, lm.layers))
    cache = lm.open(20)
    cache.forward(IDS[:5])
    held = cache.features(0, 5).clone()
    early = cache.shallow(lm.exit(1))
    early.base = 3
    early.forward([99, 98])
    torch.testing.assert_close(cache.features(0, 5), held, rtol=0, atol=0)


@torch.inference_mode()
def test_two_models_on_the_same_weights_keep_their_own():
    model = tiny_model("llama")
    one, two = (LanguageModel(model, name, VOCAB_SIZE) for name in "ab")
    one.tap((1,))
    two.tap((2,))
    mine, other = one.open(20), two.open(20)
    mine.forward(IDS[:6])
    held = mine.features(0, 6).clone()
    other.forward(IDS[6:9])
    torch.testing.assert_close(mine.features(0, 6), held, rtol=0, atol=0)
    assert other.features(0, 3).shape == (3, model.config.hidden_size)


def test_a_layer_that_is_not_there_is_refused():
    lm = LanguageModel(tiny_model("llama"), "llama", VOCAB_SIZE)
    for layers in ((), (0,), (1, lm.layers + 1), (2, 1)):
        with pytest.raises(ModelError, match=f"upwards from 1 to {lm.layers}"):
            lm.tap(layers)


def test_tapping_again_replaces_the_earlier_tap():
    lm = LanguageModel(tiny_model("llama"), "llama", VOCAB_SIZE)
    lm.tap((1,))
    lm.tap((1, 2))
    with torch.inference_mode():
        cache = lm.open(20)
        cache.forward(IDS[:4])
        assert cache.features(0, 4).shape == (4, 2 * lm._model.config.hidden_size)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@torch.inference_mode()
def test_the_fast_path_keeps_the_same_features(architecture):
    model = tiny_model(architecture)
    fast = FastModel(read_weights(model, "float32"), model.config, architecture, VOCAB_SIZE, "float32")
    slow = LanguageModel(model, architecture, VOCAB_SIZE)
    for lm in (fast, slow):
        lm.tap((1, 2))
        lm.clear(12, 1)
    caches = []
    for lm in (fast, slow):
        cache, other = lm.open(12), lm.open(30)  # grows
        cache.prefill(IDS[:6])
        lm.run([Pass(cache, [200, IDS[6], 201, IDS[7]], [ROOT, ROOT, 0, 1]), Pass(other, IDS[20:23])])
        cache.keep([1, 3])
        lm.exit(1).run([Pass(cache.shallow(lm.exit(1)), [4, 5])])  # an early exit keeps nothing
        caches.append((cache, other))
    for (one, other), count in zip(zip(*caches, strict=True), (8, 3), strict=True):
        torch.testing.assert_close(one.features(0, count), other.features(0, count), **CLOSE)
    torch.testing.assert_close(fast.embedding, slow.embedding)
    ids = torch.tensor([5, 9])
    torch.testing.assert_close(fast.head_rows(ids), slow.head_rows(ids))
    with pytest.raises(ModelError, match="go upwards"):
        fast.tap((3,))


def test_head_rows_of_packed_weights_are_those_of_the_model_but_for_rounding():
    model, ids = tiny_model("llama"), torch.tensor([5, 9, 200])
    expected = model.get_output_embeddings().weight[ids]
    for precision in ("bfloat16", "int8", "int4"):
        fast = FastModel(read_weights(model, precision), model.config, "llama", VOCAB_SIZE, precision)
        torch.testing.assert_close(fast.head_rows(ids).float(), expected, rtol=0.02, atol=0.02)
