"""Chats to train on: token ids of whole conversations, and which of their tokens the target is asked about.

Held by tests/unit/test_train.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from specviz.errors import SettingsError

#: How many chats follow one another in one document; the draws are uniform. Long documents teach long contexts.
TURNS = (1, 1, 1, 2, 3)
#: Chats kept out of training to measure on.
HELD_OUT = 100
#: Longest document in tokens.
LONGEST = 768


@dataclass(slots=True)
class Chats:
    """Chat i is `ids[i]`, template included; its answer begins at `answer_start[i]`. `tried` counts the attempts that
    they came of, kept or not; `made` says how they are made, where that is known: others do not go into the file."""

    ids: list[np.ndarray]
    answer_start: list[int]
    tried: int = 0
    made: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """Answer tokens in all."""
        return sum(len(chat) - start for chat, start in zip(self.ids, self.answer_start, strict=True))

    def __getitem__(self, part: slice) -> Chats:
        return Chats(self.ids[part], self.answer_start[part])

    @classmethod
    def joined(cls, files: Sequence[Chats]) -> Chats:
        """Those of several files in a row."""
        ids = [chat for file in files for chat in file.ids]
        return cls(ids, [start for file in files for start in file.answer_start], sum(file.tried for file in files))

    def parted(self) -> tuple[Chats, Chats]:
        """(those to train on, those to measure on): the last `HELD_OUT`, or a tenth where there are few."""
        kept_out = min(HELD_OUT, len(self) // 10)
        return self[: len(self) - kept_out], self[len(self) - kept_out :]

    def save(self, path: Path) -> None:
        """Write as .npz: `ids` (uint32, concatenated), `offsets`, `answer_start`, `tried`, `made`."""
        offsets = np.cumsum([0, *(len(chat) for chat in self.ids)])
        ids = np.concatenate(self.ids) if self.ids else np.zeros(0)
        temporary = path.with_suffix(".part.npz")
        np.savez_compressed(
            temporary,
            ids=ids.astype(np.uint32),
            offsets=offsets,
            answer_start=np.array(self.answer_start, np.int64),
            tried=self.tried,
            made=self.made,
        )
        temporary.replace(path)

    @classmethod
    def load(cls, path: str | Path, vocab_size: int | None = None) -> Chats:
        """Read what `save` wrote.

        Raises:
            SettingsError: no such file, another format, or ids beyond `vocab_size`.
        """
        try:
            with np.load(path) as data:
                ids, offsets, starts = (data[name].astype(np.int64) for name in ("ids", "offsets", "answer_start"))
                tried = int(data["tried"]) if "tried" in data else len(starts)
                made = str(data["made"]) if "made" in data else ""
        except (OSError, KeyError, ValueError) as error:
            raise SettingsError(f"{path} holds no chats: make it with `python -m specviz train synthesise`.") from error
        if vocab_size is not None and len(ids) and ids.max() >= vocab_size:
            raise SettingsError(f"{path} holds token id {ids.max()}: these chats were written by another model.")
        return cls([ids[a:b] for a, b in pairwise(offsets)], starts.tolist(), tried, made)


@dataclass(slots=True)
class Document:
    """One or several chats in a row. `asked` is true at positions whose next token is a chat's own (not the template's
    opening), `answer` where it is the target's answer."""

    ids: np.ndarray
    asked: np.ndarray
    answer: np.ndarray


def documents(chats: Chats, eos: Sequence[int], seed: int | None) -> list[Document]:
    """Chats as documents: with a seed some of them follow one another (`TURNS`), without each stands alone.

    What opens every chat is the template; the part of it behind its last end-of-turn id opens a later turn too.
    """
    prefix = _common_prefix(chats.ids)
    ends = [i for i, token in enumerate(prefix) if token in eos]
    joiner = prefix[ends[-1] + 1 :] if ends else None
    order, sizes = list(range(len(chats))), [1] * len(chats)
    if seed is not None and joiner is not None:
        random = np.random.default_rng(seed)
        order = random.permutation(len(chats)).tolist()
        sizes = random.choice(TURNS, len(chats)).tolist()
    made: list[Document] = []
    while order:
        parts, asked, answer = [], [], []
        for _ in range(sizes[len(made)]):
            if not order or (parts and sum(map(len, parts)) + len(chats.ids[order[-1]]) > LONGEST):
                break
            i = order.pop()
            body, start = chats.ids[i], chats.answer_start[i]
            skipped = len(prefix)
            if parts:
                lead = joiner if parts[-1][-1] in eos else [eos[0], *joiner]
                body, start = np.concatenate([lead, body[len(prefix) :]]), start - len(prefix) + len(lead)
                skipped = len(lead)
            place = np.arange(len(body))
            parts.append(body)
            asked.append(place >= skipped)
            answer.append(place >= start)
        ids = np.concatenate(parts)
        # A position is asked about when the token behind it counts.
        made.append(Document(ids, _shifted(asked), _shifted(answer)))
    return made


def _shifted(parts: list[np.ndarray]) -> np.ndarray:
    return np.append(np.concatenate(parts)[1:], False)


def _common_prefix(chats: Sequence[np.ndarray]) -> list[int]:
    if not chats:
        return []
    shortest = min(map(len, chats))
    table = np.stack([chat[:shortest] for chat in chats])
    same = (table == table[0]).all(0)
    size = shortest if same.all() else int(same.argmin())
    return table[0][: min(size, shortest - 1)].tolist()


def frequent(chats: Chats, count: int, vocab_size: int, eos: Sequence[int]) -> Tensor:
    """The `count` most frequent token ids, sorted; those that end a turn are always among them (FR-Spec: Zhao et al.
    2025, §3)."""
    counts = Counter(token for chat in chats.ids for token in chat.tolist())
    ranked = [*eos, *(token for token, _ in counts.most_common() if token not in eos)]
    ranked += [token for token in range(vocab_size) if token not in counts and token not in eos]
    return torch.tensor(sorted(ranked[:count]))


def batches(lengths: Sequence[int], tokens: int, random: np.random.Generator | None) -> list[list[int]]:
    """Document numbers in batches of about `tokens` tokens, lengths alike within a batch, in random order."""
    noise = random.uniform(0.9, 1.1, len(lengths)) if random is not None else np.ones(len(lengths))
    order = np.argsort(np.array(lengths) * noise, kind="stable").tolist()
    made, batch, longest = [], [], 0
    for number in order:
        longest = max(longest, lengths[number])
        if batch and longest * (len(batch) + 1) > tokens:
            made.append(batch)
            batch, longest = [], lengths[number]
        batch.append(number)
    made += [batch] if batch else []
    if random is not None:
        random.shuffle(made)
    return made
