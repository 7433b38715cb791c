"""A run as one HTML file that replays with the page's own timeline and microscope: no server, no network.

The file is the page's static scripts and styles put inline, and the run as JSON in a script element that no browser
executes. The JSON is ASCII without "<", so that nothing in it can end that element: hostile text stays text.
Held by tests/unit/test_replay.py and tests/browser/test_replay.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specviz.trace import Run

STATIC = Path(__file__).resolve().parents[1] / "ui" / "static"
#: Scripts of the run view alone, in the order they depend on one another.
SCRIPTS = (
    "base",
    "keys",
    "steps",
    "player",
    "timeline",
    "tokens",
    "explain",
    "place",
    "facts",
    "beats",
    "tree",
    "card",
    "scope",
    "charts",
    "pane",
    "run",
    "standalone",
)
STYLES = ("page", "tokens", "panes", "timeline", "scope", "standalone")
#: The file may run what is in it and ask for nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'"
#: Where `shell` leaves room for the run's JSON.
PLACE = "%specviz-run%"


def open_run(text: str) -> Run:
    """A run from the text of its file, fit to be drawn.

    Raises:
        ValueError: with a sentence that says what is wrong with it.
    """
    run = Run.from_json(text)
    before = 0.0
    for number, step in enumerate(run.steps):
        where = f"run.steps[{number}]"
        if not before <= step.t_end or step.t_start > step.t_end:
            raise ValueError(f"{where} ends before it begins, or before the step in front of it: times only grow.")
        before = step.t_end
        for index, token in enumerate(step.tokens):
            if not -1 <= token.parent < index:
                raise ValueError(f"{where}.tokens[{index}].parent is {token.parent}: it must be a token before it.")
    return run


def embed(data: dict[str, Any]) -> str:
    """`data` as JSON that may stand inside a script element."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def shell() -> str:
    """The file with PLACE where the run goes."""
    style = "\n".join(_static(f"{name}.css") for name in STYLES)
    scripts = "\n".join(f"<script>\n{_static(f'{name}.js')}</script>" for name in SCRIPTS)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>A run of specviz</title>
<style>
{style}</style>
</head>
<body>
<main class="sv-alone">
<noscript><p>This file draws its run with JavaScript, which is switched off here.</p></noscript>
{_static("run.html")}
<footer class="sv-alone-foot">
<button type="button" class="sv-plain-button">Keys <kbd>?</kbd></button>
<span>Replayed by specviz from the run inside this file; nothing is fetched.</span>
</footer>
</main>
<script type="application/json" id="specviz-run">{PLACE}</script>
{scripts}
</body>
</html>
"""


def replay_html(run: Run) -> str:
    """The whole file for one run."""
    before, after = shell().split(PLACE)
    return f"{before}{embed(run.to_dict())}{after}"


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
