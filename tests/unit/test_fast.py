"""The CPU fast path: float32 gives transformers' logits and ids, lower precisions their own small error."""

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import specviz
from specviz.engine.cache import Pass
from specviz.engine.engine import Engine
from specviz.engine.fast import FastModel
from specviz.engine.matrices import PRECISIONS, Blocked, Dense, Int4, Int8, can_block, dense, pack
from specviz.engine.model import LanguageModel
from specviz.engine.weights import read_weights, refuses_fast
from specviz.errors import ModelError, SettingsError
from specviz.lab.table import random_heads
from specviz.settings import DRAFTS, RULES, TREES
from specviz.zoo.files import read_fused
from tests.app import ROOT
from tests.conftest import _tokenizer
from tests.tiny import VOCAB_SIZE, tiny_folder, tiny_model
from tests.unit.checks import PROMPT, check_counts

FAMILIES = ("llama", "qwen2")
IDS = list(range(3, 90))


def fast(architecture: str = "llama", precision: str = "float32", **options) -> FastModel:
    model = tiny_model(architecture, **options)
    return FastModel(read_weights(model, precision), model.config, architecture, VOCAB_SIZE, precision)


def fresh(architecture: str, ids, **options):
    return tiny_model(architecture, **options)(input_ids=torch.tensor([ids])).logits[0, :, :VOCAB_SIZE]


@pytest.mark.parametrize("architecture", FAMILIES)
@torch.inference_mode()
def test_float32_logits_are_those_of_transformers(architecture):
    model = fast(architecture, layers=3, vocab_padding=7)
    model.clear(16)
    cache = model.open(16)  # too small: it grows
    rows = [cache.forward(IDS[:1]), cache.forward(IDS[1:6]), cache.forward(IDS[6:70]), cache.forward(IDS[70:])]
    expected = fresh(architecture, IDS, layers=3, vocab_padding=7)
    torch.testing.assert_close(torch.cat(rows), expected, rtol=1e-4, atol=1e-4)
    cache.rollback(40)
    cache.forward([250, 251, 252])
    cache.rollback(40)
    torch.testing.assert_close(cache.forward(IDS[40:50]), expected[40:50], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("architecture", FAMILIES)
@torch.inference_mode()
def test_trees_and_several_texts_are_read_as_their_paths_alone(architecture):
    model = fast(architecture)
    model.clear(64, 2)
    first, second = model.open(64), model.open(64)
    first.prefill(IDS[:20])
    second.prefill([9])
    tree, chain = model.run([Pass(first, [50, 51, 52, 53], [-1, 0, -1, 2]), Pass(second, [60, 61])])
    for row, path in enumerate(([50], [50, 51], [52], [52, 53])):
        torch.testing.assert_close(tree[row], fresh(architecture, IDS[:20] + path)[-1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(chain, fresh(architecture, [9, 60, 61])[1:], rtol=1e-4, atol=1e-4)
    first.keep([2, 3])
    alone, other = model.run([Pass(second, [62]), Pass(first, [54])])
    torch.testing.assert_close(alone, fresh(architecture, [9, 60, 61, 62])[-1:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(other, fresh(architecture, [*IDS[:20], 52, 53, 54])[-1:], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_many_rows_of_a_tree_take_the_other_kernel():
    model = fast()
    model.clear(200)
    cache = model.open(200)
    cache.prefill(IDS[:10])
    parents = [-1, *(row - 1 if row % 7 else -1 for row in range(1, 60))]
    logits = cache.forward(list(range(100, 160)), parents)
    torch.testing.assert_close(logits[6], fresh("llama", [*IDS[:10], *range(100, 107)])[-1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits[8], fresh("llama", [*IDS[:10], 107, 108])[-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_draft_type_and_rule_gives_the_ids_of_transformers(architecture, draft):
    reference = Engine(LanguageModel(tiny_model(architecture), "reference", VOCAB_SIZE), _tokenizer())
    expected = reference.generate(PROMPT, draft="none", max_new_tokens=40, ignore_eos=True).output.token_ids
    target = fast(architecture)
    engine = Engine(target, _tokenizer(), fast(architecture, seed=1), heads=random_heads(target, 32, (1, 2)))
    if reason := engine.drafts()[draft]:
        pytest.xfail(reason)
    for rule in RULES:
        if rule != "block" or draft not in TREES:
            run = engine.generate(PROMPT, draft=draft, verify=rule, max_new_tokens=40, ignore_eos=True)
            assert run.output.token_ids == expected
            check_counts(run)
    assert (run.device.path, run.device.dtype) == ("fast-cpu", "float32")


@torch.inference_mode()
def test_the_early_exit_shares_memory_and_weights():
    model = fast(layers=4)
    model.clear(40)
    cache = model.open(40)
    cache.prefill(IDS[:10])
    view = cache.shallow(model.exit(2))
    view.base = cache.length
    reference = LanguageModel(tiny_model("llama", layers=4), "reference", VOCAB_SIZE)
    other = reference.exit(2)
    expected = other._model(input_ids=torch.tensor([IDS[:12]])).logits[0, 10:]
    torch.testing.assert_close(view.forward(IDS[10:12]), expected, rtol=1e-4, atol=1e-4)
    assert (model.params, model.exit(2).params) == (reference.params, other.params)
    assert model.exit(2).store is model.store


@pytest.mark.parametrize(("precision", "error"), [("bfloat16", 0.03), ("int8", 0.03), ("int4", 0.25)])
@torch.inference_mode()
def test_lower_precisions_keep_their_own_error(precision, error):
    model = fast("llama", precision, hidden=64, std=0.05)
    model.clear(100)
    logits = model.open(100).forward(IDS).float()
    expected = fresh("llama", IDS, hidden=64, std=0.05)
    assert 1e-5 < (logits - expected).norm() / expected.norm() < error
    assert model.precision == precision


@torch.inference_mode()
def test_a_tokens_logits_do_not_depend_on_its_neighbours():
    """Weights only are quantised: a row alone and among others agrees up to the order of sums."""
    for precision in PRECISIONS:
        model = fast("llama", precision, hidden=64)
        model.clear(40)
        cache = model.open(40)
        cache.prefill(IDS[:10])
        together = cache.forward(IDS[10:15])
        cache.rollback(10)
        alone = torch.cat([cache.forward([token]) for token in IDS[10:15]])
        spread = expected = together.float().std()
        assert (together.float() - alone.float()).abs().max() < 0.1 * spread, (precision, expected)


def test_matrices_compute_what_they_hold():
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(32, 64, generator=generator), torch.randn(32, generator=generator)
    x = torch.randn(3, 64, generator=generator)
    exact = x @ weight.T + bias
    for precision, kind, error in [
        ("float32", (Blocked, Dense), 1e-6),
        ("bfloat16", (Blocked, Dense), 0.01),
        ("int8", Int8, 0.02),
        ("int4", Int4, 0.12),
    ]:
        matrix = pack(precision, [weight[:16], weight[16:]], [bias[:16], bias[16:]])
        assert isinstance(matrix, kind)
        out = matrix(x if precision == "float32" else x.bfloat16()).float()
        assert (out - exact).norm() / exact.norm() < error
    for dtype in (torch.float32, torch.bfloat16):
        # Whichever order the weights stand in, the rows that come back are those given.
        assert torch.equal(dense(weight, dtype).rows(torch.tensor([3, 1])), weight[[3, 1]].to(dtype))
        assert isinstance(dense(weight, dtype), Blocked if can_block(dtype, weight.device) else Dense)
    assert pack("int4", [weight]).bytes < pack("int8", [weight]).bytes < pack("bfloat16", [weight]).bytes


def test_what_cannot_be_run_is_refused_by_name():
    assert "gpt2 models run through transformers" in refuses_fast(tiny_model("gpt2").config, "float32")
    assert "int4 needs matrices" in refuses_fast(tiny_model("llama", hidden=24).config, "int4")
    assert "float16" in refuses_fast(tiny_model("llama").config, "float16")
    assert refuses_fast(tiny_model("llama").config, "int4") is None
    with pytest.raises(ModelError, match="gpt2"):
        read_weights(tiny_model("gpt2"), "float32")


def test_load_takes_the_fast_path_where_it_can_and_says_which_ran(tmp_path):
    llama, other = tiny_folder(tmp_path / "llama", "llama"), tiny_folder(tmp_path / "gpt2", "gpt2")
    paths = {
        (folder, precision, path): specviz.load(target=str(folder), dtype=precision, device="cpu", path=path).device
        for folder, precision, path in [
            (llama, "float32", "auto"),
            (llama, "int8", "auto"),
            (llama, "float32", "transformers"),
            (other, "float32", "auto"),
        ]
    }  # fmt: skip
    assert [device.path for device in paths.values()] == ["fast-cpu", "fast-cpu", "transformers", "transformers"]
    assert [device.dtype for device in paths.values()] == ["float32", "int8", "float32", "float32"]
    with pytest.raises(SettingsError, match="int8 cannot be had for gpt2: gpt2 models"):
        specviz.load(target=str(other), dtype="int8", device="cpu")
    with pytest.raises(SettingsError, match="Unknown path 'slow'"):
        specviz.load(target=str(llama), path="slow", device="cpu")


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("shards", [1, 3])
def test_weights_read_from_files_are_those_of_the_model(architecture, shards, tmp_path):
    model = tiny_model(architecture)
    model.save_pretrained(tmp_path, max_shard_size="10GB" if shards == 1 else "60KB")
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shards > 1)
    ours, theirs = read_fused(tmp_path, model.config, "float32", "cpu", "tiny"), read_weights(model, "float32")
    assert ours.params == theirs.params == model.num_parameters()
    assert ours.bytes == 4 * ours.params
    torch.testing.assert_close(ours.embedding, theirs.embedding)
    for matrix in ("qkv", "out", "gate_up", "down"):
        for own, other in zip(ours.blocks, theirs.blocks, strict=True):
            torch.testing.assert_close(getattr(own, matrix).rows(slice(None)), getattr(other, matrix).rows(slice(None)))


def test_files_that_are_not_the_models_are_refused_with_a_sentence(tmp_path):
    folder = tiny_folder(tmp_path / "llama", "llama")
    file = folder / "model.safetensors"
    whole, tensors = file.read_bytes(), load_file(file)
    damages = {
        "lack 1 tensors, model.layers.1.mlp.up_proj.weight": {**tensors, "model.layers.1.mlp.up_proj.weight": None},
        r"do not fit its config.json: model.norm.weight is \[3\]": {**tensors, "model.norm.weight": torch.ones(3)},
    }
    for sentence, changed in damages.items():
        save_file({name: tensor for name, tensor in changed.items() if tensor is not None}, file)
        with pytest.raises(ModelError, match=sentence):
            specviz.load(target=str(folder), dtype="float32", device="cpu")
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="damaged or cut short"):
        specviz.load(target=str(folder), dtype="float32", device="cpu")


def test_nothing_of_transformers_models_is_imported_for_the_fast_path(tmp_path):
    """A second of a start that shall take less than five."""
    folder = tiny_folder(tmp_path / "llama", "llama")
    code = (
        f"import sys, specviz; engine = specviz.load(target={str(folder)!r}, dtype='float32', device='cpu');"
        "engine.generate('one two', max_new_tokens=4); print('transformers.modeling_utils' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.strip() == "False"


def test_a_draft_of_the_same_weights_is_packed_once(tmp_path):
    folder = str(tiny_folder(tmp_path / "llama", "llama"))
    engine = specviz.load(target=folder, draft_model=folder, dtype="float32", device="cpu")
    assert engine.draft_model._weights is engine.target._weights
    assert engine.draft_model.store is not engine.target.store
    assert engine.generate(PROMPT, draft="model", max_new_tokens=20).summary.acceptance_rate.value == 1
