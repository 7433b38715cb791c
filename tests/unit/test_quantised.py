"""The GGUF's own 4-bit weights: the numbers transformers reads as floats, without floats."""

import gguf
import numpy as np
import pytest
import torch

from specviz.engine.fast import FastModel
from specviz.engine.weights import read_weights
from specviz.errors import ModelError
from specviz.zoo import header, quantised
from tests.tiny import VOCAB_SIZE, tiny_model

IDS = list(range(3, 40))


def write_gguf(path, model, kind=gguf.GGMLQuantizationType.Q4_1, alignment=None):
    """A Llama model as llama.cpp would write it: metadata of every kind, Q4_1 matrices, rotary rows interleaved."""
    config, writer = model.config, gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(8192)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_bool("tests.yes", True)
    writer.add_int8("tests.small", -3)
    writer.add_float64("tests.exact", 0.1)
    writer.add_uint64("tests.large", 2**40)
    writer.add_token_list(["", "a", "\u00e9\U0001f600", "Ġthe"])
    writer.add_token_scores([0.5, -1.0])
    writer.add_array("tests.nested", [[1, 2], [3]])
    writer.add_chat_template("{{ messages }}")
    if alignment:
        writer.add_custom_alignment(alignment)

    def interleave(weight, heads):
        return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)

    def add(name, weight, quantise=True):
        data = weight.detach().float().numpy()
        if quantise:
            writer.add_tensor(name, gguf.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, np.ascontiguousarray(data))

    add("token_embd.weight", model.model.embed_tokens.weight, quantise=False)
    add("output.weight", model.lm_head.weight, quantise=False)
    add("output_norm.weight", model.model.norm.weight, quantise=False)
    for i, layer in enumerate(model.model.layers):
        attention, mlp = layer.self_attn, layer.mlp
        add(f"blk.{i}.attn_norm.weight", layer.input_layernorm.weight, quantise=False)
        add(f"blk.{i}.ffn_norm.weight", layer.post_attention_layernorm.weight, quantise=False)
        add(f"blk.{i}.attn_q.weight", interleave(attention.q_proj.weight, config.num_attention_heads))
        add(f"blk.{i}.attn_k.weight", interleave(attention.k_proj.weight, config.num_key_value_heads))
        add(f"blk.{i}.attn_v.weight", attention.v_proj.weight)
        add(f"blk.{i}.attn_output.weight", attention.o_proj.weight)
        add(f"blk.{i}.ffn_gate.weight", mlp.gate_proj.weight)
        add(f"blk.{i}.ffn_up.weight", mlp.up_proj.weight)
        add(f"blk.{i}.ffn_down.weight", mlp.down_proj.weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@torch.inference_mode()
def test_the_files_own_numbers_run_as_they_are(tmp_path):
    model = tiny_model("llama", hidden=64, std=0.1)
    write_gguf(tmp_path / "tiny.gguf", model)
    weights = quantised.read_int4(tmp_path / "tiny.gguf", model.config)
    fast = FastModel(weights, model.config, "tiny", VOCAB_SIZE, "int4")
    assert fast.params == sum(weight.numel() for weight in model.parameters())
    fast.clear(64)
    logits = fast.open(64).forward(IDS).float()
    # The floats those numbers stand for, in a model that transformers runs.
    for layer in model.model.layers:
        for module in (*layer.self_attn.children(), *layer.mlp.children()):
            if isinstance(module, torch.nn.Linear):
                kind = gguf.GGMLQuantizationType.Q4_1
                data = gguf.dequantize(gguf.quantize(module.weight.numpy(), kind), kind)
                module.weight.data = torch.from_numpy(data)
    expected = model(input_ids=torch.tensor([IDS])).logits[0]
    assert (logits - expected).norm() / expected.norm() < 0.04  # bfloat16 activations and head
    rough = FastModel(read_weights(model, "int4"), model.config, "tiny", VOCAB_SIZE, "int4")
    rough.clear(64)
    assert (rough.open(64).forward(IDS).float() - expected).norm() / expected.norm() < 0.2


def test_another_quantisation_is_refused_by_name(tmp_path):
    model = tiny_model("llama", hidden=64)
    write_gguf(tmp_path / "tiny.gguf", model, gguf.GGMLQuantizationType.Q4_0)
    with pytest.raises(ModelError, match=r"blk\.0\.attn_q\.weight of tiny\.gguf is Q4_0, not Q4_1: choose"):
        quantised.read_int4(tmp_path / "tiny.gguf", model.config)
    write_gguf(tmp_path / "short.gguf", model)
    model.config.num_hidden_layers = 9
    with pytest.raises(ModelError, match=r"short\.gguf has no tensor blk\.2\.attn_norm\.weight"):
        quantised.read_int4(tmp_path / "short.gguf", model.config)


@pytest.mark.parametrize("alignment", [None, 256])
def test_tensors_are_found_where_the_package_finds_them_without_reading_the_texts(tmp_path, monkeypatch, alignment):
    file = tmp_path / "tiny.gguf"
    write_gguf(file, tiny_model("llama", hidden=64), alignment=alignment)
    # The package's reader knows no arrays of arrays and counts what it reads as one.
    expected = {tensor.name: tensor for tensor in gguf.GGUFReader(str(file)).tensors}
    monkeypatch.setattr(gguf, "GGUFReader", None)
    found = header.read_tensors(file)
    assert list(found) == list(expected)
    for name, tensor in found.items():
        theirs = expected[name]
        assert (tensor.kind, tensor.shape) == (theirs.tensor_type, tuple(theirs.shape[::-1].tolist()))
        assert tensor.data.tobytes() == theirs.data.tobytes()


def test_a_file_that_is_cut_or_another_is_refused_in_a_sentence(tmp_path):
    file = tmp_path / "tiny.gguf"
    write_gguf(file, tiny_model("llama", hidden=64))
    whole = file.read_bytes()
    for size in (0, 3, 20, 100, 600, len(whole) - 5000):
        file.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"tiny\.gguf is damaged or no GGUF file .*: fetch it again"):
            header.read_tensors(file)
    file.write_bytes(whole[:24] + b"\xff" * 8 + whole[32:])  # the first key's length
    with pytest.raises(ModelError, match="is damaged or no GGUF file"):
        header.read_tensors(file)
    for start in (b"PK\x03\x04" + whole[4:], whole[:4] + b"\x09" + whole[5:], whole[:4] + b"\0\0\0\x03" + whole[8:]):
        file.write_bytes(start)
        with pytest.raises(ModelError, match="it begins with"):
            header.read_tensors(file)
