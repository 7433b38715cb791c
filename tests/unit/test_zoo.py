"""Loading pairs from folders: what comes back, and what is refused because two models do not fit each other."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from specviz.errors import ModelError
from specviz.zoo import DEFAULT_PAIR, PAIRS, load_pair, locate
from tests.tiny import ARCHITECTURES, VOCAB_SIZE, tiny_folder, tiny_model, tiny_tokenizer

HOSTILE = "Hi 👩‍👩‍👧 中文 שלום  a\n\t123 don't . </script>"


def load(target, draft=None, **options):
    return load_pair(target=target, draft_model=draft, device="cpu", **{"dtype": "float32", **options})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_folder_of_each_architecture_loads_as_it_was_saved(tmp_path, architecture, capfd):
    folder = tiny_folder(tmp_path / "it", architecture, vocab_padding=4)
    capfd.readouterr()
    loaded = load(folder)
    assert loaded.pair is None
    assert (loaded.vocab_size, loaded.precision, loaded.device.type) == (VOCAB_SIZE, "float32", "cpu")
    model = loaded.target.model
    assert not model.training
    assert not any(weight.requires_grad for weight in model.parameters())
    assert (loaded.target.name, loaded.target.source) == ("it", str(folder))
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        assert torch.equal(model(ids).logits, tiny_model(architecture, vocab_padding=4)(ids).logits)
    tokenizer = loaded.target.tokenizer
    assert tokenizer.decode(tokenizer(HOSTILE).input_ids) == HOSTILE
    assert capfd.readouterr() == ("", "")


def test_a_target_and_its_draft_model(tmp_path):
    target = tiny_folder(tmp_path / "large", "llama", hidden=64)
    draft = tiny_folder(tmp_path / "small", "gpt2", seed=1, vocab_padding=20)  # another family, the same tokenizer
    stages = []
    loaded = load(str(target), str(draft), dtype="bfloat16", progress=lambda event: stages.append(event.stage))
    assert loaded.draft.name == "small"
    assert loaded.draft_unavailable is None
    assert loaded.vocab_size == VOCAB_SIZE
    assert loaded.target.model.dtype == loaded.draft.model.dtype == torch.bfloat16
    assert loaded.precision == "bfloat16"
    assert stages == ["Loading large", "Loading small"]


def test_draft_equal_to_target_is_loaded_once(tmp_path):
    folder = tiny_folder(tmp_path / "it", "gpt2")
    loaded = load(folder, folder)
    assert loaded.draft is loaded.target


def test_without_a_draft_model_the_reason_is_given(tmp_path):
    loaded = load(tiny_folder(tmp_path / "alone", "gpt2"))
    assert loaded.draft is None
    assert "No draft model was given for alone" in loaded.draft_unavailable


def test_another_vocabulary_is_refused_naming_both(tmp_path):
    target, draft = tiny_folder(tmp_path / "one", "gpt2"), tiny_folder(tmp_path / "two", "gpt2")
    tiny_tokenizer(text="zzz yyy zz yy xxyz quite other words, with quite other merges").save_pretrained(draft)
    with pytest.raises(ModelError, match=r"two cannot draft for .*one: its tokenizer has another vocabulary"):
        load(target, draft)


def test_swapped_ids_are_another_vocabulary(tmp_path):
    target, draft = tiny_folder(tmp_path / "one", "gpt2"), tiny_folder(tmp_path / "two", "gpt2")
    path = draft / "tokenizer.json"
    text = path.read_text().replace('"!": 3', '"!": 4 ').replace('"\\"": 4,', '"\\"": 3,')
    assert text != path.read_text()
    path.write_text(text)
    with pytest.raises(ModelError, match=r"id 3 is '\"', not '!'"):
        load(target, draft)


def test_a_draft_model_with_fewer_logits_than_tokens_is_refused(tmp_path):
    target = tiny_folder(tmp_path / "one", "gpt2")
    draft = tiny_folder(tmp_path / "two", "gpt2", vocab_padding=-20)
    with pytest.raises(
        ModelError, match=r"two cannot draft for .*one: it has 280 logits but their tokenizer has 300 tokens"
    ):
        load(target, draft)
    assert load(draft).vocab_size == 280


def test_the_table_of_pairs():
    assert PAIRS[DEFAULT_PAIR].draft_model is None
    assert len(PAIRS) >= 7
    for name, pair in PAIRS.items():
        assert name == pair.name == name.lower()
        assert pair.title
        assert pair.licence
        assert (pair.draft_model is None) == (name == DEFAULT_PAIR)


@pytest.mark.parametrize("ask", [locate, load_pair])
def test_an_unknown_pair_is_refused_with_the_list(ask):
    with pytest.raises(ModelError, match=r"Unknown pair 'smolm2-135m': did you mean 'smollm2-135m'\?.*qwen3-8b"):
        ask("smolm2-135m")


def test_empty_names_are_not_taken_for_the_default():
    with pytest.raises(ModelError, match="Unknown pair ''"):
        load_pair("")
    with pytest.raises(ModelError, match="must be the name of a folder or a Hub id, not ' '"):
        load_pair(target=" ")


def test_a_pair_and_a_target_are_one_too_many():
    with pytest.raises(ModelError, match="give one of them"):
        load_pair("gpt2-large", target="gpt2")


def test_listing_the_pairs_does_not_import_torch():
    code = "import sys, specviz.zoo; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tiny_models_are_seeded_and_varied(architecture):
    ids = torch.tensor([[5, 6, 7]])
    model = tiny_model(architecture)
    with torch.inference_mode():
        assert torch.equal(model(ids).logits, tiny_model(architecture)(ids).logits)
        assert not torch.equal(model(ids).logits, tiny_model(architecture, seed=1)(ids).logits)
        for _ in range(48):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    assert len(set(ids[0, 3:].tolist())) > 8
