"""Reads a GGUF file's own 4-bit weights into the CPU fast path, without ever making floats of them.

Q4_1 is int4 in groups of 32 with a scale and a least value, which is what PyTorch's int4 kernel computes with; Q8_0
tensors (the embedding) are int8 with a scale for each 32. Held by tests/unit/test_quantised.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from specviz.engine.matrices import GROUP, Int4, dense
from specviz.engine.weights import Block, Weights
from specviz.errors import ModelError
from specviz.zoo import header

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def read_int4(file: Path, config: PretrainedConfig) -> Weights:
    """The weights of a Llama GGUF file whose matrices are Q4_1.

    Args:
        file: the GGUF file.
        config: the model's, as transformers reads it.

    Raises:
        ModelError: the file is damaged, or a matrix is missing or not Q4_1.
    """
    tensors = _Tensors(header.read_tensors(file), file.name)
    blocks = []
    for number in range(config.num_hidden_layers):
        name = f"blk.{number}."
        blocks.append(
            Block(
                norm=tensors.floats(f"{name}attn_norm.weight"),
                # The rows of queries and keys are in pairs there, as `Block` wants them.
                qkv=tensors.int4(f"{name}attn_q.weight", f"{name}attn_k.weight", f"{name}attn_v.weight"),
                out=tensors.int4(f"{name}attn_output.weight"),
                mlp_norm=tensors.floats(f"{name}ffn_norm.weight"),
                gate_up=tensors.int4(f"{name}ffn_gate.weight", f"{name}ffn_up.weight"),
                down=tensors.int4(f"{name}ffn_down.weight"),
            )
        )
    embedding = tensors.floats("token_embd.weight")
    head = tensors.floats("output.weight") if tensors.has("output.weight") else embedding
    norm = tensors.floats("output_norm.weight")
    return Weights(embedding.bfloat16(), blocks, norm, dense(head, torch.bfloat16), tensors.params())


class _Tensors:
    def __init__(self, tensors: Mapping[str, header.Tensor], file: str) -> None:
        self._tensors, self._file = tensors, file

    def has(self, name: str) -> bool:
        return name in self._tensors

    def params(self) -> int:
        return sum(math.prod(tensor.shape) for tensor in self._tensors.values())

    def floats(self, name: str) -> Tensor:
        """A norm or an embedding, in float32."""
        from gguf import dequantize

        tensor = self._find(name)
        return torch.from_numpy(np.array(dequantize(tensor.data, tensor.kind), np.float32))

    def int4(self, *names: str) -> Int4:
        """Matrices side by side."""
        read = [self._q4_1(name) for name in names]
        numbers, scale, low = (torch.cat(found) for found in zip(*read, strict=True))
        return Int4(numbers, scale, low)

    def _q4_1(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """((out, in) numbers, (out, in / 32) scales, and least values)."""
        tensor = self._find(name)
        if tensor.kind.name != "Q4_1":
            raise ModelError(
                f"{name} of {self._file} is {tensor.kind.name}, not Q4_1: choose precision int8 or bfloat16."
            )
        rows, wide = tensor.shape
        # A block of 32 weights is 2 bytes of scale, 2 of the least value, 16 of numbers: low nibbles first.
        blocks = torch.from_numpy(np.array(tensor.data)).view(rows, wide // GROUP, 20)
        scale, low = blocks[..., :4].contiguous().view(torch.float16).float().unbind(-1)
        nibbles = blocks[..., 4:]
        numbers = torch.cat([nibbles & 15, nibbles >> 4], -1).view(rows, wide)
        return numbers, scale, low

    def _find(self, name: str) -> header.Tensor:
        if name not in self._tensors:
            raise ModelError(f"{self._file} has no tensor {name}: it is not a Llama model.")
        return self._tensors[name]
