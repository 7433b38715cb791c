"""What runs between the products of a CPU pass of few rows gives what PyTorch's operations give."""

import math

import pytest
import torch
import torch.nn.functional as F
from numba.core import caching

from specviz.engine.attention import WORTH_SHARING, _attention, _share
from specviz.engine.compiled import CODE
from specviz.engine.fast import FastModel
from specviz.engine.kernels import kernels
from specviz.engine.weights import read_weights
from tests.tiny import VOCAB_SIZE, tiny_model

TYPES = (torch.float32, torch.bfloat16)
NEAR = {torch.float32: {"rtol": 1e-5, "atol": 1e-6}, torch.bfloat16: {"rtol": 0.01, "atol": 0.01}}


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), expected.float(), **NEAR[found.dtype], equal_nan=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows", [1, 5])
def test_norms_are_those_of_pytorch(dtype, rows):
    torch.manual_seed(0)
    do, width = kernels(dtype, 8), 72
    x, more, weight = 30 * torch.randn(rows, width), torch.randn(rows, width).to(dtype), torch.randn(width)
    out = torch.empty(rows, width, dtype=dtype)
    do.norm(x.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, width, 1e-5)
    near(out, F.rms_norm(x, (width,), weight, 1e-5))
    expected = x + more
    do.add_norm(x.data_ptr(), more.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, width, 1e-5)
    torch.testing.assert_close(x, expected)
    near(out, F.rms_norm(expected, (width,), weight, 1e-5))


@pytest.mark.parametrize("dtype", TYPES)
def test_the_gate_is_that_of_pytorch_however_far_out(dtype):
    do, width = kernels(dtype, 8), 4001
    gate = torch.linspace(-200, 200, width)
    both = torch.cat([gate, torch.full_like(gate, 1.5)])[None].to(dtype)
    out = torch.empty(1, width, dtype=dtype)
    do.gate(both.data_ptr(), out.data_ptr(), 1, width)
    near(out, F.silu(both[:, :width].float()) * 1.5)


def attention(dtype, rows, heads, kv_heads, size, start, mask=None, threads=1, places=400, spoil=None):
    """(what came out, what it should be); the cache is checked on the way."""
    torch.manual_seed(rows + start)
    states = torch.randn(rows, heads + 2 * kv_heads, size).to(dtype)
    if spoil is not None:
        states[0, heads, 0] = spoil
    keys, values = torch.randn(2, kv_heads, places, size).to(dtype)
    turns = torch.polar(torch.ones(rows, size // 2), torch.rand(rows, size // 2) * 6)
    out = torch.empty(rows, heads, size, dtype=dtype)
    before = keys.clone(), values.clone()
    at = 0 if mask is None else mask.data_ptr()
    kernels(dtype, size).attend(
        states.data_ptr(), turns.data_ptr(), keys.data_ptr(), values.data_ptr(), at, out.data_ptr(), rows, heads,
        kv_heads, places, start, threads,
    )  # fmt: skip
    pairs = torch.view_as_complex(states[:, : heads + kv_heads].float().unflatten(-1, (-1, 2)).contiguous())
    turned = torch.view_as_real(pairs * turns[:, None]).flatten(-2)
    end = start + rows
    near(keys[:, start:end], turned[:, heads:].transpose(0, 1))
    assert torch.equal(values[:, start:end].nan_to_num(), states[:, heads + kv_heads :].transpose(0, 1).nan_to_num())
    for now, then in zip((keys, values), before, strict=True):
        assert torch.equal(now[:, :start], then[:, :start])
        assert torch.equal(now[:, end:], then[:, end:])
    if mask is None:
        mask = torch.zeros(rows, end)
        mask[:, start:] = torch.full((rows, rows), -math.inf).triu(1)
    wide = [part[:, :end].float().repeat_interleave(heads // kv_heads, 0) for part in (keys, values)]
    expected = F.scaled_dot_product_attention(turned[:, :heads].transpose(0, 1), *wide, attn_mask=mask)
    return out, expected.transpose(0, 1)


SHAPES = ((4, 2, 8), (9, 3, 64))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("start", [0, 3, 130])
def test_attention_of_a_chain_is_that_of_pytorch(dtype, shape, rows, start):
    near(*attention(dtype, rows, *shape, start))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_of_a_tree_sees_what_its_mask_shows(dtype, shape):
    rows, start = 7, 130
    mask = torch.zeros(rows, start + rows)
    hidden = torch.rand(mask.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    hidden[:, :66] = True  # all that one of two threads looks at
    hidden[range(rows), range(start, start + rows)] = False
    mask.masked_fill_(hidden, torch.finfo(torch.bfloat16).min)
    for threads in (1, 2):
        near(*attention(dtype, rows, *shape, start, mask, threads))


@pytest.mark.parametrize("dtype", TYPES)
def test_several_threads_give_what_one_gives(dtype):
    shape, rows, start = (9, 3, 64), 4, 300
    assert shape[0] * shape[2] * rows * start > WORTH_SHARING
    one, expected = attention(dtype, rows, *shape, start)
    for threads in (2, 3, torch.get_num_threads()):
        many, _ = attention(dtype, rows, *shape, start, threads=threads)
        near(many, expected)
        near(many, one)


@pytest.mark.parametrize("spoil", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_not_finite_stays_so(dtype, spoil):
    """Damaged weights are told by logits that are not finite: nothing on the way may make numbers of them."""
    out, expected = attention(dtype, 2, 4, 2, 8, 20, spoil=spoil)
    assert not expected.isfinite().all()
    near(out, expected)
    do, wide = kernels(dtype, 8), torch.full((1, 16), spoil).to(dtype)
    out = torch.zeros(1, 8, dtype=dtype)
    do.gate(wide.data_ptr(), out.data_ptr(), 1, 8)
    assert not out.isfinite().any()
    x = torch.full((1, 8), spoil)
    do.norm(x.data_ptr(), torch.ones(8).data_ptr(), out.data_ptr(), 1, 8, 1e-5)
    assert out.isnan().all()


@torch.inference_mode()
def test_a_pass_of_few_rows_is_the_pass_without_kernels():
    """Chains and trees, with hidden states kept."""
    weights, config = (lambda model: (read_weights(model, "float32"), model.config))(tiny_model("llama", layers=3))
    found = []
    for is_plain in (False, True):
        model = FastModel(weights, config, "tiny", VOCAB_SIZE, "float32")
        assert model._kernels is not None
        if is_plain:
            model._kernels = None
        model.tap((1, 3))
        model.clear(64)
        cache = model.open(64)
        cache.forward(list(range(3, 30)))
        tree = cache.forward([40, 41, 42, 43], [-1, 0, 0, 2])
        cache.keep([0, 2, 3])
        found.append([tree, cache.forward([50, 51]), cache.features(0, cache.base)])
    for few, plain in zip(*found, strict=True):
        torch.testing.assert_close(few, plain, rtol=1e-4, atol=1e-4)


def test_what_was_compiled_is_found_again_on_disk():
    """By its code and its constants: compiling takes seconds, and every process would wait for it."""
    _attention(0, 8, CODE), _share(0, 8, CODE)
    assert _attention(0, 8, CODE).stats.cache_hits
    assert _share(0, 8, CODE).cache_hits


def test_where_nothing_can_be_kept_on_disk_it_is_compiled_anew(monkeypatch):
    def nowhere(self, *args):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(caching.CacheImpl, "__init__", nowhere)
    attend = _attention(0, 8, CODE)
    assert not attend.stats.cache_hits
    assert attend.signatures
