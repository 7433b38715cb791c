"""The benchmark pane: a small sweep measured live, and any benchmark's file drawn as the same report.

Held by tests/unit/test_ui_bench.py and tests/browser/test_bench.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from specviz.lab.bench.document import Bench
from specviz.settings import CANDIDATES_MAX, CANDIDATES_MIN, Settings
from specviz.ui.components import STATIC, BenchView
from specviz.ui.feed import Feed
from specviz.ui.jobs import FREE, JOB, Buttons, Event, buttons_after, stream
from specviz.ui.pages import Pages
from specviz.ui.report import report_data
from specviz.ui.words import DRAFT_WORDS

GAMMAS, TEMPERATURES, TOKENS = (1, 2, 3, 4, 5, 7), (0.0, 0.7, 1.0), (32, 64, 128)
#: A benchmark of 480 prompts with 30 lanes is about 30 MB.
FILE_BYTES_MAX = 64_000_000
MINE, OWN_SET = "mine", "set"


@dataclass
class BenchPane:
    """The components of the pane."""

    prompts: gr.Radio
    drafts: gr.CheckboxGroup
    gammas: gr.CheckboxGroup
    temperatures: gr.CheckboxGroup
    candidates: gr.CheckboxGroup
    tokens: gr.Radio
    measure: gr.Button
    file: gr.UploadButton
    view: BenchView


def create_bench() -> BenchPane:
    """The pane, created in the current gradio context."""
    drafts = [(title, kind) for rows in DRAFT_WORDS.values() for kind, title, _ in rows if kind != "none"]
    with gr.Column(elem_classes="sv-bench-panel"):
        gr.HTML((STATIC / "bench-head.html").read_text(encoding="utf-8"), apply_default_css=False)
        with gr.Row(elem_classes="sv-bench-knobs"):
            prompts = gr.Radio(
                [("My prompt", MINE), ("One of each kind (7 prompts)", OWN_SET)],
                value=MINE,
                label="Prompts",
                elem_id="sv-bench-prompts",
            )
            chosen = gr.CheckboxGroup(drafts, value=[Settings().draft], label="Draft types", elem_id="sv-bench-drafts")
            gammas = gr.CheckboxGroup([*GAMMAS], value=[1, 3, 5], label="Gamma", elem_id="sv-bench-gammas")
            heats = gr.CheckboxGroup([*TEMPERATURES], value=[0.0], label="Temperature", elem_id="sv-bench-temperatures")
            candidates = gr.CheckboxGroup(
                [*range(CANDIDATES_MIN, CANDIDATES_MAX + 1)],
                value=[2],
                label="Candidates (pools and trees)",
                elem_id="sv-bench-candidates",
            )
            tokens = gr.Radio([*TOKENS], value=TOKENS[1], label="Tokens of an answer", elem_id="sv-bench-tokens")
            measure = gr.Button("Measure", variant="primary", elem_id="sv-bench-button")
            file = gr.UploadButton("Show a file (bench --json)", file_types=[".json"], elem_id="sv-bench-file")
        view = BenchView(elem_id="sv-bench-view")
    return BenchPane(prompts, chosen, gammas, heats, candidates, tokens, measure, file, view)


def wire_bench(pages: Pages, pane: BenchPane, prompt: gr.Textbox, dtype: gr.Dropdown, buttons: Buttons) -> None:
    """Measure sweeps with the page's prompt and precision; a file that is chosen or dropped is drawn."""

    def measure(
        request: gr.Request, prompt: str, dtype: str, prompts: str, drafts: list, *given: Any
    ) -> Iterator[list[Any]]:
        gammas, heats, candidates, tokens = given
        options = {
            "own_set": prompts == OWN_SET,
            "drafts": drafts,
            "gammas": sorted(gammas),
            "temperatures": sorted(heats),
            "candidates": sorted(candidates),
            "max_new_tokens": tokens,
        }
        yield from stream(pages, request, lambda session: session.bench(prompt, dtype, **options), with_report)

    def show(request: gr.Request, path: str) -> str:
        page = pages.of(request.session_hash)
        number = page.next_number()
        page.ended(number)
        return Feed(number, recorded=True).add(file_event(Path(path)))

    inputs = [prompt, dtype, pane.prompts, pane.drafts, pane.gammas, pane.temperatures, pane.candidates, pane.tokens]
    pane.measure.click(measure, inputs, [pane.view, *buttons.all], **JOB).then(
        buttons_after(pages), None, buttons.all, **FREE
    )
    pane.file.upload(show, pane.file, pane.view, **FREE)


def with_report(event: Event) -> list[Event]:
    """A result comes as what the report shows of it."""
    return [event if event["type"] != "bench" else {"type": "bench", **report_data(event["bench"])}]


def file_event(path: Path) -> Event:
    """The event that draws a benchmark's file, or says why it cannot."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ValueError(f"It is larger than {FILE_BYTES_MAX // 1_000_000} MB.")
        bench = Bench.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        words = "It is not UTF-8 text." if isinstance(error, UnicodeDecodeError) else str(error)
        return {"type": "error", "message": f"{path.name} cannot be shown as a benchmark: {words}"}
    return {"type": "bench", **report_data(bench.to_dict())}
