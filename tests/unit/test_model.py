"""The cache rolls back exactly: what was forgotten leaves no trace, on every architecture."""

import pytest
import torch

from specviz.engine.model import LanguageModel
from specviz.errors import ModelError
from tests.tiny import ARCHITECTURES, VOCAB_SIZE, tiny_model

IDS = list(range(3, 60))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_logits_behind_a_rollback_are_those_of_a_fresh_pass(architecture):
    model = tiny_model(architecture)
    expected = model(input_ids=torch.tensor([IDS])).logits[0]
    lm = LanguageModel(model, architecture, VOCAB_SIZE)
    lm.reset(100)
    lm.prefill(IDS[:30])
    lm.forward([250, 251, 252, 253])
    lm.rollback(30)
    assert lm.length == 30
    rows = [lm.forward(IDS[30:31]), lm.forward(IDS[31:50]), lm.forward(IDS[50:])]
    torch.testing.assert_close(torch.cat(rows), expected[30:], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_the_cache_is_written_in_place_and_reused_by_the_next_run():
    lm = LanguageModel(tiny_model("llama"), "llama", VOCAB_SIZE)
    lm.reset(64)
    lm.forward(IDS[:10])
    storage = lm._cache.layers[0].keys.data_ptr()
    lm.forward(IDS[10:20])
    lm.rollback(5)
    lm.reset(40)
    lm.forward(IDS[:10])
    assert lm._cache.layers[0].keys.data_ptr() == storage
    assert lm.length == 10


@torch.inference_mode()
def test_padded_logits_are_cut_to_the_tokenizer():
    lm = LanguageModel(tiny_model("llama", vocab_padding=20), "padded", VOCAB_SIZE)
    lm.reset(8)
    assert lm.forward([1, 2]).shape == (2, VOCAB_SIZE)


def test_a_head_narrower_than_the_tokenizer_is_refused_by_name():
    with pytest.raises(ModelError, match="narrow knows 300 tokens and its tokenizer 301"):
        LanguageModel(tiny_model("llama"), "narrow", VOCAB_SIZE + 1)


@torch.inference_mode()
def test_a_long_prompt_is_prefilled_in_passes(monkeypatch):
    monkeypatch.setattr("specviz.engine.model.PREFILL_ROWS", 7)
    lm = LanguageModel(tiny_model("qwen2"), "qwen2", VOCAB_SIZE)
    lm.reset(100)
    lm.prefill(IDS[:-1])
    expected = tiny_model("qwen2")(input_ids=torch.tensor([IDS])).logits[0, -1]
    torch.testing.assert_close(lm.forward(IDS[-1:])[0], expected, rtol=1e-4, atol=1e-4)
