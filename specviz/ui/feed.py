"""What a component shows, as text: JSON lines that only grow, behind a first line with the run's number.

The browser parses only the lines it has not seen and ignores a number lower than the current one, so a late
answer of an old run cannot overwrite a new one. A line never contains a raw newline. Held by tests/unit/test_ui.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


class Feed:
    """A growing text of JSON lines.

    Args:
        number: of the run on this page; 0 is the recording that ships with the app.
        recorded: whether the events come from a file instead of from this machine now.
    """

    def __init__(self, number: int, recorded: bool = False) -> None:
        self.text = ""
        self.add({"type": "page", "number": number, "recorded": recorded})

    def add(self, *events: dict[str, Any]) -> str:
        """Append events; returns the whole text.

        Raises:
            ValueError: a number that JSON does not have (NaN or infinity).
        """
        self.text += "".join(f"{_line(event)}\n" for event in events)
        return self.text


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def run_events(run: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """A whole run (plain JSON of schema specviz.trace/1) as the events a live one would send."""
    yield {
        "type": "run",
        "run": {key: value for key, value in run.items() if key not in {"steps", "output", "summary"}},
    }
    for step in run["steps"]:
        yield {"type": "step", "step": step}
    yield {"type": "end", "output": run["output"], "summary": run["summary"]}
