"""A language model that is a table: logits depend on the last two ids only, so its exact law can be worked out.

It stands behind the same surface as `specviz.engine.model.LanguageModel`, trees and early exit included, and is quick
enough for tens of thousands of runs of the real loop. Held by tests/unit/test_table.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specviz.drafters import EagleModel, FeedForwardModel, Head, MedusaModel
from specviz.drafters.shapes import EagleShape, FeedForwardShape, MedusaShape, Shape
from specviz.engine.cache import ROOT, Pass
from specviz.engine.engine import Engine

if TYPE_CHECKING:
    from specviz.engine.model import LanguageModel


#: Width of the made-up hidden states.
HIDDEN = 8


class TableCache:
    """As `specviz.engine.cache.KVCache`: the ids of a chain, and a tree of rows behind it."""

    def __init__(self, model: TableModel) -> None:
        self.model = model
        self.ids: list[int] = []
        self.links: list[int] = []
        self.base = 0

    @property
    def length(self) -> int:
        return len(self.ids)

    def forward(self, ids: Sequence[int], parents: Sequence[int] | None = None) -> Tensor:
        return self.model.run([Pass(self, ids, parents)])[0]

    def prefill(self, ids: Sequence[int], cancelled: Callable[[], bool] = lambda: False) -> None:
        self.ids += ids
        self.base = len(self.ids)

    def rollback(self, length: int) -> None:
        del self.ids[length:]
        self.base, self.links = length, []

    def keep(self, rows: Sequence[int]) -> None:
        self.ids[self.base :] = [self.ids[self.base + row] for row in rows]
        self.base, self.links = len(self.ids), []

    def features(self, start: int, end: int) -> Tensor:
        """As `KVCache.features`: a row's are fixed numbers of its own and the id before, as its logits are."""
        before = [0, *self.ids]
        return torch.stack([self.model.states[before[row], self.ids[row]] for row in range(start, end)])

    def shallow(self, model: TableModel) -> TableCache:
        view = TableCache(model)
        view.ids = list(self.ids[: self.base])
        view.base = self.base
        return view

    def feed(self, ids: Sequence[int], parents: Sequence[int] | None) -> list[tuple[int, int]]:
        """Append ids; (id before on its own path, id) of each."""
        pairs = []
        for i, token in enumerate(ids):
            if parents is None:
                before = self.ids[-1] if self.ids else 0
                self.base += 1
            else:
                row = self.base + parents[i] if parents[i] != ROOT else self.base - 1
                before = self.ids[row] if row >= 0 else 0
                self.links.append(parents[i])
            self.ids.append(token)
            pairs.append((before, token))
        return pairs


class TableModel:
    """Logits from a (vocabulary,) * 3 table; `exit_logits` is the table of its early exit (default: half its own)."""

    path, warning = "table", None
    device = torch.device("cpu")
    max_positions = 4096
    layers = 2

    def __init__(self, logits: Tensor, name: str = "table", exit_logits: Tensor | None = None) -> None:
        self.logits, self.name, self.dtype = logits, name, logits.dtype
        self.precision = str(logits.dtype).removeprefix("torch.")
        self.vocab_size, self.params = logits.shape[-1], logits.numel()
        numbers = torch.Generator().manual_seed(self.vocab_size)
        size = (2 * self.vocab_size + self.vocab_size**2, HIDDEN)
        rows = torch.randn(size, generator=numbers, dtype=torch.float64).to(self.dtype)
        # What a head is given: an embedding, rows of an output head, and hidden states behind two ids.
        self.embedding, self._head, states = rows.split([self.vocab_size, self.vocab_size, self.vocab_size**2])
        self.states = states.view(self.vocab_size, self.vocab_size, HIDDEN)
        self._exit_logits = logits / 2 if exit_logits is None else exit_logits

    @classmethod
    def random(
        cls, vocabulary: int, seed: int, spread: float = 1.0, dtype: torch.dtype = torch.float32, name: str = "table"
    ) -> TableModel:
        """Normal logits of standard deviation `spread`; those of the early exit are drawn apart."""
        generator = torch.Generator().manual_seed(seed)
        shape = (2, vocabulary, vocabulary, vocabulary)
        own, early = spread * torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        return cls(own, name, early)

    def clear(self, capacity: int, texts: int = 1) -> None:
        pass

    def open(self, capacity: int) -> TableCache:
        return TableCache(self)

    def exit(self, layers: int) -> TableModel:
        return TableModel(self._exit_logits, f"early exit of {self.name}")

    def tap(self, layers: tuple[int, ...]) -> None:
        pass

    def refuses_taps(self) -> None:
        return None

    def head_rows(self, ids: Tensor) -> Tensor:
        return self._head[ids]

    def refuses_exit(self) -> None:
        return None

    def refuses_trees(self) -> None:
        return None

    def run(self, passes: Sequence[Pass]) -> list[Tensor]:
        pairs = [one.cache.feed(one.ids, one.parents) for one in passes]
        where = torch.tensor([pair for found in pairs for pair in found])
        return list(self.logits[where[:, 0], where[:, 1]].split([len(found) for found in pairs]))


class LetterTokenizer:
    """Ids are letters; enough of a tokenizer for an engine that is given ids."""

    eos_token_id = None
    chat_template = None
    added_tokens_decoder: Mapping[int, Any] = {}

    def decode(self, ids: Sequence[int], **_) -> str:
        return "".join(chr(97 + i % 26) for i in ids)


def table_engine(target: TableModel, draft: TableModel | None = None) -> Engine:
    """An engine on tables; prompts are lists of ids."""
    return Engine(target, LetterTokenizer(), draft, heads=random_heads(target, HIDDEN, (2,)))


def random_heads(
    target: LanguageModel | TableModel, hidden: int, taps: tuple[int, ...], seed: int = 0
) -> dict[str, Head]:
    """Heads of random weights, which cannot draft the target's last token: enough to see what comes of any q."""
    makers = {
        "eagle": (EagleModel, EagleShape(hidden, 2, 1, hidden // 4, hidden, taps)),
        "medusa": (MedusaModel, MedusaShape(hidden, 3, taps)),
        "feedforward": (FeedForwardModel, FeedForwardShape(hidden, 3, hidden, taps)),
    }
    vocabulary = torch.arange(max(1, target.vocab_size - 1))
    return {
        kind: make(target, random_weights(shape, seed), shape, vocabulary, f"a random {kind} head")
        for kind, (make, shape) in makers.items()
    }


def random_weights(shape: Shape, seed: int = 0) -> dict[str, Tensor]:
    """Normal weights of a shape, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(size, generator=generator, dtype=torch.float64) / size[-1] ** 0.5
        for name, size in shape.sizes().items()
    }
