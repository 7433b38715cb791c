"""A model that is a table: logits depend on the last two ids only; quick enough for 30,000 runs of the real loop."""

from __future__ import annotations

import torch

from specviz.engine.engine import Engine


class TableModel:
    """Same surface as `specviz.engine.model.LanguageModel`, on a (vocabulary,) * 3 table of logits."""

    path = "table"
    device, dtype = torch.device("cpu"), torch.float32
    max_positions = 4096

    def __init__(self, logits: torch.Tensor, name: str = "table") -> None:
        self.logits, self.name, self.vocab_size, self.params = logits, name, logits.shape[-1], logits.numel()
        self._ids: list[int] = []

    @classmethod
    def random(cls, vocabulary: int, seed: int, spread: float = 1.0) -> TableModel:
        generator = torch.Generator().manual_seed(seed)
        return cls(spread * torch.randn(vocabulary, vocabulary, vocabulary, generator=generator))

    @property
    def length(self) -> int:
        return len(self._ids)

    def reset(self, capacity: int) -> None:
        self._ids = []

    def prefill(self, ids, cancelled=None) -> None:
        self._ids += ids

    def forward(self, ids) -> torch.Tensor:
        start = len(self._ids)
        self._ids += ids
        before = [self._ids[i - 1] if i else 0 for i in range(start, len(self._ids))]
        return self.logits[before, ids]

    def rollback(self, length: int) -> None:
        del self._ids[length:]


class LetterTokenizer:
    """Ids are letters; enough of a tokenizer for an engine that is given ids."""

    eos_token_id = None
    chat_template = None

    def decode(self, ids, **_):
        return "".join(chr(97 + i % 26) for i in ids)


def table_engine(target: TableModel, draft: TableModel | None = None) -> Engine:
    return Engine(target, LetterTokenizer(), draft)
