"""The page put together: panes, their events, and how it is launched.

No request leaves the machine, the prompt is never lost, and a stopped or closed page frees the model within one
step. Held by tests/browser/test_page.py.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import plotly

from specviz.ui import plots, recorded
from specviz.ui.ask import Ask, create_ask, wire_ask
from specviz.ui.components import SCRIPTS, STATIC, RaceView, RunView, StatusView
from specviz.ui.controls import Controls, create_controls, values
from specviz.ui.jobs import FREE, JOB, Buttons, Event, buttons_after, stream
from specviz.ui.pages import Pages
from specviz.ui.proof import create_proof, wire_proof
from specviz.ui.theme import THEME

PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
STYLES = ("page", "tokens", "panes", "proof", "gradio")
QUEUE_SIZE = 32
TICK_S = 0.5


def build(host: Any) -> gr.Blocks:
    """The page for one `specviz.serve.Host`."""
    pages = Pages(host)
    presets = recorded.prompts()
    gr.set_static_paths([STATIC, PLOTLY])
    with gr.Blocks(title="specviz: speculative decoding, seen", fill_width=True, analytics_enabled=False) as demo:
        status = StatusView(_status_json(host.status()), elem_id="sv-status")
        with gr.Row(elem_classes="sv-page"):
            with gr.Column(elem_classes="sv-ask"):
                ask = create_ask(presets)
            with gr.Column(elem_classes="sv-knobs"):
                controls = create_controls()
            with gr.Column(elem_classes="sv-stage"):
                run_view = RunView(recorded.run_feed(), elem_id="sv-run-view")
                race_view = RaceView(recorded.race_feed(), elem_id="sv-race-view")
                proof = create_proof()
        timer = gr.Timer(TICK_S)
        refresh = _wire_status(demo, timer, host, status, controls)
        buttons = Buttons(ask.run, ask.race, proof.prove, ask.stop)
        wire_ask(demo, ask, presets, controls)
        _wire_jobs(pages, ask, controls, buttons, run_view, race_view, refresh)
        _wire_live(demo, pages, ask, controls)
        wire_proof(pages, proof, buttons)
    return demo


def _status_json(status: Any) -> str:
    return json.dumps(dataclasses.asdict(status))


def _wire_status(demo: gr.Blocks, timer: gr.Timer, host: Any, view: StatusView, controls: Controls) -> dict[str, Any]:
    """The header follows the host until the model is ready or has failed; then the ticking ends.

    Returns the arguments of the event that asks once more, because a run loads a model that had failed to load.
    """

    def tick() -> list[Any]:
        status = host.status()
        if status.state == "loading":
            return [_status_json(status), gr.skip(), gr.skip(), gr.skip()]
        if status.state == "failed":
            return [_status_json(status), gr.skip(), gr.skip(), gr.Timer(active=False)]
        reasons = gr.update(reasons=json.dumps(status.drafts))
        choices = list(dict.fromkeys(["auto", *status.dtypes]))
        return [_status_json(status), reasons, gr.update(choices=choices), gr.Timer(active=False)]

    outputs = [view, controls.draft, controls.dtype, timer]
    event = {"fn": tick, "outputs": outputs, **FREE}
    timer.tick(**event)
    demo.load(**event)
    return event


def _wire_jobs(
    pages: Pages,
    ask: Ask,
    controls: Controls,
    buttons: Buttons,
    run_view: RunView,
    race_view: RaceView,
    refresh: dict[str, Any],
) -> None:
    """Run and Race."""
    inputs = [ask.prompt, *controls.inputs]

    def run(request: gr.Request, prompt: str, *given: Any) -> Iterator[list[Any]]:
        settings, dtype, _ = values(given)
        yield from stream(pages, request, lambda session: session.run(prompt, dtype=dtype, **settings), _with_figure)

    def race(request: gr.Request, prompt: str, *given: Any) -> Iterator[list[Any]]:
        settings, dtype, rounds = values(given)
        yield from stream(pages, request, lambda session: session.race(prompt, dtype=dtype, rounds=rounds, **settings))

    after = {"fn": buttons_after(pages), "outputs": buttons.all, **FREE}
    gr.on([ask.run.click, ask.prompt.submit], run, inputs, [run_view, *buttons.all], **JOB).then(**after).then(
        **refresh
    )
    ask.race.click(race, inputs, [race_view, *buttons.all], **JOB).then(**after).then(**refresh)


def _wire_live(demo: gr.Blocks, pages: Pages, ask: Ask, controls: Controls) -> None:
    """What reaches into a job that is going on: Stop, leaving the page, and another draft type."""

    def stop(request: gr.Request) -> None:
        pages.of(request.session_hash).stop()

    def close(request: gr.Request) -> None:
        pages.close(request.session_hash)

    def swap(request: gr.Request, draft: str) -> None:
        pages.of(request.session_hash).session.swap(draft)

    ask.stop.click(stop, **FREE)
    demo.unload(close)
    # `pick` is what a person chose; a preset that fills the picker is for the next run.
    controls.draft.pick(swap, controls.draft, None, trigger_mode="multiple", **FREE)


def _with_figure(event: Event) -> list[Event]:
    """The end of a run brings its chart along."""
    if event["type"] != "end":
        return [event]
    return [event, plots.event("position", plots.acceptance_by_position(event["summary"]))]


def _head() -> str:
    """Script tags for files of this machine only; the time of change in the address defeats stale caches."""
    scripts = [STATIC / f"{name}.js" for name in SCRIPTS]
    tags = [f'<script src="{_address(file)}?v={int(file.stat().st_mtime)}"></script>' for file in scripts]
    return "\n".join([*tags, f'<script async src="{_address(PLOTLY)}"></script>'])


def _address(file: Path) -> str:
    return f"gradio_api/file={urllib.parse.quote(file.as_posix())}"


def launch(demo: gr.Blocks, **options: Any) -> Any:
    """Serve the page; `options` go to `Blocks.launch` and win over what is set here."""
    css = "\n".join((STATIC / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)
    settings = {
        "css": css,
        "head": _head(),
        "theme": THEME,
        "ssr_mode": False,
        "run_history": False,
        "footer_links": [],
        "share": False,
    }
    known = inspect.signature(demo.launch).parameters
    settings = {name: value for name, value in settings.items() if name in known}
    return demo.queue(max_size=QUEUE_SIZE).launch(**settings | options)
