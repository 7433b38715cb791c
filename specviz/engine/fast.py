"""The fast path: Llama-like models with fused matrices and a cache written in place; on a CPU few rows of one text go
through `specviz.engine.kernels`, everything else through PyTorch's operations.

The same surface as `specviz.engine.model.LanguageModel`; what it cannot run is refused by name, and the trace says
which path ran. Held by tests/unit/test_fast.py: float32 ids are those of transformers' own forward.
"""

from __future__ import annotations

import copy
import dataclasses
import math
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

#: From so many rows on a pass runs through PyTorch's operations, attention through its kernel, which never holds all
#: scores at once.
MANY_ROWS = 48


class FastStore(Store):
    """Memory of the fast path: for each layer keys and values as one (2, slots, heads, capacity + 1, head_dim), so that
    both are written by one copy."""

    def __init__(self, layers: int, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(0)
        self._shape, self._count = (heads, head_dim), layers
        self._options = {"dtype": dtype, "device": device}
        self.held: list[Tensor] = []
        #: For each layer and slot where its keys and its values begin.
        self.addresses: list[list[tuple[int, int]]] = []

    def states(self) -> list[Tensor]:
        return self.held

    def grow(self) -> None:
        old, (heads, head_dim) = self.held, self._shape
        shape = (2, self.slots, heads, self.capacity + 1, head_dim)
        self.held = [torch.zeros(shape, **self._options) for _ in range(self._count)]
        self.addresses = [
            [(states[0, slot].data_ptr(), states[1, slot].data_ptr()) for slot in range(self.slots)]
            for states in self.held
        ]
        for new, states in zip(self.held, old, strict=False):
            new[:, : states.shape[1], :, : states.shape[3] - 1] = states[:, :, :, :-1]

    def wipe(self, end: int) -> None:
        for states in self.held:
            states[:, :, :, :end].zero_()
            states[:, :, :, -1].zero_()

    def move(self, slot: int, base: int, rows: Sequence[int]) -> None:
        where = torch.tensor(rows, device=self._options["device"]) + base
        for states in self.held:
            states[:, slot, :, base : base + len(rows)] = states[:, slot, :, where]


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
        # x / |x| is x over its root mean square, but for this factor; a floor under |x| does what eps does.
        root = math.sqrt(config.hidden_size)
        self._norms = [(block.norm * root, block.mlp_norm * root) for block in weights.blocks]
        self._last_norm = weights.norm * root
        self._floor = torch.tensor(root * math.sqrt(config.rms_norm_eps), device=self.device)
        self._hidden = config.hidden_size
        self._turns = _turns(config, 0, self.device)
        self._kernels = None
        self._held: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        if self.path == "fast-cpu":
            from specviz.engine.kernels import kernels

            self._kernels = kernels(self.dtype, self._head_dim)
        remembered = torch.float32 if self._kernels is None else self.dtype
        self.store = FastStore(self.layers, self._kv_heads, self._head_dim, remembered, self.device)
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
        return self._weights.head.rows(ids).to(self.dtype)

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
        positions = slice(plan.start, plan.end) if position_ids is None else position_ids.view(-1)
        self._rotate_up_to(plan.end)  # no position lies behind the last row
        if self._kernels is not None and isinstance(plan, Single) and count < MANY_ROWS:
            return self._few(ids[0], rows, positions, attention_mask)
        angles = self._angles(positions)
        mask = self._mask(attention_mask, count)
        # The sum over layers is kept in float32: in bfloat16 it would round away what near-ties hang on.
        x = F.embedding(ids.view(-1), self._weights.embedding).float()
        caught = []
        for number, block in enumerate(self._weights.blocks, 1):
            norm, mlp_norm = self._norms[number - 1]
            x = x + block.out(self._attend(number - 1, block.qkv(self._normed(x, norm)), angles, mask, texts, count))
            gate, up = block.gate_up(self._normed(x, mlp_norm)).chunk(2, -1)
            x = x + block.down(F.silu(gate) * up)
            if number in self._tapped:
                caught.append(x)
        if caught:
            self.store.write_features(torch.cat(caught, -1).view(texts, count, -1))
        if rows < count:
            x = x.view(texts, count, -1)[:, -rows:].reshape(texts * rows, -1)
        logits = self._weights.head(self._normed(x, self._last_norm))
        return logits.view(texts, rows, -1)[..., : self.vocab_size]

    def _few(self, ids: Tensor, rows: int, positions: Tensor | slice, mask: Tensor | None) -> Tensor:
        """As `_forward` for one text on a CPU: between the products everything is done by `specviz.engine.kernels`."""
        plan, count, do, width = self.store.plan, len(ids), self._kernels, self._hidden
        x = F.embedding(ids, self._weights.embedding).float()
        turns = self._turns[positions]
        mask = None if mask is None else mask.float().contiguous()
        normed, mixed, gated = self._between(count)
        at, to, eps = x.data_ptr(), normed.data_ptr(), self._config.rms_norm_eps
        # Kept here, so that no other thread can throw away what the addresses are of.
        held, addresses = self.store.held, self.store.addresses
        places, before = held[0].shape[3], (0 if mask is None else mask.data_ptr())
        heads, kv_heads, threads = self._heads, self._kv_heads, torch.get_num_threads()
        blocks, caught = self._weights.blocks, []
        do.norm(at, blocks[0].norm.data_ptr(), to, count, width, eps)
        for number, block in enumerate(blocks, 1):
            keys, values = addresses[number - 1][plan.slot]
            states = block.qkv(normed)
            do.attend(
                states.data_ptr(), turns.data_ptr(), keys, values, before, mixed.data_ptr(), count, heads, kv_heads,
                places, plan.start, threads,
            )  # fmt: skip
            more = block.out(mixed)
            do.add_norm(at, more.data_ptr(), block.mlp_norm.data_ptr(), to, count, width, eps)
            both = block.gate_up(normed)
            do.gate(both.data_ptr(), gated.data_ptr(), count, gated.shape[1])
            more = block.down(gated)
            norm = blocks[number].norm if number < len(blocks) else self._weights.norm
            do.add_norm(at, more.data_ptr(), norm.data_ptr(), to, count, width, eps)
            if number in self._tapped:
                caught.append(x.clone())
        if caught:
            self.store.write_features(torch.cat(caught, -1)[None])
        return self._weights.head(normed[-rows:])[None, :, : self.vocab_size]

    def _between(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """(count, width) activations that go into the products: normed, mixed by attention, and behind the gate."""
        if count not in self._held:
            inner = self._config.intermediate_size
            widths = (self._hidden, self._heads * self._head_dim, inner)
            self._held[count] = tuple(torch.empty((count, width), dtype=self.dtype) for width in widths)
        return self._held[count]

    def _rotate_up_to(self, end: int) -> None:
        if end > len(self._turns):
            self._turns = _turns(self._config, max(end, 2 * len(self._turns)), self.device)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMS norm (Zhang & Sennrich 2019, §4), in half the time of PyTorch's on a CPU."""
        length = torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self._floor)
        return torch.mul(x / length, weight, out=torch.empty_like(x, dtype=self.dtype))

    def _angles(self, positions: Tensor | slice) -> Tensor:
        """(rows, heads + 2 * kv_heads, head_dim / 2) factors of queries, keys and values: the turn of each pair, the
        scale of the scores for queries, and 1 for values."""
        turns = self._turns[positions]
        queries = (turns * self._head_dim**-0.5).expand(-1, self._heads, -1)
        keys = turns.expand(-1, self._kv_heads, -1)
        return torch.cat([queries, keys, torch.ones_like(keys)], 1)

    def _attend(self, number: int, qkv: Tensor, angles: Tensor, mask: Tensor | None, texts: int, count: int) -> Tensor:
        """Attention of layer `number` for (texts * count, heads * head_dim) queries, keys and values side by side."""
        heads, kv_heads, size = self._heads, self._kv_heads, self._head_dim
        pairs = torch.view_as_complex(qkv.float().view(texts * count, heads + 2 * kv_heads, size // 2, 2))
        turned = torch.view_as_real(pairs * angles).flatten(-2)
        keys, values = self._remember(number, turned[:, heads:], texts, count)
        group = heads // kv_heads
        queries = turned[:, :heads].view(texts, count, kv_heads, group, size).permute(0, 2, 3, 1, 4)
        if count >= MANY_ROWS:
            out = self._kernel(queries, keys, values, mask, count)
        else:
            queries, keys = queries.reshape(texts * kv_heads, group * count, size), keys.transpose(1, 2)
            scores = queries.bmm(keys) if mask is None else torch.baddbmm(mask, queries, keys)
            out = scores.softmax(-1).bmm(values).view(texts, kv_heads, group, count, size)
        return out.permute(0, 3, 1, 2, 4).reshape(texts * count, heads * size).to(self.dtype)

    def _remember(self, number: int, states: Tensor, texts: int, count: int) -> tuple[Tensor, Tensor]:
        """Write (texts * count, 2 * heads, size) keys and values; (texts * heads, end, size) all of each."""
        plan, held = self.store.plan, self.store.held[number]
        states = states.view(-1, 2, self._kv_heads, self._head_dim)
        if isinstance(plan, Single):
            held[:, plan.slot, :, plan.start : plan.end] = states.permute(1, 2, 0, 3)
            keys, values = held[:, plan.slot, :, : plan.end].float().unbind()
            return keys, values
        held[:, plan.slots[:, None], :, plan.places] = states.unflatten(0, (texts, count)).to(held.dtype)
        read = held[:, :texts] if plan.first else held[:, plan.slots]
        keys, values = read.flatten(1, 2)[:, :, : plan.end].float().unbind()
        return keys, values

    def _kernel(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, count: int) -> Tensor:
        texts, kv_heads, group = queries.shape[:3]
        many = queries.reshape(texts, kv_heads * group, count, self._head_dim)
        wide = [states.unflatten(0, (texts, kv_heads)).repeat_interleave(group, 1) for states in (keys, values)]
        # That of a chain alone is the same for all heads.
        mask = mask[0] if mask.shape[:2] == (1, count) else mask.view(texts, kv_heads * group, count, -1)
        out = F.scaled_dot_product_attention(many, *wide, attn_mask=mask, scale=1.0)
        return out.view(texts, kv_heads, group, count, self._head_dim)

    def _mask(self, given: Tensor | None, count: int) -> Tensor | None:
        """What is added to the scores: (texts * kv_heads or 1, group * rows, keys), of `_kernel` (1, rows, keys) where
        a chain is read; None where every row sees all.

        Args:
            given: (texts, 1, rows, keys) of several texts or of a tree; None for a chain alone.
        """
        group = self._heads // self._kv_heads
        if given is not None:
            texts, _, rows, keys = given.shape
            wide = given.float()[:, None].expand(texts, self._kv_heads, group, rows, keys)
            return wide.reshape(texts * self._kv_heads, group * rows, keys)
        if count == 1:
            return None
        plan = self.store.plan
        mask = torch.zeros(count, plan.end, device=self.device)
        mask[:, plan.start :] = _future(count, self.device)
        return mask[None] if count >= MANY_ROWS else mask.repeat(group, 1)[None]


@cache
def _future(count: int, device: torch.device) -> Tensor:
    """(count, count) with -inf where a row would look ahead."""
    return torch.full((count, count), -torch.inf, device=device).triu_(1)


def _turns(config: PretrainedConfig, length: int, device: torch.device) -> Tensor:
    """(length, 1, head_dim / 2) complex numbers that turn a pair, as `Weights` keeps pairs: side by side."""
    cos, sin = (part[:, None, : part.shape[-1] // 2].contiguous() for part in rotary_embedding(config, length))
    return torch.complex(cos, sin).to(device)


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
