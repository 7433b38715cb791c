"""The page put together: panes, their events, and how it is launched.

No request leaves the machine, the prompt is never lost, and a stopped or closed page frees the model within one
step. Held by tests/browser/test_page.py.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import plotly

from specviz.ui import plots, recorded
from specviz.ui.components import SCRIPTS, STATIC, RaceView, RunView, StatusView
from specviz.ui.controls import Controls, create_controls, values
from specviz.ui.feed import Feed
from specviz.ui.pages import Pages
from specviz.ui.theme import THEME

PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
STYLES = ("page", "tokens", "panes", "gradio")
QUEUE_SIZE = 32
TICK_S = 0.5

QUIET = {"show_progress": "hidden", "api_visibility": "private"}


@dataclasses.dataclass
class Ask:
    """The prompt box, its presets and the three buttons."""

    prompt: gr.Textbox
    run: gr.Button
    stop: gr.Button
    race: gr.Button

    @property
    def buttons(self) -> list[gr.Button]:
        return [self.run, self.stop, self.race]


def _buttons(busy: bool) -> list[Any]:
    return [gr.update(interactive=not busy), gr.update(interactive=busy), gr.update(interactive=not busy)]


def _create_ask(presets: list[dict[str, Any]]) -> tuple[Ask, list[gr.Button], gr.HTML]:
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
    return Ask(prompt, run, stop, race), chips, note


def build(host: Any) -> gr.Blocks:
    """The page for one `specviz.serve.Host`."""
    pages = Pages(host)
    presets = recorded.prompts()
    gr.set_static_paths([STATIC, PLOTLY])
    with gr.Blocks(title="specviz: speculative decoding, seen", fill_width=True, analytics_enabled=False) as demo:
        status = StatusView(_status_json(host.status()), elem_id="sv-status")
        with gr.Row(elem_classes="sv-page"):
            with gr.Column(elem_classes="sv-ask"):
                ask, chips, note = _create_ask(presets)
            with gr.Column(elem_classes="sv-knobs"):
                controls = create_controls()
            with gr.Column(elem_classes="sv-stage"):
                run_view = RunView(recorded.run_feed(), elem_id="sv-run-view")
                race_view = RaceView(recorded.race_feed(), elem_id="sv-race-view")
        timer = gr.Timer(TICK_S)
        refresh = _wire_status(demo, timer, host, status, controls)
        _wire_prompt(demo, ask)
        _wire_presets(chips, presets, ask, note, controls)
        _wire_jobs(demo, pages, ask, controls, run_view, race_view, refresh)
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
    event = {"fn": tick, "outputs": outputs, "queue": False, **QUIET}
    timer.tick(**event)
    demo.load(**event)
    return event


def _wire_prompt(demo: gr.Blocks, ask: Ask) -> None:
    """The prompt outlives a reload of the page, in the browser alone."""
    keep = "text => { sessionStorage.setItem('specviz-prompt', text); }"
    ask.prompt.change(None, ask.prompt, None, js=keep, **QUIET)
    restore = "text => sessionStorage.getItem('specviz-prompt') ?? text"
    demo.load(None, ask.prompt, ask.prompt, js=restore, **QUIET)


def _wire_presets(
    chips: list[gr.Button], presets: list[dict[str, Any]], ask: Ask, note: gr.HTML, controls: Controls
) -> None:
    """A preset fills the prompt, draft type, gamma and temperature, in the browser alone."""
    filled = [controls.draft, controls.gamma, controls.temperature]
    for chip, preset in zip(chips, presets, strict=True):
        row = json.dumps([preset[name] for name in ("prompt", "note", "draft", "gamma", "temperature")])
        chip.click(None, None, [ask.prompt, note, *filled], js=f"() => {row}", **QUIET)


def _wire_jobs(
    demo: gr.Blocks,
    pages: Pages,
    ask: Ask,
    controls: Controls,
    run_view: RunView,
    race_view: RaceView,
    refresh: dict[str, Any],
) -> None:
    inputs = [ask.prompt, *controls.inputs]
    free = {"queue": False, **QUIET}

    def run(request: gr.Request, prompt: str, *given: Any) -> Iterator[list[Any]]:
        settings, dtype, _ = values(given)
        yield from _stream(pages, request, lambda session: session.run(prompt, dtype=dtype, **settings), _with_figure)

    def race(request: gr.Request, prompt: str, *given: Any) -> Iterator[list[Any]]:
        settings, dtype, rounds = values(given)
        yield from _stream(pages, request, lambda session: session.race(prompt, dtype=dtype, rounds=rounds, **settings))

    def stop(request: gr.Request) -> None:
        pages.of(request.session_hash).stop()

    def close(request: gr.Request) -> None:
        pages.close(request.session_hash)

    def idle() -> list[Any]:
        return _buttons(busy=False)

    # No limit here: the host itself lets one job at a time onto the device and tells the others their place.
    job = {"concurrency_limit": None, **QUIET}
    gr.on([ask.run.click, ask.prompt.submit], run, inputs, [run_view, *ask.buttons], **job).then(
        idle, None, ask.buttons, **free
    ).then(**refresh)
    ask.race.click(race, inputs, [race_view, *ask.buttons], **job).then(idle, None, ask.buttons, **free).then(**refresh)
    ask.stop.click(stop, **free)
    demo.unload(close)


def _with_figure(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The end of a run brings its chart along."""
    if event["type"] != "end":
        return [event]
    return [event, plots.event("position", plots.acceptance_by_position(event["summary"]))]


def _stream(
    pages: Pages,
    request: gr.Request,
    start: Callable[[Any], Iterator[list[dict[str, Any]]]],
    extend: Callable[[dict[str, Any]], list[dict[str, Any]]] = lambda event: [event],
) -> Iterator[list[Any]]:
    """One job as updates of [view, run, stop, race]; the buttons are touched once, the view's text only grows."""
    page = pages.of(request.session_hash)
    number = page.next_number()
    feed = Feed(number)
    yield [feed.text, *_buttons(busy=True)]
    for batch in page.batches(number, start(page.session)):
        yield [feed.add(*(line for event in batch for line in extend(event))), gr.skip(), gr.skip(), gr.skip()]


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
