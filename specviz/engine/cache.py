"""Keys and values of many texts in one model: each `KVCache` is one text, rolled back exactly, as a chain or a tree.

Memory is allocated ahead and written in place, so a rollback is forgetting a number and the cost of a pass does not
grow by copying. Rows fed since the last rollback may form a tree: each sees the chain before it and its own
ancestors. Held by tests/unit/test_model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

if TYPE_CHECKING:
    from specviz.engine.model import LanguageModel

#: Parent of a row that hangs on the chain itself.
ROOT = -1


@dataclass(slots=True)
class Pass:
    """A forward pass asked for: `ids` behind what `cache` holds (a tensor where the device has not been read yet).

    `parents` None continues the chain; else it holds, for each id, the row it hangs on, counted from the end of the
    chain (ROOT for the chain itself), among the rows fed since and those of this pass.
    """

    cache: KVCache
    ids: Sequence[int] | Tensor
    parents: Sequence[int] | None = None


class KVCache:
    """One text in one model's memory, expected to need `capacity` rows.

    `length` counts the rows held, `base` those of the chain; the rows behind `base` are a tree, whose `links` are
    the parents of each.
    """

    def __init__(self, model: LanguageModel, slot: int, capacity: int = 0) -> None:
        self.model, self.slot, self.capacity = model, slot, capacity
        self.base = 0
        self.links: list[int] = []

    @property
    def length(self) -> int:
        return self.base + len(self.links)

    def forward(self, ids: Sequence[int] | Tensor, parents: Sequence[int] | None = None) -> Tensor:
        """Feed `ids`; (len(ids), vocabulary) logits. Arguments as for `Pass`."""
        return self.model.run([Pass(self, ids, parents)])[0]

    def prefill(self, ids: Sequence[int], cancelled: Callable[[], bool] = lambda: False) -> None:
        """Feed `ids` for the cache alone; `cancelled` is asked between passes and leaves the rest out."""
        self.model.prefill(self, ids, cancelled)

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` rows, which must be of the chain."""
        assert length <= self.base
        self.base = length
        self.links = []

    def keep(self, rows: Sequence[int]) -> None:
        """Of the tree keep `rows`, a path from its root, as part of the chain, and forget the others."""
        self.model.store.gather(self.slot, self.base, rows)
        self.base += len(rows)
        self.links = []

    def features(self, start: int, end: int) -> Tensor:
        """(end - start, tapped layers * hidden) hidden states of the chain's rows from `start` on, a view of memory.

        What `LanguageModel.tap` keeps; it must have been called.
        """
        held = self.model.store.features
        assert held is not None, "no layers are tapped"
        assert end <= self.base, "these rows were not read as a chain"
        return held[self.slot, start:end]

    def grown(self, rows: int, parents: Sequence[int] | None) -> None:
        """Called by the model behind a pass of `rows` rows."""
        if parents is None:
            self.base += rows
        else:
            self.links += parents

    def shallow(self, model: LanguageModel) -> KVCache:
        """The same text in a model that is made of the first layers of this one and shares their memory."""
        return KVCache(model, self.slot, self.capacity)


@dataclass(slots=True)
class Single:
    """One text, a chain or a tree: written as a slice."""

    slot: int
    start: int
    end: int


@dataclass(slots=True)
class Many:
    """Several texts: (texts,) slots and (texts, rows) places to write; `end` bounds what is attended."""

    slots: Tensor
    places: Tensor
    start: int
    end: int
    first: bool  # the slots are 0, 1, 2, ...


class Store:
    """The memory of a model: for each layer keys and values of (slots, heads, capacity + 1, head_dim), and (slots,
    capacity + 1, width) `features` where layers are tapped.

    The row behind `capacity` takes what padding writes.
    """

    def __init__(self, layers: int) -> None:
        self.plan: Single | Many = Single(0, 0, 0)
        self.slots = self.capacity = 0
        self.layers = [Layer(self) for _ in range(layers)]
        self.features: Tensor | None = None
        self._touched = 0

    def room(self, slots: int, capacity: int) -> None:
        """Make room for so many texts of `capacity` rows; what is held stays."""
        if slots > self.slots or capacity > self.capacity:
            # At least doubled, so that many texts opened one by one are not copied each time.
            before = self.slots, self.capacity
            self.slots = max(slots, 2 * self.slots) if slots > self.slots else self.slots
            self.capacity = max(capacity, self.capacity)
            try:
                self.grow()
            except BaseException:  # what is held is still of the old size
                self.slots, self.capacity = before
                raise
            if (old := self.features) is not None:
                self.features = self._no_features(old)
                self.features[: len(old), : old.shape[1] - 1] = old[:, :-1]

    def write_features(self, features: Tensor) -> None:
        """Keep the (texts, rows, width) features of the pass just planned."""
        if self.features is None:
            self.features = self._no_features(features)
        plan = self.plan
        if isinstance(plan, Single):
            self.features[plan.slot, plan.start : plan.end] = features[0]
        else:
            self.features[plan.slots[:, None], plan.places] = features

    def _no_features(self, like: Tensor) -> Tensor:
        return like.new_zeros((self.slots, self.capacity + 1, like.shape[-1]))

    def clean(self) -> None:
        """Zeros wherever anything was written: a masked row weighs 0, but 0 times a stale NaN is NaN."""
        self.wipe(self._touched)
        if self.features is not None:
            self.features[:, : self._touched].zero_()
        self._touched = 0

    def touch(self, end: int) -> None:
        self._touched = max(self._touched, end)

    def gather(self, slot: int, base: int, rows: Sequence[int]) -> None:
        """Move `rows`, counted from `base`, together behind `base`."""
        if list(rows) != list(range(len(rows))):
            self.move(slot, base, rows)
            if self.features is not None:
                where = torch.tensor(rows, device=self.features.device) + base
                self.features[slot, base : base + len(rows)] = self.features[slot, where]

    @property
    def bytes(self) -> int:
        """Of everything held: rows are paid for when they are made room for, not when they are written."""
        return sum(states.nbytes for states in (*self.states(), *([] if self.features is None else [self.features])))

    def states(self) -> list[Tensor]:
        """Keys and values of all layers."""
        return [states for layer in self.layers if layer.is_initialized for states in (layer.keys, layer.values)]

    def grow(self) -> None:
        """Bring the memory to `slots` and `capacity`."""
        for layer in self.layers:
            layer.grow()

    def wipe(self, end: int) -> None:
        """Zero the first `end` rows and the one for padding."""
        for layer in self.layers:
            if layer.is_initialized:
                for states in (layer.keys, layer.values):
                    states[:, :, :end].zero_()
                    states[:, :, self.capacity].zero_()

    def move(self, slot: int, base: int, rows: Sequence[int]) -> None:
        """As `gather`, for rows that have to move."""
        for layer in self.layers:
            if layer.is_initialized:
                where = torch.tensor(rows, device=layer.keys.device) + base
                for states in (layer.keys, layer.values):
                    states[slot, :, base : base + len(rows)] = states[slot, :, where]


class Layer(CacheLayerMixin):
    """One layer's part of a `Store`, as transformers wants it; where to write stands in the store's `plan`."""

    is_sliding = False
    is_croppable = False

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values = self._empty(key_states), self._empty(value_states)
        self.is_initialized = True

    def _empty(self, states: Tensor) -> Tensor:
        return states.new_zeros((self._store.slots, states.shape[1], self._store.capacity + 1, states.shape[3]))

    def grow(self) -> None:
        if self.is_initialized:
            old = self.keys, self.values
            self.lazy_initialization(*old)
            for new, states in zip((self.keys, self.values), old, strict=True):
                new[: len(states), :, : states.shape[2] - 1] = states[:, :, :-1]

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self._write(self.keys, key_states), self._write(self.values, value_states)

    def _write(self, held: Tensor, states: Tensor) -> Tensor:
        plan = self._store.plan
        if isinstance(plan, Single):
            held[plan.slot, :, plan.start : plan.end] = states[0]
            return held[plan.slot : plan.slot + 1, :, : plan.end]
        held[plan.slots[:, None], :, plan.places] = states.transpose(1, 2).to(held.dtype)
        return held[: len(plan.slots), :, : plan.end] if plan.first else held[plan.slots, :, : plan.end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._store.plan.end, 0

    def get_seq_length(self) -> int:
        return self._store.plan.start

    def get_max_length(self) -> int:
        return self._store.capacity
