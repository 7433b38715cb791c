"""The weights the fast path computes with: fused, packed, and read by name from a model or straight from its files.

Held by tests/unit/test_fast.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specviz.engine.matrices import Blocked, Dense, Matrix, can_block, dense, dense_dtype, pack, refuses
from specviz.errors import ModelError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

#: Model types whose layers are those of Llama, biases of q, k and v aside.
FAMILIES = ("llama", "qwen2")
#: RoPE types whose angles do not depend on the length of the text.
ROPES = ("default", "linear", "llama3", "yarn")


@dataclass(slots=True)
class Block:
    """One layer's weights: norms in front of attention and MLP, and four matrices.

    The rows of `qkv` that make queries and keys stand as `paired` puts them.
    """

    norm: Tensor
    qkv: Matrix
    out: Matrix
    mlp_norm: Tensor
    gate_up: Matrix
    down: Matrix


@dataclass(slots=True)
class Weights:
    """A whole model: (vocabulary, hidden) embedding, blocks, final norm, head, and the number of parameters."""

    embedding: Tensor
    blocks: list[Block]
    norm: Tensor
    head: Dense | Blocked
    params: int

    @property
    def bytes(self) -> int:
        """Of all tensors; a head that is the embedding counts once."""
        matrices = [matrix for block in self.blocks for matrix in (block.qkv, block.out, block.gate_up, block.down)]
        norms = [self.norm, *(norm for block in self.blocks for norm in (block.norm, block.mlp_norm))]
        if not (isinstance(self.head, Dense) and self.head.weight is self.embedding):
            matrices.append(self.head)
        return self.embedding.nbytes + sum(norm.nbytes for norm in norms) + sum(matrix.bytes for matrix in matrices)


def rope_of(config: PretrainedConfig) -> str:
    """The type of a model's rotary positions."""
    return (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")


def refuses_fast(config: PretrainedConfig, precision: str, device: str = "cpu") -> str | None:
    """Why a model cannot take the fast path in a precision on a type of device; None when it can."""
    if precision == "float16" and device == "cpu":
        return "float16 runs through transformers."
    if config.model_type not in FAMILIES:
        return f"{config.model_type} models run through transformers."
    if device not in ("cpu", "cuda"):
        return f"On {device} models run through transformers."
    if (rope := rope_of(config)) not in ROPES:
        return f"RoPE of type {rope} runs through transformers."
    if config.hidden_act != "silu" or getattr(config, "mlp_bias", False):
        return "Its MLP is not Llama's and runs through transformers."
    if getattr(config, "use_sliding_window", False):
        return "Sliding windows run through transformers."
    return refuses(precision, [shape for name, shape in expected(config).items() if name.endswith("_proj.weight")])


def expected(config: PretrainedConfig) -> dict[str, tuple[int, ...]]:
    """Name and size of every tensor that `fuse` must find; biases of q, k and v may be there too."""
    hidden, heads, kv_heads = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
    size, inner = getattr(config, "head_dim", None) or hidden // heads, config.intermediate_size
    whole = {"model.embed_tokens.weight": (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
    if not config.tie_word_embeddings:
        whole["lm_head.weight"] = (config.vocab_size, hidden)
    block = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (heads * size, hidden),
        "self_attn.k_proj": (kv_heads * size, hidden),
        "self_attn.v_proj": (kv_heads * size, hidden),
        "self_attn.o_proj": (hidden, heads * size),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    numbers = range(config.num_hidden_layers)
    return whole | {f"model.layers.{i}.{name}.weight": shape for i in numbers for name, shape in block.items()}


def read_weights(model: PreTrainedModel, precision: str) -> Weights:
    """The weights of a transformers model; errors as for `fuse`."""
    return fuse(model.state_dict(), model.config, precision, model.device.type)


def fuse(tensors: Mapping[str, Tensor], config: PretrainedConfig, precision: str, device: str = "cpu") -> Weights:
    """Weights fused and packed.

    Args:
        tensors: by the names of transformers' Llama; read one after the other, each once.
        device: where they are to be.

    Raises:
        ModelError: the fast path cannot run it (`refuses_fast` says why).
        KeyError: a tensor is missing.
    """
    if reason := refuses_fast(config, precision, device.partition(":")[0]):
        raise ModelError(reason)
    read, count = _Reading(tensors, device), config.num_hidden_layers
    heads = (config.num_attention_heads, config.num_key_value_heads)
    blocks = [_block(read, f"model.layers.{number}.", precision, heads) for number in range(count)]
    whole = read.one("model.embed_tokens.weight")
    embedding, norm = whole.to(dense_dtype(precision), copy=True), read.norm("model.norm.weight")
    tied = config.tie_word_embeddings or "lm_head.weight" not in tensors
    # The head decides between near-equal tokens, so it is not packed; its type is that of the activations.
    dtype = embedding.dtype
    if tied and not can_block(dtype, embedding.device):
        head: Dense | Blocked = Dense(embedding)
    else:
        head = dense(whole if tied else read.one("lm_head.weight"), dtype)
    return Weights(embedding, blocks, norm, head, read.params)


def paired(rows: Tensor, heads: int) -> Tensor:
    """(heads * head_dim, ...) rows with the two halves of every rotary pair side by side, as one complex number.

    transformers keeps the halves of a head apart; scores are sums over pairs, in whichever order.
    """
    return rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def _block(read: _Reading, at: str, precision: str, heads: tuple[int, int]) -> Block:
    def matrix(*names: str) -> Matrix:
        return pack(precision, *zip(*(read.linear(at + name) for name in names), strict=True))

    def in_pairs(name: str, count: int) -> list[Tensor | None]:
        return [None if rows is None else paired(rows, count) for rows in read.linear(at + name)]

    query, key = in_pairs("self_attn.q_proj", heads[0]), in_pairs("self_attn.k_proj", heads[1])
    value = read.linear(f"{at}self_attn.v_proj")
    return Block(
        norm=read.norm(f"{at}input_layernorm.weight"),
        qkv=pack(precision, *zip(query, key, value, strict=True)),
        out=matrix("self_attn.o_proj"),
        mlp_norm=read.norm(f"{at}post_attention_layernorm.weight"),
        gate_up=matrix("mlp.gate_proj", "mlp.up_proj"),
        down=matrix("mlp.down_proj"),
    )


class _Reading:
    """Counts what is read."""

    def __init__(self, tensors: Mapping[str, Tensor], device: str) -> None:
        self._tensors, self._device, self.params = tensors, device, 0

    def one(self, name: str) -> Tensor:
        tensor = self._tensors[name].detach().to(self._device)
        self.params += tensor.numel()
        return tensor

    def norm(self, name: str) -> Tensor:
        # A copy: a tensor of a file keeps all of the file in memory.
        return self.one(name).to(torch.float32, copy=True)

    def linear(self, name: str) -> tuple[Tensor, Tensor | None]:
        """(out, in) weights and (out,) biases, where there are any."""
        bias = f"{name}.bias"
        return self.one(f"{name}.weight"), self.one(bias) if bias in self._tensors else None
