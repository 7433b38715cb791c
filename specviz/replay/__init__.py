"""A run or a race as one HTML file that replays with the page's own timeline and microscope: no server, no network.

The file is the page's static scripts and styles put inline, and the JSON in a script element that no browser
executes. The JSON is ASCII without "<", so that nothing in it can end that element: hostile text stays text.
Held by tests/unit/test_replay.py and tests/browser/test_replay.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.trace import Run

if TYPE_CHECKING:
    from specviz.lab.race.document import Race

STATIC = Path(__file__).resolve().parents[1] / "ui" / "static"


@dataclass(frozen=True)
class View:
    """What draws a kind of file: its template, and its scripts and styles in the order they depend on one another."""

    template: str
    scripts: tuple[str, ...]
    styles: tuple[str, ...]


_TIME = ("base", "keys", "steps", "player", "timeline", "tokens")
_SCOPE = ("explain", "place", "facts", "beats", "tree", "card", "scope")
VIEWS = {
    "run": View(
        "run",
        (*_TIME, *_SCOPE, "charts", "pane", "run", "standalone"),
        ("page", "tokens", "panes", "timeline", "scope", "standalone"),
    ),
    "race": View(
        "race",
        (*_TIME, "charts", "pane", "lane", "why", "race", "standalone"),
        ("page", "tokens", "panes", "timeline", "race", "standalone"),
    ),
}
#: The file may run what is in it and ask for nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'"
#: Where `shell` leaves room for the JSON.
PLACE = "%specviz-run%"


def open_file(text: str) -> Run | Race:
    """A run, or a race where the file says so, from the text of the file, fit to be drawn.

    Raises:
        ValueError: with a sentence that says what is wrong with it.
    """
    # Here, because races bring the engine along, which is slow to import.
    from specviz.lab.race.document import SCHEMA, Race

    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"This is not JSON: {error}.") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        run = Run.from_dict(data)
        _check(run, "run")
        return run
    race = Race.from_dict(data)
    if len(race.lanes) < 2 or any(lane.speedup is None for lane in race.lanes[1:]):
        raise ValueError("race.lanes must be plain decoding and at least one draft with its speed-up.")
    for number, lane in enumerate(race.lanes):
        if not 0 <= lane.shown < len(lane.runs):
            raise ValueError(f"race.lanes[{number}].shown is {lane.shown}, and it has {len(lane.runs)} runs.")
        for index, run in enumerate(lane.runs):
            _check(run, f"race.lanes[{number}].runs[{index}]")
    return race


def kind_of(document: Run | Race) -> str:
    """Which of VIEWS draws it."""
    return "run" if isinstance(document, Run) else "race"


def _check(run: Run, name: str) -> None:
    """Steps follow one another in time, and tokens one another in a step, or ValueError."""
    before = 0.0
    for number, step in enumerate(run.steps):
        where = f"{name}.steps[{number}]"
        if not before <= step.t_end or step.t_start > step.t_end:
            raise ValueError(f"{where} ends before it begins, or before the step in front of it: times only grow.")
        before = step.t_end
        for index, token in enumerate(step.tokens):
            if not -1 <= token.parent < index:
                raise ValueError(f"{where}.tokens[{index}].parent is {token.parent}: it must be a token before it.")


def embed(data: dict[str, Any]) -> str:
    """`data` as JSON that may stand inside a script element."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def shell(kind: str = "run") -> str:
    """The file for one of VIEWS, with PLACE where the JSON goes."""
    view = VIEWS[kind]
    style = "\n".join(_static(f"{name}.css") for name in view.styles)
    scripts = "\n".join(f"<script>\n{_static(f'{name}.js')}</script>" for name in view.scripts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>A {kind} of specviz</title>
<style>
{style}</style>
</head>
<body>
<main class="sv-alone">
<noscript><p>This file draws a {kind} with JavaScript, which is switched off here.</p></noscript>
{_static(f"{view.template}.html")}
<footer class="sv-alone-foot">
<button type="button" class="sv-plain-button">Keys <kbd>?</kbd></button>
<span>Replayed by specviz from the {kind} inside this file; nothing is fetched.</span>
</footer>
</main>
<script type="application/json" id="specviz-run">{PLACE}</script>
{scripts}
</body>
</html>
"""


def replay_html(document: Run | Race) -> str:
    """The whole file for one run or race."""
    before, after = shell(kind_of(document)).split(PLACE)
    return f"{before}{embed(document.to_dict())}{after}"


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
