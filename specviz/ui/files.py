"""What the page asks of the server about files of runs: whether one can be replayed, and the shell of a replay.

Held by tests/browser/test_replay.py.
"""

from __future__ import annotations

import json
from typing import Any

from specviz import replay
from specviz.ui.figures import run_figures


def open_file(text: str) -> dict[str, Any]:
    """A file dropped on the page: {run, events} to draw, or {error} with the sentence to show."""
    try:
        run = replay.open_run(text).to_dict()
    except ValueError as error:
        return {"error": str(error)}
    # As text: what lies between may lay numbers out anew, and every number shown is the file's.
    return {"run": json.dumps(run), "events": json.dumps(run_figures(run["summary"], run["steps"]))}


def replay_shell(_: Any = None) -> dict[str, str]:
    """The replay file without its run, and where in it the run goes. (gradio hands every such function one value.)"""
    return {"shell": replay.shell(), "place": replay.PLACE}
