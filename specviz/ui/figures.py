"""The figures that a run gets when it has ended: acceptance by position, and where its time went.

Held by tests/unit/test_ui_bench.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from specviz.ui import plots
from specviz.ui.jobs import Event


def run_figures(summary: dict[str, Any], steps: Iterable[dict[str, Any]]) -> list[Event]:
    """The events that carry them; `summary` and `steps` as in a run's plain JSON."""
    return [
        plots.event("position", plots.acceptance_by_position(summary)),
        plots.event("time", plots.time_breakdown({"steps": list(steps)})),
    ]


class RunFigures:
    """Hands on the events of one run, and behind its end the figures made from them."""

    def __init__(self) -> None:
        self._steps: list[dict[str, Any]] = []

    def __call__(self, event: Event) -> list[Event]:
        if event["type"] == "step":
            self._steps.append(event["step"])
        if event["type"] != "end":
            return [event]
        return [event, *run_figures(event["summary"], self._steps)]
