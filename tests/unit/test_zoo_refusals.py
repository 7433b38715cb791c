"""Models that cannot be used, each refused by one sentence that names it."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.errors import ModelError
from specviz.zoo import load_pair
from specviz.zoo.check import read_config
from tests.tiny import tiny_folder


@pytest.fixture
def folder(tmp_path):
    return tiny_folder(tmp_path / "tiny-one", "qwen2")


def refusal(folder) -> str:
    with pytest.raises(ModelError) as caught:
        load_pair(target=folder, dtype="float32", device="cpu")
    sentence = str(caught.value)
    assert "tiny-one" in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def replace_config(folder, **config):
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file(folder, name):
    (folder / name).unlink()
    assert f"has no {name}" in refusal(folder)


def test_a_missing_shard(folder):
    (folder / "model.safetensors").unlink()
    shards = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(shards))
    assert "has no model-00001-of-00002.safetensors" in refusal(folder)


def test_a_missing_tokenizer(folder):
    for path in folder.glob("*token*"):
        path.unlink()
    assert "has no tokenizer" in refusal(folder)


def test_a_damaged_tokenizer(folder):
    (folder / "tokenizer.json").write_text('{"model": ')
    assert "tokenizer of" in refusal(folder)


@pytest.mark.parametrize("text", ["{", "[]", "{}", ""])
def test_a_config_that_is_none(folder, text):
    (folder / "config.json").write_text(text)
    assert "its config.json is not JSON that names a model_type" in refusal(folder)


def test_a_config_with_a_wrong_value(folder):
    edit(folder, num_hidden_layers="many")
    assert "cannot be loaded" in refusal(folder)


def test_an_unknown_architecture(folder):
    edit(folder, model_type="llama9000")
    assert "does not know its architecture 'llama9000'" in refusal(folder)


def test_remote_code_is_not_run(folder):
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    edit(folder, model_type="evil", auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"})
    assert "does not know its architecture 'evil'" in refusal(folder)


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, "encoder-decoder model (T5For"),
        (
            {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
            "not a causal language model but a BertForMaskedLM",
        ),
        ({"model_type": "bert", "architectures": ["BertLMHeadModel"]}, "not a causal language model"),
        ({"model_type": "vit", "architectures": ["ViTModel"]}, "not a causal language model but a ViTModel"),
        ({"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, "(mamba) has linear attention layers"),
        ({"model_type": "rwkv", "architectures": ["RwkvForCausalLM"]}, "(rwkv) has recurrent layers"),
        ({"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"]}, "has sliding attention layers"),
        ({"model_type": "mistral", "architectures": ["MistralForCausalLM"]}, "has sliding attention layers"),
        ({"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"]}, "linear attention"),
        ({"model_type": "falcon_h1", "architectures": ["FalconH1ForCausalLM"]}, "(falcon_h1) has hybrid layers"),
    ],
    ids=lambda value: value["architectures"][0] if isinstance(value, dict) else "",
)
def test_a_model_that_is_no_decoder_with_full_attention(folder, config, part):
    replace_config(folder, **config)
    assert part in refusal(folder)


def test_a_sliding_window_in_use_is_refused_and_one_out_of_use_is_not(folder):
    sliding = {"sliding_window": 16, "max_window_layers": 0, "layer_types": ["sliding_attention", "full_attention"]}
    edit(folder, use_sliding_window=False, sliding_window=16, layer_types=["full_attention"] * 2)
    load_pair(target=folder, device="cpu")
    edit(folder, use_sliding_window=True, **sliding)
    assert "has sliding attention layers, whose cache cannot take back refused tokens" in refusal(folder)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_ctx": 1024, "activation_function": "gelu_new"},
        {
            "model_type": "gpt_neo",
            "architectures": ["GPTNeoForCausalLM"],
            "num_layers": 24,
            "attention_types": [[["global", "local"], 12]],
            "window_size": 256,
        },
        {
            "model_type": "qwen2",
            "architectures": ["Qwen2ForCausalLM"],
            "max_window_layers": 28,
            "sliding_window": 131072,
            "use_sliding_window": False,
        },
        {
            "model_type": "qwen3",
            "architectures": ["Qwen3ForCausalLM"],
            "sliding_window": None,
            "use_sliding_window": False,
        },
        {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "rope_theta": 500000.0,
            "rope_scaling": {
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
        },
        {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None},
    ],
    ids=lambda config: config["model_type"],
)
def test_the_named_pairs_kinds_pass_as_they_are_published(folder, config):
    replace_config(folder, **config)
    assert read_config(folder, "it").model_type == config["model_type"]


def test_gpt2_as_published_without_prefixes_or_a_head_is_whole(tmp_path):
    folder = tiny_folder(tmp_path / "tiny-one", "gpt2")
    path = folder / "model.safetensors"
    weights = load_file(path)
    assert "lm_head.weight" not in weights
    save_file({name.removeprefix("transformer."): tensor for name, tensor in weights.items()}, path, {"format": "pt"})
    model = load_pair(target=folder, dtype="float32", device="cpu").target.model
    assert torch.equal(model.transformer.wte.weight, weights["transformer.wte.weight"])


def test_quantised_weights(folder):
    edit(folder, quantization_config={"quant_method": "gptq", "bits": 4})
    assert "quantised" in refusal(folder)


@pytest.mark.parametrize("keep", [0, 4, 2000, -100])
def test_weights_cut_short(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert "damaged or cut short" in refusal(folder)


def test_weights_that_are_something_else(folder):
    (folder / "model.safetensors").write_bytes(b"version https git-lfs\noid sha256:1234\nsize 12345678\n" * 3)
    assert "damaged or cut short" in refusal(folder)


def test_weights_that_lack_a_tensor_are_not_filled_with_noise(folder):
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    assert "lack 1 tensors, model.layers.1.mlp.up_proj.weight among them" in refusal(folder)


def test_weights_of_another_size(folder):
    edit(folder, intermediate_size=100)
    assert "do not fit its config.json" in refusal(folder)


def test_a_path_that_is_not_there(tmp_path):
    for source in (tmp_path / "nowhere", str(tmp_path / "nowhere"), "./nowhere"):
        with pytest.raises(ModelError, match=r"There is no folder '.*nowhere': check the path"):
            load_pair(target=source, device="cpu")


def test_a_file_in_place_of_a_folder(folder):
    assert "is a file: name the folder" in refusal(folder / "config.json")
