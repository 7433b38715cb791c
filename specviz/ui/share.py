"""The link: prompt, settings and seed in the page's address, written and read in the browser alone.

Opening one fills the controls and runs nothing; a value that cannot be used is left out with a sentence. The precision
and what concerns a race alone belong to the machine and the moment, and are not in it. Held by
tests/browser/test_share.py and tests/unit/test_share.py.
"""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from specviz.settings import DRAFTS, RULES, TREES
from specviz.ui.ask import Ask
from specviz.ui.components import ShareLine
from specviz.ui.controls import SAFE_WHOLE, Controls
from specviz.ui.jobs import QUIET

OWN_TO_THE_MACHINE = ("dtype", "rounds", "also")
#: Bounds of what stands in a plain number field.
WHOLE_MAX = {"seed": SAFE_WHOLE, "top_k": 1_000_000, "exit_layer": 1_000}
CHOICES = {"draft": DRAFTS, "verify": RULES}


def create_share() -> ShareLine:
    """The button and its sentence, created in the current gradio context."""
    return ShareLine(elem_id="sv-share")


def linked(controls: Controls) -> dict[str, gr.components.Component]:
    """The controls that a link holds, by the name of their setting."""
    return {name: part for name, part in vars(controls).items() if name not in OWN_TO_THE_MACHINE}


def link_spec(controls: Controls) -> dict[str, dict[str, Any]]:
    """What each setting may be: {kind: choice | number | whole | flag, default, and choices or low and high}."""
    return {name: {"default": part.value} | _kind(name, part) for name, part in linked(controls).items()}


def _kind(name: str, part: gr.components.Component) -> dict[str, Any]:
    if name in CHOICES:
        return {"kind": "choice", "choices": list(CHOICES[name])}
    if isinstance(part, gr.Checkbox):
        return {"kind": "flag"}
    if isinstance(part, gr.Radio):
        values = [value for _, value in part.choices]
        return {"kind": "whole", "low": min(values), "high": max(values)}
    if isinstance(part, gr.Slider):
        kind = "whole" if part.step == 1 else "number"
        return {"kind": kind, "low": part.minimum, "high": part.maximum}
    return {"kind": "whole", "low": 0, "high": WHOLE_MAX[name]}


def wire_share(demo: gr.Blocks, ask: Ask, controls: Controls) -> gr.events.Dependency:
    """Reads the address when the page opens and rewrites it on every change; the prompt outlives a reload as well when
    it is too long for an address. Returns the event of the reading."""
    parts = linked(controls)
    inputs = [ask.prompt, *parts.values()]
    spec = json.dumps({"settings": link_spec(controls), "trees": TREES})
    # The scripts of the head may come later than the page.
    ready = "while (!window.specviz?.readLink) await new Promise(done => setTimeout(done, 20));"
    read = f"async (...now) => {{ {ready} return window.specviz.readLink({spec}, now); }}"
    loaded = demo.load(None, inputs, inputs, js=read, **QUIET)
    write = "(...now) => { window.specviz?.writeLink?.(now); }"
    gr.on([part.change for part in inputs], None, inputs, None, js=write, **QUIET)
    for picker in (controls.draft, controls.verify):
        picker.pick(None, inputs, None, js=write, **QUIET)
    return loaded
