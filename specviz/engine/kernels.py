"""What lies between the matrix products of a CPU pass of few rows: norms, rotary positions, attention, the gate.

PyTorch's own operations take microseconds each before they compute anything, and a layer needs thirty of them: in int4
a third of a pass. Here they are four calls a layer, compiled by Numba on first use and kept on disk. The arithmetic is
float32 whether activations are float32 or bfloat16, and what is not finite stays so. Functions are told addresses: the
caller keeps the tensors alive, and they are contiguous. Held by tests/unit/test_kernels.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numba import carray, types
from torch import Tensor

from specviz.engine.attention import attention
from specviz.engine.compiled import CODE, FLOAT, INT, entry, exp, float32s, inner, narrow, numbers, wide


@inner
def _norm(x, weight, out, eps):
    """RMS norm (Zhang & Sennrich 2019, §4) of each row."""
    rows, width = x.shape
    for row in range(rows):
        total = np.float32(0)
        for i in range(width):
            value = wide(x[row, i])
            total += value * value
        scale = np.float32(1) / np.sqrt(total / np.float32(width) + eps)
        for i in range(width):
            out[row, i] = narrow(wide(x[row, i]) * scale * weight[i], out)


@inner
def _add_norm(x, more, weight, out, eps):
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[row, i] += wide(more[row, i])
    _norm(x, weight, out, eps)


@inner
def _gate(gate_up, out):
    """SwiGLU (Shazeer 2020, §2): silu of the first half times the second."""
    rows, width = out.shape
    for row in range(rows):
        for i in range(width):
            gate = wide(gate_up[row, i])
            # e ** -|x| never overflows.
            small = exp(-abs(gate))
            share = (np.float32(1) if gate >= 0 else small) / (np.float32(1) + small)
            out[row, i] = narrow(gate * share * wide(gate_up[row, width + i]), out)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Functions of addresses, sizes in rows and columns, and floats; activations are of one type.

    norm(x, weight, out, rows, width, eps): RMS norm of (rows, width) float32 `x`, by (width,) float32 weights.
    renorm(x, weight, out, rows, width, eps): the same of activations.
    add_norm(x, more, weight, out, rows, width, eps): add (rows, width) activations to `x`, then `norm`.
    gate(gate_up, out, rows, width): (rows, width) SwiGLU of (rows, 2 * width).
    attend(states, turns, keys, values, mask, out, rows, heads, kv_heads, places, start, threads): rotary positions,
        the cache, and attention on that many threads. `states` are (rows, heads + 2 * kv_heads, size) queries, keys
        and values, pairs side by side; `turns` (rows, size / 2) complex64; `keys` and `values` (kv_heads, places, size)
        activations, written from `start` on; `mask` (rows, start + rows) float32 is added to the scores, and address 0
        is that of a chain, whose rows see what is before them; `out` (rows, heads, size).
    """

    norm: Callable[..., None]
    renorm: Callable[..., None]
    add_norm: Callable[..., None]
    gate: Callable[..., None]
    attend: Callable[..., None]


def kernels(dtype: torch.dtype, size: int) -> Kernels:
    """Those for activations of bfloat16 or float32 and heads of `size`; compiled where this machine has not yet."""
    low = _LOW[dtype]
    return Kernels(*_row_by_row(low, CODE), _attention(low, size))


#: 1 for bfloat16, 0 for float32: a constant in what is compiled.
_LOW = {torch.bfloat16: 1, torch.float32: 0}
_attention = cache(attention)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm of (..., width) bfloat16 or float32 on a CPU by (width,) float32 weights, in the type of `x`."""
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _, renorm, _, _ = _row_by_row(_LOW[x.dtype], CODE)
    width = x.shape[-1]
    renorm(x.data_ptr(), weight.data_ptr(), out.data_ptr(), x.numel() // width, width, eps)
    return out


@cache
def _row_by_row(low: int, code: int) -> tuple[Callable[..., None], ...]:
    # `low` and `code`, which is never negative, are constants in what is compiled.

    @entry(types.void(*[INT] * 5, FLOAT))
    def norm(x, weight, out, rows, width, eps):
        if code < 0:
            return
        shape = (rows, width)
        _norm(carray(float32s(x), shape), carray(float32s(weight), (width,)), numbers(out, shape, low), eps)

    @entry(types.void(*[INT] * 5, FLOAT))
    def renorm(x, weight, out, rows, width, eps):
        if code < 0:
            return
        shape = (rows, width)
        _norm(numbers(x, shape, low), carray(float32s(weight), (width,)), numbers(out, shape, low), eps)

    @entry(types.void(*[INT] * 6, FLOAT))
    def add_norm(x, more, weight, out, rows, width, eps):
        if code < 0:
            return
        shape = (rows, width)
        sums, added = carray(float32s(x), shape), numbers(more, shape, low)
        _add_norm(sums, added, carray(float32s(weight), (width,)), numbers(out, shape, low), eps)

    @entry(types.void(*[INT] * 4))
    def gate(gate_up, out, rows, width):
        if code < 0:
            return
        _gate(numbers(gate_up, (rows, 2 * width), low), numbers(out, (rows, width), low))

    return norm, renorm, add_norm, gate
