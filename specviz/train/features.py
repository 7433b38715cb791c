"""What the target makes of the documents: hidden states and its likeliest next tokens, computed once and kept on disk.

The target's pass costs more than a draft's training step, so a second epoch, and every other kind of draft, reads what
the first one computed. What is on disk is used only for the documents marked done, and a document is marked after its
data is written. Held by tests/unit/test_train.py.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specviz.engine.model import layer_stack
from specviz.train.chats import Document

#: Next tokens kept for each position: the target's likeliest within the draft's vocabulary.
KEPT = 64
#: Positions whose logits are computed at a time.
ROWS = 128
_ONE_AT_A_TIME = threading.Lock()


@dataclass(slots=True)
class Batch:
    """Documents side by side, padded on the right: `ids` (B, L), `features` (B, L, sources * hidden) where they are
    wanted, `asked` and `answer` (B, L); `top` (B, L, KEPT) are places in the draft's vocabulary, `p` (B, L, KEPT) the
    target's probabilities there."""

    ids: Tensor
    features: Tensor | None
    asked: Tensor
    answer: Tensor
    top: Tensor
    p: Tensor

    @property
    def tokens(self) -> int:
        return int(self.asked.sum())

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        parts = {name: getattr(self, name) for name in self.__slots__}
        return Batch(**{name: None if part is None else part.to(device) for name, part in parts.items()})


class Reader:
    """Runs the target over documents.

    Args:
        model: the target; runs in its own precision, bf16 where the hardware has it.
        taps: number of layers behind which hidden states are taken, each 1 to the model's layers.
        vocabulary: (n,) sorted token ids of the draft.
        vocab_size: ids of the tokenizer, over which p is normalised; None normalises over the draft's vocabulary,
            which spares most of the target's head and is as good to learn from.
    """

    def __init__(
        self, model: PreTrainedModel, taps: Sequence[int], vocabulary: Tensor, vocab_size: int | None = None
    ) -> None:
        self.model, self.taps, self.vocabulary, self.vocab_size = model, tuple(taps), vocabulary, vocab_size
        self.hidden: int = model.config.get_text_config(decoder=True).hidden_size
        self.kept = min(KEPT, len(vocabulary))
        self._seen: dict[int, Tensor] = {}
        layers = layer_stack(model)
        self._hooks = [layers[tap - 1].register_forward_hook(self._keeper(tap)) for tap in self.taps]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _keeper(self, tap: int):
        def keep(module: nn.Module, given: tuple, output) -> None:
            self._seen[tap] = output[0] if isinstance(output, tuple) else output

        return keep

    @torch.inference_mode()
    def read(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(features, top, p) of (B, L) ids, as in `Batch`."""
        with _ONE_AT_A_TIME:  # the hooks do not know whose pass it is
            last = self.model.base_model(input_ids=ids.to(self.model.device), use_cache=False).last_hidden_state
            features = torch.cat([self._seen[tap] for tap in self.taps], -1)
        keep = self.vocabulary.to(last.device)
        head = self.model.get_output_embeddings().weight
        head = head[keep] if self.vocab_size is None else head[: self.vocab_size]
        tops, ps = [], []
        for rows in last.flatten(0, 1).split(ROWS):
            logits = nn.functional.linear(rows, head).float()
            mass = logits.logsumexp(-1, keepdim=True)
            best = (logits if self.vocab_size is None else logits[:, keep]).topk(self.kept)
            tops.append(best.indices)
            ps.append((best.values - mass).exp())
        shape = (*ids.shape, self.kept)
        return features, torch.cat(tops).view(shape), torch.cat(ps).view(shape)


class Features:
    """The documents' features and targets, read on demand and kept in `folder` (None: in memory).

    `hidden` says whether batches carry hidden states; the folder keeps them in any case, for other kinds of draft.
    """

    def __init__(self, reader: Reader, documents: Sequence[Document], folder: Path | None, hidden: bool = True) -> None:
        self.reader, self.documents, self._hidden = reader, documents, hidden
        lengths = [len(document.ids) for document in documents]
        self._offsets = np.cumsum([0, *lengths])
        total, width, kept = int(self._offsets[-1]), len(reader.taps) * reader.hidden, reader.kept
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._features = self._room(folder, "features", (total, width), torch.bfloat16)
        self._top = self._room(folder, "top", (total, kept), torch.int32)
        self._p = self._room(folder, "p", (total, kept), torch.float16)
        self._done = self._room(folder, "done", (len(documents),), torch.uint8)

    @staticmethod
    def _room(folder: Path | None, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if folder is None:
            return torch.zeros(shape, dtype=dtype)
        size = int(np.prod(shape))
        # A mapped file: pages that were read stay in memory as long as there is room.
        return torch.from_file(str(folder / f"{name}.bin"), shared=True, size=size, dtype=dtype).view(shape)

    @property
    def known(self) -> int:
        """Documents that the target has read."""
        return int(self._done.sum())

    def has(self, number: int) -> bool:
        """Whether the target has read this document."""
        return bool(self._done[number])

    def batch(self, numbers: Sequence[int]) -> Batch:
        """These documents side by side; the target reads those it has not."""
        longest = max(len(self.documents[number].ids) for number in numbers)
        ids = torch.zeros((len(numbers), longest), dtype=torch.long)
        asked, answer = torch.zeros_like(ids, dtype=torch.bool), torch.zeros_like(ids, dtype=torch.bool)
        for row, number in enumerate(numbers):
            document = self.documents[number]
            size = len(document.ids)
            ids[row, :size] = torch.from_numpy(np.asarray(document.ids, np.int64))
            asked[row, :size], answer[row, :size] = (
                torch.from_numpy(document.asked),
                torch.from_numpy(document.answer),
            )
        self._read([row for row, number in enumerate(numbers) if not self._done[number]], numbers, ids)
        parts = self._parts if self._hidden else self._parts[1:]
        held = [torch.zeros((len(numbers), longest, part.shape[1]), dtype=part.dtype) for part in parts]
        for row, number in enumerate(numbers):
            start, end = self._offsets[number], self._offsets[number + 1]
            for part, out in zip(parts, held, strict=True):
                out[row, : end - start] = part[start:end]
        features, top, p = held if self._hidden else (None, *held)
        return Batch(ids, features, asked, answer, top.long(), p.float())

    @property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._features, self._top, self._p

    def _read(self, rows: Sequence[int], numbers: Sequence[int], ids: Tensor) -> None:
        if not rows:
            return
        made = self.reader.read(ids[list(rows)])
        for i, row in enumerate(rows):
            start, end = self._offsets[numbers[row]], self._offsets[numbers[row] + 1]
            for part, values in zip(self._parts, made, strict=True):
                part[start:end] = values[i, : end - start].to("cpu", part.dtype)
            self._done[numbers[row]] = 1
