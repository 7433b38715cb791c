"""The proof pane: that nothing is lost, shown as a law, and what the classic mistakes do to it.

It runs on table models of its own, so it works before any model has loaded. Held by tests/browser/test_proof.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from specviz.lab.mistakes import MISTAKES
from specviz.ui import plots
from specviz.ui.components import STATIC, ProofView
from specviz.ui.jobs import FREE, JOB, QUIET, Buttons, Event, buttons_after, stream
from specviz.ui.pages import Pages
from specviz.ui.words import DRAFT_WORDS, RULE_WORDS

SAMPLES = (3_000, 10_000, 30_000)
NO_MISTAKE = ""
REAL = "The engine as it is: the verdict should be that nothing is lost."


@dataclass
class ProofPane:
    """The components of the pane."""

    mistake: gr.Dropdown
    sentence: gr.HTML
    draft: gr.Dropdown
    verify: gr.Dropdown
    samples: gr.Radio
    prove: gr.Button
    view: ProofView


def create_proof() -> ProofPane:
    """The pane, created in the current gradio context."""
    mistakes = [("none: the real thing", NO_MISTAKE), *((found.title, name) for name, found in MISTAKES.items())]
    drafts = [(title, kind) for rows in DRAFT_WORDS.values() for kind, title, _ in rows]
    with gr.Column(elem_classes="sv-proof-panel"):
        gr.HTML((STATIC / "proof-head.html").read_text(encoding="utf-8"), apply_default_css=False)
        with gr.Row(elem_classes="sv-proof-knobs"):
            mistake = gr.Dropdown(mistakes, value=NO_MISTAKE, label="Mistake", elem_id="sv-proof-mistake")
            draft = gr.Dropdown(drafts, value="model", label="Draft type", elem_id="sv-proof-draft")
            verify = gr.Dropdown(
                [(title, rule) for rule, title, _ in RULE_WORDS],
                value="rejection",
                label="Rule",
                elem_id="sv-proof-rule",
            )
            samples = gr.Radio(
                [(f"{count:,}", count) for count in SAMPLES],
                value=SAMPLES[0],
                label="Samples",
                elem_id="sv-proof-samples",
            )
            prove = gr.Button("Prove it", variant="primary", elem_id="sv-prove-button")
        sentence = gr.HTML(
            REAL,
            html_template='<p class="sv-note">${value}</p>',
            apply_default_css=False,
            elem_id="sv-proof-sentence",
        )
        view = ProofView(elem_id="sv-proof-view")
    return ProofPane(mistake, sentence, draft, verify, samples, prove, view)


def wire_proof(pages: Pages, pane: ProofPane, buttons: Buttons) -> None:
    """A chosen mistake goes to where it shows itself; Prove it runs."""
    table = {
        name: {"sentence": found.sentence, "drafts": found.drafts, "rules": found.rules}
        for name, found in MISTAKES.items()
    }
    go_there = f"""(name, draft, rule) => {{
        const found = {json.dumps(table)}[name];
        if (!found) return [{json.dumps(REAL)}, draft, rule];
        const fit = (value, choices) => (choices.includes(value) ? value : choices[0]);
        return [found.sentence, fit(draft, found.drafts), fit(rule, found.rules)];
    }}"""
    choices = [pane.mistake, pane.draft, pane.verify]
    pane.mistake.input(None, choices, [pane.sentence, pane.draft, pane.verify], js=go_there, **QUIET)

    def prove(request: gr.Request, mistake: str, draft: str, verify: str, samples: int) -> Iterator[list[Any]]:
        options = {"mistake": mistake or None, "draft": draft, "verify": verify, "samples": samples}
        yield from stream(pages, request, lambda session: session.prove(**options), with_figures)

    pane.prove.click(prove, [*choices, pane.samples], [pane.view, *buttons.all], **JOB).then(
        buttons_after(pages), None, buttons.all, **FREE
    )


def with_figures(event: Event) -> list[Event]:
    """A result brings its two figures along; the cells that they show are not sent twice."""
    if event["type"] != "proof":
        return [event]
    proof = event["proof"]
    figures = [plots.event("distance", plots.distances(proof)), plots.event("law", plots.law(proof))]
    return [event | {"proof": {key: value for key, value in proof.items() if key != "cells"}}, *figures]
