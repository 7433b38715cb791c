"""Weight matrices in the precisions of the fast path: float32, bfloat16, float16 (GPU), int8 and int4 (CPU).

int8 and int4 are of the weights only: activations are bfloat16 there. Held by tests/unit/test_fast.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

PRECISIONS = ("float32", "bfloat16", "int8", "int4")
#: Weights that share a scale and a zero point in int4, as in GGUF's Q4_1.
GROUP = 32
#: Rows that PyTorch's int4 kernel wants the output dimension to be a multiple of.
INT4_ROWS = 16

#: (rows, in) activations -> (rows, out).
Matrix = Callable[[Tensor], Tensor]


class Dense:
    """Weights (out, in) in float32, bfloat16 or float16, as PyTorch keeps them."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def rows(self, ids: Tensor | slice) -> Tensor:
        """(ids, in) some of the weights' rows."""
        return self.weight[ids]

    @property
    def bytes(self) -> int:
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)


class Blocked:
    """Weights (out, in) of a CPU in float32 or bfloat16, in the order in which oneDNN reads them.

    A pass of few rows reads every weight once and does little else: in order they come at twice the speed (measured for
    1 to 8 rows of bfloat16 and float32). `can_block` says where that can be had.
    """

    #: Rows that the order is chosen for; others run, too.
    ROWS = 4

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(weight, self.ROWS), bias
        self.bytes = weight.nbytes + (0 if bias is None else bias.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self.bias, "none", [], "")

    def rows(self, ids: Tensor | slice) -> Tensor:
        """(ids, in) some of the weights' rows."""
        return self._weight.to_dense()[ids]


def can_block(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether `Blocked` can be had."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


class Int8:
    """int8 weights (out, in) with one scale a row."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        weight = weight.float()
        scale = weight.abs().amax(1).clamp_(min=1e-12) / 127
        self.weight = (weight / scale[:, None]).round_().to(torch.int8).contiguous()
        self.scale, self.bias = scale.bfloat16(), None if bias is None else bias.bfloat16()

    def __call__(self, x: Tensor) -> Tensor:
        out = torch._weight_int8pack_mm(x, self.weight, self.scale)
        return out if self.bias is None else out + self.bias

    @property
    def bytes(self) -> int:
        return self.weight.nbytes + self.scale.nbytes


class Int4:
    """int4 weights: `number * scale + low` for each group of 32 along the input, numbers 0 to 15.

    Args:
        numbers: (out, in) integers.
        scale, low: (out, in / 32).
    """

    def __init__(self, numbers: Tensor, scale: Tensor, low: Tensor, bias: Tensor | None = None) -> None:
        self.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers.int(), 1)
        # The kernel computes (number - 8) * scale + zero.
        self.scales = torch.stack([scale, low + 8 * scale], -1).transpose(0, 1).contiguous().bfloat16()
        self.bias = None if bias is None else bias.bfloat16()

    @classmethod
    def quantised(cls, weight: Tensor, bias: Tensor | None = None) -> Int4:
        """From float weights (out, in), by the least and the greatest of each group."""
        groups = weight.float().view(weight.shape[0], -1, GROUP)
        low, high = groups.amin(-1), groups.amax(-1)
        scale = ((high - low) / 15).clamp_(min=1e-12)
        numbers = ((groups - low[..., None]) / scale[..., None]).round_().clamp_(0, 15)
        return cls(numbers.view_as(weight), scale, low, bias)

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.packed, GROUP, self.scales)
        return out if self.bias is None else out + self.bias

    @property
    def bytes(self) -> int:
        return self.packed.nbytes + self.scales.nbytes


def dense_dtype(precision: str) -> torch.dtype:
    """What activations are in, and weights that are not packed."""
    return {"float32": torch.float32, "float16": torch.float16}.get(precision, torch.bfloat16)


def pack(precision: str, weights: Sequence[Tensor], biases: Sequence[Tensor | None] = ()) -> Matrix:
    """Several (out, in) weights as one matrix, their outputs side by side."""
    weight = torch.cat([weight.detach() for weight in weights])
    given = [bias for bias in biases if bias is not None]
    bias = torch.cat([bias.detach() for bias in given]) if given else None
    if precision == "int8":
        return Int8(weight, bias)
    if precision == "int4":
        return Int4.quantised(weight, bias)
    return dense(weight, dense_dtype(precision), bias)


def dense(weight: Tensor, dtype: torch.dtype, bias: Tensor | None = None) -> Dense | Blocked:
    """(out, in) weights as numbers of a type, in the order that is read fastest on their device."""
    weight, bias = weight.to(dtype).contiguous(), None if bias is None else bias.to(dtype)
    return Blocked(weight, bias) if can_block(dtype, weight.device) else Dense(weight, bias)


def refuses(precision: str, shapes: Sequence[tuple[int, int]]) -> str | None:
    """Why matrices of these (out, in) shapes cannot be had in a precision; None when they can."""
    if precision == "int4" and any(wide % GROUP or rows % INT4_ROWS for rows, wide in shapes):
        return f"int4 needs matrices of {INT4_ROWS}s of rows and {GROUP}s of columns."
    return None
