"""Pieces that functions compiled by Numba are made of: numbers at addresses, bfloat16, e ** x, and PyTorch's threads.

Held by tests/unit/test_kernels.py.
"""

from __future__ import annotations

import ctypes
import math
import sys
import zlib
from functools import cache, partial
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic, overload

#: Sums may be taken in any order, and a product and a sum in one step; a NaN stays one.
FAST = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}, "error_model": "numpy"}
inner = njit(**FAST)
#: Copied into the caller, where the size of a head is a constant: loops over it become straight runs of instructions.
copied = njit(**FAST, inline="always")
INT, FLOAT = types.int64, types.float32
#: This code as a number. Numba looks compiled functions up by the code of their own module and the constants around
#: them, so those that use what stands here have it for a constant.
CODE = zlib.crc32(Path(__file__).read_bytes())
#: Scores this far below the greatest weigh nothing in float32.
_NOTHING = np.float32(-88)
_LOG2E = np.float32(1 / math.log(2))
#: Taylor coefficients of 2 ** x, from x ** 6 down; exact to float32 for |x| <= 1/2.
_POWER = tuple(np.float32(math.log(2) ** i / math.factorial(i)) for i in range(6, -1, -1))


#: For Python to call; other threads go on meanwhile.
called = partial(njit, nogil=True)


def entry(signature, make=called):
    """Compile what is called from outside; it is found again on disk by its code and the constants around it."""

    def compiled(function):
        try:
            return make(signature, **FAST, cache=True)(function)
        except (RuntimeError, OSError, EOFError):  # nowhere to write, or nothing to read: every process compiles
            return make(signature, **FAST)(function)

    return compiled


def _address(kind: types.Type):
    """A function from an address to a pointer."""

    @intrinsic
    def pointer(context, address):
        def build(context, builder, signature, values):
            return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), build

    return pointer


def _reread(given: types.Type, wanted: types.Type, form: ir.Type):
    """A function that takes the bits of a number for another."""

    @intrinsic
    def reread(context, value):
        def build(context, builder, signature, values):
            return builder.bitcast(values[0], form)

        return wanted(given), build

    return reread


float32s, uint16s = _address(types.float32), _address(types.uint16)
float_of = _reread(types.uint32, types.float32, ir.FloatType())
bits_of = _reread(types.float32, types.uint32, ir.IntType(32))


def numbers(address, shape, low):
    """The activations at an address: bfloat16 where `low`, else float32."""


@overload(numbers, prefer_literal=True)
def _numbers_of(address, shape, low):
    if low.literal_value:
        return lambda address, shape, low: carray(uint16s(address), shape)
    return lambda address, shape, low: carray(float32s(address), shape)


def wide(value):
    """float32 of an activation; bfloat16 comes as its 16 bits, the upper half of a float32."""


def narrow(value, array):
    """An activation of the array's kind, rounded to the nearest even."""


@overload(wide)
def _wide_of(value):
    if value == types.uint16:
        return lambda value: float_of(np.uint32(value) << np.uint32(16))
    return lambda value: value


@overload(narrow)
def _narrow_of(value, array):
    if array.dtype != types.uint16:
        return lambda value, array: value

    def narrow(value, array):
        bits = bits_of(value)
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        rounded = np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))
        # Adding would carry a NaN over into a number.
        return rounded if value == value else np.uint16(0x7FC0)

    return narrow


@inner
def exp(x):
    """e ** x for x <= 0, and exactly 0 from -88 down."""
    power = max(x, _NOTHING) * _LOG2E
    whole = math.floor(power + np.float32(0.5))
    part = power - np.float32(whole)
    value = _POWER[0]
    for i in range(1, 7):
        value = value * part + _POWER[i]
    value *= float_of(np.uint32(np.int32(whole) + np.int32(127)) << np.uint32(23))
    return value if x == x else x


@inner
def alive(*arrays):
    """Numba frees an array behind its last use, and does not know of those by address."""


@intrinsic
def on_all_threads(context, run, function, numbers, threads):
    """GOMP_parallel(function, numbers, threads, 0) at address `run`: the function on that many threads."""

    def build(context, builder, signature, values):
        integer, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, integer, integer])
        call = builder.inttoptr(values[0], kind.as_pointer())
        one, two = (builder.inttoptr(value, pointer) for value in values[1:3])
        builder.call(call, [one, two, builder.trunc(values[3], integer), integer(0)])
        return context.get_dummy_value()

    return types.void(INT, INT, INT, INT), build


@intrinsic
def call(context, function, numbers):
    """function(numbers), both addresses."""

    def build(context, builder, signature, values):
        pointer = ir.IntType(8).as_pointer()
        call = builder.inttoptr(values[0], ir.FunctionType(ir.VoidType(), [pointer]).as_pointer())
        builder.call(call, [builder.inttoptr(values[1], pointer)])
        return context.get_dummy_value()

    return types.void(INT, INT), build


@intrinsic
def count(context, address):
    """The int that the function at an address gives."""

    def build(context, builder, signature, values):
        integer = ir.IntType(32)
        call = builder.inttoptr(values[0], ir.FunctionType(integer, []).as_pointer())
        return builder.sext(builder.call(call, []), ir.IntType(64))

    return types.int64(INT), build


@cache
def threading() -> tuple[int, int, int]:
    """Addresses of GOMP_parallel, omp_get_thread_num and omp_get_num_threads in the library whose threads run PyTorch's
    products, and wait for more: starting others would take longer than the work. Zeros where PyTorch has another."""
    here = ctypes.CDLL(None) if sys.platform == "linux" else object()
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    if not all(hasattr(here, name) for name in names):
        return 0, 0, 0
    return tuple(ctypes.cast(getattr(here, name), ctypes.c_void_p).value for name in names)
