"""The prompt box, its presets and the buttons; the prompt is never lost. Held by tests/browser/test_page.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gradio as gr

from specviz.ui.controls import Controls
from specviz.ui.jobs import QUIET


@dataclass
class Ask:
    """The components of the pane."""

    prompt: gr.Textbox
    run: gr.Button
    stop: gr.Button
    race: gr.Button
    chips: list[gr.Button]
    note: gr.HTML


def create_ask(presets: list[dict[str, Any]]) -> Ask:
    """The pane, created in the current gradio context; it starts with the first preset."""
    first = presets[0]["prompt"] if presets else ""
    prompt = gr.Textbox(
        first,
        label="Prompt",
        info="Shift+Enter runs it",
        lines=6,
        max_lines=6,
        placeholder="What should the model write?",
        elem_id="sv-prompt",
    )
    with gr.Row(elem_classes="sv-buttons"):
        run = gr.Button("Run", variant="primary", elem_id="sv-run-button")
        stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="sv-stop-button")
        race = gr.Button("Race", variant="secondary", elem_id="sv-race-button")
    gr.HTML('<p class="sv-label">Prompts to try</p>', apply_default_css=False)
    with gr.Row(elem_classes="sv-presets"):
        chips = [gr.Button(preset["title"], size="sm", elem_classes="sv-preset") for preset in presets]
    note = gr.HTML(
        presets[0]["note"] if presets else "",
        html_template='<p class="sv-note">${value}</p>',
        apply_default_css=False,
        elem_id="sv-note",
    )
    return Ask(prompt, run, stop, race, chips, note)


#: What is said of a prompt that is none of the presets.
OWN_PROMPT = "A prompt of your own: only a run can tell how much of the answer a draft can guess."


def wire_ask(ask: Ask, presets: list[dict[str, Any]], controls: Controls) -> None:
    """What happens in the browser alone: a preset fills the prompt, draft type, gamma and temperature; what is said of
    it holds for as long as the prompt is that one."""
    filled = [controls.draft, controls.gamma, controls.temperature]
    for chip, preset in zip(ask.chips, presets, strict=True):
        row = json.dumps([preset[name] for name in ("prompt", "note", "draft", "gamma", "temperature")])
        chip.click(None, None, [ask.prompt, ask.note, *filled], js=f"() => {row}", **QUIET)
    notes = json.dumps({preset["prompt"]: preset["note"] for preset in presets})
    about = f"prompt => Object.hasOwn({notes}, prompt) ? {notes}[prompt] : {json.dumps(OWN_PROMPT)}"
    ask.prompt.change(None, ask.prompt, ask.note, js=about, **QUIET)
