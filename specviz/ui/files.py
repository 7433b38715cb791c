"""What the page asks of the server about files: whether one can be replayed, and the shell of a replay.

Held by tests/browser/test_replay.py.
"""

from __future__ import annotations

import json
from typing import Any

from specviz import replay
from specviz.ui.explore_plots import with_curves
from specviz.ui.figures import run_figures


def open_file(text: str) -> dict[str, Any]:
    """A file dropped on the page: {kind, document, events} to draw, or {error} with the sentence to show."""
    try:
        found = replay.open_file(text)
    except ValueError as error:
        return {"error": str(error)}
    kind, document = replay.kind_of(found), found.to_dict()
    if kind == "run":
        events = run_figures(document["summary"], document["steps"])
    else:
        events = with_curves({"type": "race", "race": document})[1:]
    # As text: what lies between may lay numbers out anew, and every number shown is the file's.
    return {"kind": kind, "document": json.dumps(document), "events": json.dumps(events)}


def replay_shell(kind: str) -> dict[str, str]:
    """The replay file of a run or a race without its JSON, and where in it that goes."""
    return {"shell": replay.shell(kind), "place": replay.PLACE}
