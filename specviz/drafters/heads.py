"""The trained drafts of a target, by kind: each of them made when a run needs it, or the sentence that says why not.

Held by tests/unit/test_heads.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.drafters.distilled import distilled
from specviz.drafters.eagle import EagleModel
from specviz.drafters.feedforward import FeedForwardModel
from specviz.drafters.head import FOLDER, Fit, find_head, fingerprint, load_head
from specviz.drafters.limited import LimitedModel
from specviz.drafters.medusa import MedusaModel
from specviz.engine.model import LanguageModel
from specviz.errors import ModelError
from specviz.startup import one_thread

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: What drafts, of any kind.
Head = LimitedModel | LanguageModel
#: Makes of (target, weights, shape, vocabulary, name, warning) what drafts. Those that read features come first: they
#: decide what is tapped.
KINDS: dict[str, Callable[..., Head]] = {
    "eagle": EagleModel,
    "medusa": MedusaModel,
    "feedforward": FeedForwardModel,
    "model": distilled,
}
#: The kind of head that each draft type needs.
NEEDS = {"eagle": "eagle", "eagle-tree": "eagle", "medusa": "medusa", "feedforward": "feedforward"}
NOT_LOADED = "No trained head was loaded."


class Found(Mapping[str, Head | str]):
    """By kind the head, or the sentence that says why there is none; a head is made when it is first asked for.

    Args:
        target: whose heads they are.
        entries: for each kind what fits it, or the sentence.
    """

    def __init__(self, target: LanguageModel, entries: Mapping[str, Fit | str]) -> None:
        self._target, self._entries, self._lock = target, entries, threading.Lock()
        self._made: dict[str, Head | str] = {}

    def __getitem__(self, kind: str) -> Head | str:
        entry = self._entries[kind]
        if isinstance(entry, str):
            return entry
        with self._lock:  # two of a kind would have memories apart, and one of them would never be cleared
            if kind not in self._made:
                self._made[kind] = _make(self._target, kind, entry)
            return self._made[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def made(self) -> dict[str, Head | str]:
        """What somebody has asked for already."""
        return dict(self._made)

    def digest(self, kind: str) -> str | None:
        """The SHA-256 of a head's file, None where there is none."""
        entry = self._entries.get(kind)
        return entry.sha256 if isinstance(entry, Fit) else None


class Heads(Mapping[str, Head]):
    """The heads an engine can draft with, by kind; of those that are not there `why_not` says why."""

    def __init__(self, given: Mapping[str, Head | str] | None = None) -> None:
        self._given: Mapping[str, Head | str] = given or {}
        self._put: dict[str, Head | str] = {}

    def put(self, kind: str, head: Head | str) -> None:
        """Another head of a kind, or none because of a reason."""
        self._put[kind] = head

    def why_not(self, kind: str) -> str | None:
        """Why there is no head of a kind; None when there is one, which is made now if it was not."""
        found = self._find(kind)
        return found if isinstance(found, str) else None

    def made(self) -> dict[str, Head]:
        """Those that have been made so far."""
        given = self._given.made() if isinstance(self._given, Found) else self._given
        return {kind: head for kind, head in {**given, **self._put}.items() if not isinstance(head, str)}

    def digest(self, kind: str) -> str | None:
        """The SHA-256 of a head's file; None for one that came from no file."""
        return self._given.digest(kind) if isinstance(self._given, Found) and kind not in self._put else None

    def _find(self, kind: str) -> Head | str:
        return self._put[kind] if kind in self._put else self._given.get(kind, NOT_LOADED)

    def __getitem__(self, kind: str) -> Head:
        found = self._find(kind)
        if isinstance(found, str):
            raise KeyError(kind)
        return found

    def __iter__(self) -> Iterator[str]:
        return (kind for kind in dict.fromkeys((*self._given, *self._put)) if self.why_not(kind) is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def find_heads(target: LanguageModel, tokenizer: PreTrainedTokenizerBase, folder: Path = FOLDER) -> Found:
    """Of every kind the head in `folder` that fits the target, else the sentence that says why there is none.

    All that touches the target is done now: cards, checksums and fingerprints are compared, and the layers that heads
    read are tapped. Making a head later leaves alone whatever the target is reading then.
    """
    mark = cache(partial(fingerprint, target))
    found: dict[str, Fit | str] = {}
    readers: dict[str, tuple[int, ...]] = {}
    for kind in KINDS:
        try:
            with one_thread():
                fit = find_head(target, tokenizer, kind, folder, mark=mark)
        except ModelError as error:
            fit = str(error)
        if not isinstance(fit, str) and fit.shape.reads_features:
            fit = _clash(target, kind, fit.shape.taps, readers) or fit
        if not isinstance(fit, str) and fit.shape.reads_features:
            target.tap(fit.shape.taps)
            readers[kind] = fit.shape.taps
        found[kind] = fit
    return Found(target, found)


def _clash(target: LanguageModel, kind: str, taps: tuple[int, ...], readers: Mapping[str, tuple[int, ...]]) -> str:
    """Why a head cannot be used beside those that read the target's layers already; empty when it can."""
    for other, layers in readers.items():
        if layers != taps:
            return (
                f"The {kind} head reads layers {_listed(taps)} of {target.name} and the {other} head "
                f"{_listed(layers)}: only one of them can be used, so train both for the same layers."
            )
    return ""


def load(
    target: LanguageModel, tokenizer: PreTrainedTokenizerBase, kind: str, folder: Path = FOLDER, name: str = "*"
) -> Head | str:
    """The head of a kind, made now, or the sentence that says why there is none.

    Args:
        name: of the card in `folder`, without suffix; * takes the first that fits.
    """
    try:
        fit = find_head(target, tokenizer, kind, folder, name)
    except ModelError as error:
        return str(error)
    return fit if isinstance(fit, str) else _make(target, kind, fit)


def _make(target: LanguageModel, kind: str, fit: Fit) -> Head | str:
    try:
        with one_thread():
            head = load_head(fit.path)
            return KINDS[kind](target, head.weights, head.shape, head.vocabulary, head.card["name"], fit.warning)
    except ModelError as error:
        return str(error)


def _listed(layers: tuple[int, ...]) -> str:
    return ", ".join(map(str, layers))
