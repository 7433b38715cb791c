"""The run and the race that ship with the app: playable before any model has loaded.

A recording that is missing or of another schema leaves its pane empty instead of keeping the app from starting.
Held by tests/unit/test_ui.py.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from specviz import trace
from specviz.lab.race import Race
from specviz.ui import plots
from specviz.ui.explore_plots import with_curves
from specviz.ui.feed import Feed, run_events
from specviz.ui.figures import run_figures

ASSETS = Path(__file__).resolve().parents[2] / "assets"

log = logging.getLogger(__name__)


def run_feed(path: Path = ASSETS / "recorded" / "run.json") -> str:
    """The text a RunView starts with: the empty chart, and the recorded run if there is one."""
    feed = Feed(0, recorded=True)
    feed.add(plots.event("steps", plots.acceptance_per_step()))
    data = _read(path)
    if data is None:
        return feed.text
    try:
        run = trace.Run.from_dict(data).to_dict()
    except ValueError as error:
        log.warning("The recorded run %s is left out: %s", path, error)
        return feed.text
    feed.add(*run_events(run))
    return feed.add(*run_figures(run["summary"], run["steps"]))


def race_feed(path: Path = ASSETS / "recorded" / "race.json") -> str:
    """The text a RaceView starts with; of each lane only the run shown is kept."""
    feed = Feed(0, recorded=True)
    data = _read(path)
    if data is None:
        return feed.text
    try:
        race = Race.from_dict(data).shown_only()
    except ValueError as error:
        log.warning("The recorded race %s is left out: %s", path, error)
        return feed.text
    return feed.add(*with_curves({"type": "race", "race": race.to_dict()}))


def prompts(path: Path = ASSETS / "prompts.json") -> list[dict[str, Any]]:
    """The presets of the page: a list of {title, prompt, draft, gamma, temperature, note}."""
    return _read(path) or []


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s is left out: %s", path, error)
        return None
