"""The fast path: Llama-like models with fused matrices, a cache written in place and attention for few rows.

The same surface as `specviz.engine.model.LanguageModel`; what it cannot run is refused by name, and the trace says
which path ran. Held by tests/unit/test_fast.py: float32 ids are those of transformers' own forward.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from specviz.engine.cache import Single, Store
from specviz.engine.matrices import dense_dtype
from specviz.engine.model import LanguageModel
from specviz.engine.weights import Weights, rope_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig

#: From so many rows on attention runs through PyTorch's own kernel, which never holds all scores at once.
MANY_ROWS = 48


class FastStore(Store):
    """Memory of the fast path: keys as (slots, heads, head_dim, capacity + 1), so that scores are one product."""

    def __init__(self, layers: int, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(0)
        self._shape, self._count = (heads, head_dim), layers
        self._options = {"dtype": dtype, "device": device}
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def states(self) -> list[Tensor]:
        return [*self.keys, *self.values]

    def grow(self) -> None:
        old_keys, old_values = self.keys, self.values
        heads, head_dim = self._shape
        rows = self.capacity + 1
        self.keys = [torch.zeros(self.slots, heads, head_dim, rows, **self._options) for _ in range(self._count)]
        self.values = [torch.zeros(self.slots, heads, rows, head_dim, **self._options) for _ in range(self._count)]
        for new, states in zip(self.keys, old_keys, strict=False):
            new[: len(states), :, :, : states.shape[3] - 1] = states[..., :-1]
        for new, states in zip(self.values, old_values, strict=False):
            new[: len(states), :, : states.shape[2] - 1] = states[:, :, :-1]

    def wipe(self, end: int) -> None:
        for keys, values in zip(self.keys, self.values, strict=True):
            keys[..., :end].zero_()
            values[:, :, :end].zero_()
            keys[..., -1].zero_()
            values[:, :, -1].zero_()

    def move(self, slot: int, base: int, rows: Sequence[int]) -> None:
        where = torch.tensor(rows, device=self._options["device"]) + base
        end = base + len(rows)
        for keys, values in zip(self.keys, self.values, strict=True):
            keys[slot, :, :, base:end] = keys[slot, :, :, where]
            values[slot, :, base:end] = values[slot, :, where]


class FastModel(LanguageModel):
    """A Llama-like model, on the device its weights are on.

    Args:
        weights: as `read_weights` or `specviz.zoo.quantised` make them.
        config: the model's.
        name: what people call it.
        vocab_size: ids of the shared tokenizer; logits are cut to these.
        precision: one of `specviz.engine.matrices.PRECISIONS`, what the weights are in.
    """

    path = "fast-cpu"

    @property
    def precision(self) -> str:
        return self._precision

    def __init__(self, weights: Weights, config: PretrainedConfig, name: str, vocab_size: int, precision: str) -> None:
        self.name, self.vocab_size, self.params = name, vocab_size, weights.params
        self._precision, self.device = precision, weights.embedding.device
        self.dtype = dense_dtype(precision)
        self.max_positions, self.layers = config.max_position_embeddings, config.num_hidden_layers
        self._weights, self._config = weights, config
        self._heads, self._kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._head_dim = getattr(config, "head_dim", None) or config.hidden_size // self._heads
        self._eps, self._hidden = config.rms_norm_eps, config.hidden_size
        self.store = FastStore(self.layers, self._kv_heads, self._head_dim, torch.float32, self.device)
        self._cos, self._sin = _rotary(config, 0, self.device)
        self._opened = 0
        self._exits: dict[int, LanguageModel] = {}
        self._trees: str | None = None
        self._tapped: tuple[int, ...] = ()

    def twin(self) -> FastModel:
        """The same weights with a memory of their own."""
        return type(self)(self._weights, self._config, self.name, self.vocab_size, self.precision)

    @property
    def weight_bytes(self) -> int:
        """As `LanguageModel.weight_bytes`."""
        return self._weights.bytes

    def tap(self, layers: tuple[int, ...]) -> None:
        """As `LanguageModel.tap`."""
        if layers != self._tapped:
            self._check_taps(layers)
            self._tapped, self.store.features = layers, None

    @property
    def tapped(self) -> tuple[int, ...]:
        """As `LanguageModel.tapped`."""
        return self._tapped

    def refuses_taps(self) -> None:
        return None

    @property
    def embedding(self) -> Tensor:
        """As `LanguageModel.embedding`."""
        return self._weights.embedding

    def head_rows(self, ids: Tensor) -> Tensor:
        """As `LanguageModel.head_rows`."""
        head = self._weights.head
        return (
            head.weight[ids].to(self.dtype)
            if head.weight.is_floating_point()
            else (head.weight[ids] * head.scale[ids, None]).to(self.dtype)
        )

    def exit(self, layers: int) -> FastModel:
        """As `LanguageModel.exit`."""
        self._check_exit(layers)
        if layers not in self._exits:
            exit_ = copy.copy(self)
            exit_._weights = dataclasses.replace(self._weights, blocks=self._weights.blocks[:layers])
            exit_.name = f"the first {layers} of the {self.layers} layers of {self.name}"
            exit_.params = self.params - (self.layers - layers) * self._block_params()
            exit_.layers, exit_._exits, exit_._tapped = layers, {}, ()
            self._exits[layers] = exit_
        return self._exits[layers]

    def _block_params(self) -> int:
        config, heads = self._config, self._heads + 2 * self._kv_heads
        attention = self._hidden * self._head_dim * (heads + self._heads)
        return attention + 3 * self._hidden * config.intermediate_size + 2 * self._hidden

    def _why_no_trees(self) -> None:
        return None

    def _forward(
        self, ids: Tensor, rows: int, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Tensor:
        """(texts, rows, vocabulary) logits of the last `rows` of (texts, rows in) ids."""
        plan, (texts, count) = self.store.plan, ids.shape
        if isinstance(plan, Single):
            positions: Tensor | slice = slice(plan.start, plan.end)
        else:
            positions = position_ids.view(-1)
        self._rotate_up_to(plan.end)  # no position lies behind the last row
        angles = self._cos[positions], self._sin[positions]
        mask = None if attention_mask is None else self._grouped(attention_mask.float())
        # The sum over layers is kept in float32: in bfloat16 it would round away what near-ties hang on.
        x = F.embedding(ids.view(-1), self._weights.embedding).float()
        caught = []
        for number, block in enumerate(self._weights.blocks, 1):
            normed = self._normed(x, block.norm)
            x = x + block.out(self._attend(number - 1, block.qkv(normed), angles, mask, texts, count))
            gate, up = block.gate_up(self._normed(x, block.mlp_norm)).chunk(2, -1)
            x = x + block.down(F.silu(gate) * up)
            if number in self._tapped:
                caught.append(x)
        if caught:
            self.store.write_features(torch.cat(caught, -1).view(texts, count, -1))
        if rows < count:
            x = x.view(texts, count, -1)[:, -rows:].reshape(texts * rows, -1)
        logits = self._weights.head(self._normed(x, self._weights.norm))
        return logits.view(texts, rows, -1)[..., : self.vocab_size]

    def _rotate_up_to(self, end: int) -> None:
        if end > len(self._cos):
            self._cos, self._sin = _rotary(self._config, max(end, 2 * len(self._cos)), self.device)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (self._hidden,), weight, self._eps).to(self.dtype)

    def _attend(
        self, number: int, qkv: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor | None, texts: int, count: int
    ) -> Tensor:
        """Attention of layer `number` for (texts * count, heads * head_dim) queries, keys and values side by side."""
        heads, kv_heads, size, plan = self._heads, self._kv_heads, self._head_dim, self.store.plan
        qkv = qkv.float().view(texts * count, heads + 2 * kv_heads, size)
        turned = qkv[:, : heads + kv_heads]
        turned = turned * angles[0] + turned.roll(size // 2, -1) * angles[1]
        keys, values = self._remember(number, turned[:, heads:], qkv[:, heads + kv_heads :], texts, count)
        group = heads // kv_heads
        queries = turned[:, :heads].view(texts, count, kv_heads, group, size).permute(0, 2, 3, 1, 4)
        if count >= MANY_ROWS:
            out = self._kernel(queries, keys, values, mask, count)
        else:
            scores = queries.reshape(texts * kv_heads, group * count, size).bmm(keys).mul_(size**-0.5)
            if mask is not None:
                scores += mask
            elif count > 1:
                scores.view(kv_heads, group, count, -1)[..., plan.start :] += _future(count, self.device)
            out = scores.softmax(-1).bmm(values).view(texts, kv_heads, group, count, size)
        return out.permute(0, 3, 1, 2, 4).reshape(texts * count, heads * size).to(self.dtype)

    def _remember(self, number: int, keys: Tensor, values: Tensor, texts: int, count: int) -> tuple[Tensor, Tensor]:
        """Write (texts * count, heads, size) keys and values; all of the texts', as (texts * heads, ...) matrices."""
        plan, held_keys, held_values = self.store.plan, self.store.keys[number], self.store.values[number]
        if isinstance(plan, Single):
            held_keys[plan.slot, :, :, plan.start : plan.end] = keys.permute(1, 2, 0)
            held_values[plan.slot, :, plan.start : plan.end] = values.transpose(0, 1)
            return held_keys[plan.slot, :, :, : plan.end], held_values[plan.slot, :, : plan.end]
        shape = (texts, count, self._kv_heads, self._head_dim)
        held_keys[plan.slots[:, None], :, :, plan.places] = keys.view(shape)
        held_values[plan.slots[:, None], :, plan.places] = values.view(shape)
        if plan.first:
            held_keys, held_values = held_keys[:texts], held_values[:texts]
        else:
            held_keys, held_values = held_keys[plan.slots], held_values[plan.slots]
        return held_keys.flatten(0, 1)[:, :, : plan.end], held_values.flatten(0, 1)[:, : plan.end]

    def _kernel(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, count: int) -> Tensor:
        texts, kv_heads, group = queries.shape[:3]
        many = queries.reshape(texts, kv_heads * group, count, self._head_dim)
        wide = [
            states.unflatten(0, (texts, kv_heads)).repeat_interleave(group, 1)
            for states in (keys.transpose(1, 2), values)
        ]
        if mask is None:
            plan = self.store.plan
            mask = torch.zeros(count, plan.end, device=self.device)
            mask[:, plan.start :] = _future(count, self.device)
        else:
            mask = mask.view(texts, kv_heads * group, count, -1)
        out = F.scaled_dot_product_attention(many, *wide, attn_mask=mask)
        return out.view(texts, kv_heads, group, count, self._head_dim)

    def _grouped(self, mask: Tensor) -> Tensor:
        """(texts, 1, rows, keys) as (texts * kv_heads, group * rows, keys)."""
        group = self._heads // self._kv_heads
        texts, _, rows, keys = mask.shape
        wide = mask[:, None].expand(texts, self._kv_heads, group, rows, keys)
        return wide.reshape(texts * self._kv_heads, group * rows, keys)


@cache
def _future(count: int, device: torch.device) -> Tensor:
    """(count, count) with -inf where a row would look ahead."""
    return torch.full((count, count), -torch.inf, device=device).triu_(1)


def _rotary(config: PretrainedConfig, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(length, 1, head_dim) cosines and sines; the sines of the first half carry the sign that turning it needs."""
    cos, sin = rotary_embedding(config, length)
    sin[:, : sin.shape[-1] // 2] *= -1
    return cos[:, None].contiguous().to(device), sin[:, None].contiguous().to(device)


def rotary_embedding(config: PretrainedConfig, length: int) -> tuple[Tensor, Tensor]:
    """(length, head_dim) cosines and sines (RoPE: Su et al. 2021, §3.2.2)."""
    if rope_of(config) == "default":
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        rate = config.rope_parameters["rope_theta"] ** -(torch.arange(0, size, 2, dtype=torch.float32) / size)
        angles = torch.outer(torch.arange(length, dtype=torch.float32), rate).repeat(1, 2)
        return angles.cos(), angles.sin()
    # transformers' own knows every way of scaling, and takes a second to import.
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, dtype=torch.float32), torch.arange(length)[None])
    return cos[0], sin[0].clone()
