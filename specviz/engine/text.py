"""Ids to text, one token at a time: each token's `text` is what it adds to the decoded text.

A character split over several tokens belongs to the last of them, so no U+FFFD is shown that is not in the final
text, and the texts concatenate to the whole. Held by tests/unit/test_text.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[list[int]], str]

#: The window is cut back to KEEP ids once it holds MAX: decoding stays cheap however long the output is.
KEEP, MAX = 4, 12
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class TextStream:
    """Incremental detokeniser over a window of recent ids."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._shown = ""  # the part of the window's text that has been handed out

    def fork(self) -> TextStream:
        """A copy that can follow a branch which will not be kept."""
        twin = TextStream(self._decode)
        twin._ids, twin._shown = self._ids.copy(), self._shown
        return twin

    def push(self, token: int) -> str:
        """The text that `token` adds; empty while a character is incomplete."""
        self._ids.append(token)
        text = self._decode(self._ids)
        if text.endswith(REPLACEMENT):
            return ""
        added = text[len(self._shown) :]
        self._shown = text
        if len(self._ids) >= MAX:
            self._ids = self._ids[-KEEP:]
            self._shown = self._decode(self._ids)
        return added

    def flush(self) -> str:
        """What is left when no more ids come: the incomplete character, if any, as U+FFFD."""
        text = self._decode(self._ids)
        added, self._shown = text[len(self._shown) :], text
        return added


class StopTexts:
    """Finds the first stop text as the output grows; it may begin in an earlier token or step."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._reach = max(map(len, texts), default=1) - 1
        self._tail = ""

    def cut(self, added: str) -> int | None:
        """How many characters of `added` stay so that the output ends with a stop text; None when none is complete."""
        if not self._texts:
            return None
        text = self._tail + added
        ends = [text.find(stop) + len(stop) for stop in self._texts if stop in text]
        if ends:
            return min(ends) - len(self._tail)
        self._tail = text[-self._reach :] if self._reach else ""
        return None
