"""Attention of a few rows on a CPU, for `specviz.engine.kernels`: rotary positions, the cache, scores, softmax, mix.

The keys are shared out among PyTorch's threads; each makes a softmax of its own, and they become one at the end
(Dao 2023, Flash-Decoding). Held by tests/unit/test_kernels.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numba import carray, cfunc, types
from numba.extending import overload

from specviz.engine.compiled import (
    CODE,
    INT,
    alive,
    call,
    copied,
    count,
    entry,
    exp,
    float32s,
    inner,
    narrow,
    numbers,
    on_all_threads,
    threading,
    wide,
)  # fmt: skip

#: Keys that all queries of a group look at before the next ones: those stay in the processor's nearest memory.
KEYS = 64
#: What is added to a score to hide a key lies below.
HIDDEN = np.float32(-1e30)
#: The score of a key that is hidden, finite so that two of them can be subtracted.
LEAST = np.float32(-3e38)
#: What `share` reads from its list: addresses, then sizes.
LIST = 15
#: Multiplications from which on the keys are shared out: below, the other threads would hardly be there in time.
WORTH_SHARING = 50_000


def _near(rows, block):
    """(n, size) keys or values in float32; made once for all queries, in `block`, where they are bfloat16."""


@overload(_near)
def _near_of(rows, block):
    if rows.dtype != types.uint16:
        return lambda rows, block: rows

    def near(rows, block):
        for row in range(rows.shape[0]):
            for i in range(rows.shape[1]):
                block[row, i] = wide(rows[row, i])
        return block

    return near


@copied
def _turn(states, row, head, turns, scale, out, size):
    """Rotary position (Su et al. 2021, §3.2.2) of one head's state, whose pairs stand side by side."""
    for i in range(size // 2):
        a, b = wide(states[row, head, 2 * i]) * scale, wide(states[row, head, 2 * i + 1]) * scale
        cos, sin = turns[row, i, 0], turns[row, i, 1]
        out[2 * i] = a * cos - b * sin
        out[2 * i + 1] = a * sin + b * cos


@copied
def _scores(query, keys, first, last, out, size):
    # Four at a time: each number of the query is read once for all of them.
    whole = first + max(last - first, 0) // 4 * 4
    for at in range(first, whole, 4):
        a = b = c = d = np.float32(0)
        for i in range(size):
            a += query[i] * keys[at, i]
            b += query[i] * keys[at + 1, i]
            c += query[i] * keys[at + 2, i]
            d += query[i] * keys[at + 3, i]
        out[at], out[at + 1], out[at + 2], out[at + 3] = a, b, c, d
    for at in range(whole, last):
        a = np.float32(0)
        for i in range(size):
            a += query[i] * keys[at, i]
        out[at] = a


@copied
def _mix(weights, values, first, last, out, size):
    whole = first + max(last - first, 0) // 8 * 8
    for at in range(first, whole, 8):
        a, b, c, d = weights[at], weights[at + 1], weights[at + 2], weights[at + 3]
        e, f, g, h = weights[at + 4], weights[at + 5], weights[at + 6], weights[at + 7]
        for i in range(size):
            left = (a * values[at, i] + b * values[at + 1, i]) + (c * values[at + 2, i] + d * values[at + 3, i])
            right = (e * values[at + 4, i] + f * values[at + 5, i]) + (g * values[at + 6, i] + h * values[at + 7, i])
            out[i] += left + right
    for at in range(whole, last):
        for i in range(size):
            out[i] += weights[at] * values[at, i]


@inner
def _weights(scores):
    """Scores become weights relative to the greatest; (that, their sum)."""
    greatest = LEAST
    for i in range(len(scores)):
        greatest = max(greatest, scores[i])
    total = np.float32(0)
    for i in range(len(scores)):
        scores[i] = exp(scores[i] - greatest)
        total += scores[i]
    return greatest, total


@copied
def _enter(states, turns, keys, values, start, queries, size):
    """Rotary positions: keys and values go to their places, (kv_heads, rows * group, size) queries are scaled."""
    rows, kv_heads = states.shape[0], keys.shape[0]
    group = queries.shape[1] // rows
    heads, one, scale = kv_heads * group, np.float32(1), np.float32(1 / math.sqrt(size))
    turned = np.empty(size, np.float32)
    for head in range(kv_heads):
        for row in range(rows):
            _turn(states, row, heads + head, turns, one, turned, size)
            for i in range(size):
                keys[head, start + row, i] = narrow(turned[i], keys)
                values[head, start + row, i] = states[row, heads + kv_heads + head, i]
            for member in range(group):
                _turn(states, row, head * group + member, turns, scale, queries[head, row * group + member], size)


@copied
def _part(queries, keys, values, first, last, start, rows, mask, is_masked, greatest, total, mixed, size):
    """Attention (Vaswani et al. 2017, §3.2.1; grouped heads: Ainslie et al. 2023) to the keys from `first` to `last`
    alone: for each query the greatest score, the sum of the weights relative to it, and the mix of the values."""
    kv_heads, count = queries.shape[0], queries.shape[1]
    group = count // rows
    scores, block = np.empty((count, last - first), np.float32), np.empty((KEYS, size), np.float32)
    for head in range(kv_heads):
        for at in range(first, last, KEYS):
            here = min(KEYS, last - at)
            near = _near(keys[head, at : at + here], block)
            for query in range(count):
                end = here if is_masked else min(here, start + query // group + 1 - at)
                _scores(queries[head, query], near, 0, end, scores[query, at - first :], size)
        for query in range(count):
            end = last if is_masked else min(last, start + query // group + 1)
            if is_masked:
                for i in range(first, last):
                    added = mask[query // group, i]
                    scores[query, i - first] = LEAST if added < HIDDEN else scores[query, i - first] + added
            seen = max(end - first, 0)
            greatest[head, query], total[head, query] = _weights(scores[query, :seen])
            for i in range(size):
                mixed[head, query, i] = 0
        for at in range(first, last, KEYS):
            here = min(KEYS, last - at)
            near = _near(values[head, at : at + here], block)
            for query in range(count):
                end = here if is_masked else min(here, start + query // group + 1 - at)
                _mix(scores[query, at - first :], near, 0, end, mixed[head, query], size)


@copied
def _leave(greatest, total, mixed, out, size):
    """One softmax of the parts (parts, kv_heads, rows * group, ...), as (rows, heads, size)."""
    parts, kv_heads, count = total.shape
    _rows, heads = out.shape[0], out.shape[1]
    group = heads // kv_heads
    for head in range(kv_heads):
        for query in range(count):
            top = greatest[0, head, query]
            for part in range(1, parts):
                top = max(top, greatest[part, head, query])
            sum_ = np.float32(0)
            for part in range(parts):
                greatest[part, head, query] = exp(greatest[part, head, query] - top)
                sum_ += total[part, head, query] * greatest[part, head, query]
            for i in range(size):
                value = np.float32(0)
                for part in range(parts):
                    value += mixed[part, head, query, i] * greatest[part, head, query]
                out[query // group, head * group + query % group, i] = narrow(value / sum_, out)


def attention(low: int, size: int) -> Callable[..., None]:
    """The function of `Kernels.attend` for heads of `size`, in bfloat16 where `low`."""
    parallel, *counts = threading()
    shared = _share(low, size, CODE)
    function = partial(_attention(low, size, CODE), parallel, *counts, shared.address)
    function.shared = shared  # what only an address knows of would be thrown away
    return function


def _share(low: int, size: int, code: int):
    """The function that each thread runs."""

    @entry(types.void(types.voidptr), cfunc)
    def share(address):
        if code < 0:
            return
        given = carray(address, (LIST,), np.int64)
        parts, start, rows = given[7], given[8], given[9]
        heads, kv_heads, places = given[10], given[11], given[12]
        queries, end = rows * (heads // kv_heads), start + rows
        each, thread, threads = -(-end // parts), 0, 1
        if parts > 1:  # the team may be smaller than it was asked to be
            thread, threads = count(given[13]), count(given[14])
        for part in range(thread, parts, threads):
            _part(
                carray(float32s(given[0]), (kv_heads, queries, size)),
                numbers(given[1], (kv_heads, places, size), low),
                numbers(given[2], (kv_heads, places, size), low),
                min(part * each, end),
                min(part * each + each, end),
                start,
                rows,
                carray(float32s(given[3]), (rows, end)),
                given[3] != 0,
                carray(float32s(given[4]), (parts, kv_heads, queries))[part],
                carray(float32s(given[5]), (parts, kv_heads, queries))[part],
                carray(float32s(given[6]), (parts, kv_heads, queries, size))[part],
                size,
            )

    return share


def _attention(low: int, size: int, code: int):
    @entry(types.void(*[INT] * 16))
    def attend(
        parallel, number, team, share, states, turns, keys, values, mask, out, rows, heads, kv_heads, places, start,
        threads,
    ):  # fmt: skip
        if code < 0:  # it never is, and so it counts as one of the function's constants
            return
        parts, asked = 1, rows * (heads // kv_heads)
        if parallel and heads * rows * (start + rows) * size >= WORTH_SHARING:
            parts = threads
        queries = np.empty((kv_heads, asked, size), np.float32)
        _enter(
            numbers(states, (rows, heads + 2 * kv_heads, size), low),
            carray(float32s(turns), (rows, size // 2, 2)),
            numbers(keys, (kv_heads, places, size), low),
            numbers(values, (kv_heads, places, size), low),
            start,
            queries,
            size,
        )
        greatest = np.empty((parts, kv_heads, asked), np.float32)
        total = np.empty((parts, kv_heads, asked), np.float32)
        mixed = np.empty((parts, kv_heads, asked, size), np.float32)
        listed = np.empty(LIST, np.int64)
        listed[0], listed[1], listed[2], listed[3] = queries.ctypes.data, keys, values, mask
        listed[4], listed[5], listed[6] = greatest.ctypes.data, total.ctypes.data, mixed.ctypes.data
        listed[7], listed[8], listed[9], listed[10] = parts, start, rows, heads
        listed[11], listed[12], listed[13], listed[14] = kv_heads, places, number, team
        if parts > 1:
            on_all_threads(parallel, share, listed.ctypes.data, parts)
        else:
            call(share, listed.ctypes.data)
        _leave(greatest, total, mixed, numbers(out, (rows, heads, size), low), size)
        alive(queries, listed)

    return attend
