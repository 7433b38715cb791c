"""One entry per open page: its session on the host and the number of its latest run.

A stop that arrives before the run has reached the host still stops it, because it is remembered by number.
Held by tests/unit/test_ui.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any


class Page:
    """What the server keeps of one open page."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.number = 0
        self.stopped = 0
        self._swap = (0, "")
        self._lock = threading.Lock()
        self._going: set[int] = set()

    def next_number(self) -> int:
        self.number += 1
        self._going.add(self.number)
        return self.number

    def ended(self, number: int) -> None:
        """Job `number` is over; doing it twice is harmless."""
        self._going.discard(number)

    @property
    def busy(self) -> bool:
        """Whether a job is going on; one that another has just taken over from is not the last word."""
        return bool(self._going)

    def begin_run(self, picks: int, prompt: str, **settings: Any) -> Iterator[list[dict[str, Any]]]:
        """`Session.run`, with the change of draft that overtook it on its way, if there was one.

        Args:
            picks: how many choices had been made on the page when the run was sent.
        """
        with self._lock:
            batches = self.session.run(prompt, **settings)
            number, draft = self._swap
            if number > picks:
                self.session.swap(draft)
            return batches

    def swap(self, number: int, draft: str) -> None:
        """Another draft type for the run in progress or on its way here; `number` counts the choices made on the page.

        Requests of one page are answered side by side, so an older choice may come after a newer one: it is ignored.
        """
        with self._lock:
            if number > self._swap[0]:
                self._swap = number, draft
                self.session.swap(draft)

    def stop(self) -> None:
        """Ends the run in progress; instant and thread-safe."""
        self.stopped = self.number
        self.session.stop()

    def batches(self, number: int, events: Iterator[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
        """`events`, stopped where run `number` was stopped, and closed in any case (which frees the model)."""
        told = False
        try:
            if self.stopped >= number:
                yield [{"type": "stopped"}]
                return
            for batch in events:
                yield batch
                if self.stopped >= number and not told:
                    told = True
                    self.session.stop()
        finally:
            events.close()


class Pages:
    """All open pages, by gradio's session hash."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._pages: dict[str, Page] = {}
        self._lock = threading.Lock()

    def of(self, session_hash: str | None) -> Page:
        with self._lock:
            key = session_hash or ""
            if key not in self._pages:
                self._pages[key] = Page(self._host.session())
            return self._pages[key]

    def close(self, session_hash: str | None) -> None:
        """The page was closed: its run ends and it is forgotten."""
        with self._lock:
            page = self._pages.pop(session_hash or "", None)
        if page is not None:
            page.stop()

    def __len__(self) -> int:
        return len(self._pages)
