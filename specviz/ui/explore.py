"""The Explore pane: figures of runs that the browser has, made here when the pane asks for them.

The browser sends the runs themselves, so a recorded one and one from a file are drawn like one of one's own, and the
server keeps nothing. Held by tests/unit/test_explore.py and tests/browser/test_explore.py.
"""

from __future__ import annotations

import json
from typing import Any

from specviz.trace import Run
from specviz.ui.components import ExploreView
from specviz.ui.explore_plots import RUNS_MAX, explore

#: A run of 512 tokens is about 0.3 MB without its distributions.
BYTES_MAX = 16_000_000
NAME_MAX = 60


def create_explore() -> ExploreView:
    """The pane, created in the current gradio context."""
    return ExploreView(elem_id="sv-explore-view", server_functions=[figures])


def figures(text: str) -> dict[str, Any]:
    """{figures: {name: plotly JSON}} of a JSON list of {name, run}, or {error: one sentence}."""
    if not isinstance(text, str) or len(text) > BYTES_MAX:
        return {"error": "These runs are too large to draw together: choose only one."}
    try:
        runs = [(_shown(entry["name"]), Run.from_dict(entry["run"])) for entry in json.loads(text)]
    except (ValueError, TypeError, KeyError) as error:
        return {"error": f"This is not a run that can be drawn: {error}"}
    if not 1 <= len(runs) <= RUNS_MAX or not all(run.steps for _, run in runs):
        return {"error": f"From 1 to {RUNS_MAX} runs with at least one step can be drawn together, not these."}
    return {"figures": explore(runs)}


def _shown(name: Any) -> str:
    # Plotly takes tags in a name for markup.
    return str(name)[:NAME_MAX].replace("<", "‹").replace(">", "›")
