"""One job on the device at a time, first come first served, and everyone can ask for their place in the line.

A ticket that was left (page closed, Stop) never blocks those behind it. Held by tests/unit/test_serve.py.
"""

from __future__ import annotations

import threading

from specviz.errors import SpecvizError

#: More than this many waiting are sent away with a sentence instead of waiting for minutes.
WAITING_MAX = 20


class Desk:
    """The line in front of the device."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._changed = threading.Condition()
        self._line: list[Ticket] = []
        self._waiting_max = waiting_max

    def take(self) -> Ticket:
        """Join the line.

        Raises:
            SpecvizError: the line is full.
        """
        with self._changed:
            if len(self._line) > self._waiting_max:
                raise SpecvizError(f"{self._waiting_max} others are waiting for the model: try again in a minute.")
            ticket = Ticket(self)
            self._line.append(ticket)
            return ticket

    @property
    def busy(self) -> bool:
        """Whether anyone holds the device or waits for it."""
        with self._changed:
            return bool(self._line)


class Ticket:
    """A place in the line of one `Desk`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def wait(self, seconds: float) -> int:
        """How many are before this one: 0 is our turn. Returns at once when it is, else when the line moves or
        `seconds` are over."""
        with self._desk._changed:
            before = self._position()
            if before:
                self._desk._changed.wait_for(lambda: self._position() != before, seconds)
            return self._position()

    def leave(self) -> None:
        """Give the place up, served or not; doing it twice is harmless."""
        with self._desk._changed:
            if self in self._desk._line:
                self._desk._line.remove(self)
                self._desk._changed.notify_all()

    def _position(self) -> int:
        return self._desk._line.index(self)
