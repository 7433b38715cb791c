"""`LanguageModel`: a forward pass over a KV cache that rolls back exactly, for any full-attention causal LM.

The cache is allocated once per run and written in place, so a rollback is forgetting a number and the cost of a
pass does not grow by copying. Held by tests/unit/test_model.py: a cache rolled back and fed again gives the
logits of a cache that never went there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from specviz.errors import ModelError

#: Prompt tokens per prefill pass: bounds the memory of attention scores on long prompts.
PREFILL_ROWS = 512


class RollbackLayer(CacheLayerMixin):
    """Keys and values of one layer, (1, heads, capacity, head_dim), of which the first `length` count."""

    is_sliding = False
    is_croppable = True

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        def room(states: Tensor) -> Tensor:
            return states.new_empty((*states.shape[:2], self.capacity, states.shape[3]))

        self.keys, self.values = room(key_states), room(value_states)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.capacity

    def crop(self, tokens_to_remove: int) -> None:
        self.length -= abs(tokens_to_remove)

    def reset(self) -> None:
        self.length = 0


class LanguageModel:
    """One model with one cache: `forward` appends to it, `rollback` takes it back.

    Two of these may share the weights of one `PreTrainedModel`; each has its own cache.

    Args:
        model: any causal LM whose layers all attend to the whole past.
        name: what people call it.
        vocab_size: ids of the shared tokenizer; logits are cut to these (padded embeddings differ between models).

    Raises:
        ModelError: the model's head is narrower than `vocab_size`.
    """

    path = "transformers"

    def __init__(self, model: PreTrainedModel, name: str, vocab_size: int) -> None:
        config = model.config.get_text_config(decoder=True)
        if config.vocab_size < vocab_size:
            raise ModelError(
                f"{name} knows {config.vocab_size} tokens and its tokenizer {vocab_size}: "
                "choose a model whose embedding covers its tokenizer."
            )
        self.name = name
        self.vocab_size = vocab_size
        self.params = sum(weights.numel() for weights in model.parameters())
        self.max_positions: int = getattr(config, "max_position_embeddings", None) or 2**31
        self.device, self.dtype = model.device, model.dtype
        self._model = model
        self._layers = config.num_hidden_layers
        self._cache = Cache(layers=[RollbackLayer(0)])
        self._capacity = 0
        parameters = inspect.signature(model.forward).parameters
        # transformers renames the argument during its 5.x series.
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"
        self._keeps_rows = "logits_to_keep" in parameters

    @property
    def length(self) -> int:
        """How many tokens the cache holds."""
        return self._cache.layers[0].length

    def reset(self, capacity: int) -> None:
        """Forget everything and make room for `capacity` tokens; memory of an earlier run is used again if it does."""
        if capacity > self._capacity:
            self._cache = Cache(layers=[RollbackLayer(capacity) for _ in range(self._layers)])
            self._capacity = capacity
        self._cache.reset()

    def forward(self, ids: Sequence[int]) -> Tensor:
        """Feed `ids` behind the cache; (len(ids), vocab_size) logits in the model's own precision."""
        return self._pass(ids, len(ids))

    def prefill(self, ids: Sequence[int], cancelled: Callable[[], bool] = lambda: False) -> None:
        """Feed `ids` for the cache alone; `cancelled` is asked between passes and leaves the rest out."""
        for start in range(0, len(ids), PREFILL_ROWS):
            if cancelled():
                return
            self._pass(ids[start : start + PREFILL_ROWS], 1)

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        self._cache.crop(length - self.length)

    def _pass(self, ids: Sequence[int], rows: int) -> Tensor:
        extra = {self._cache_argument: self._cache, "use_cache": True}
        if self._keeps_rows:
            extra["logits_to_keep"] = rows
        output = self._model(input_ids=torch.tensor([ids], device=self.device), **extra)
        return output.logits[0, -rows:, : self.vocab_size]
