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

from specviz.ui import recorded
from specviz.ui.ask import Ask, create_ask, wire_ask
from specviz.ui.bench import create_bench, wire_bench
from specviz.ui.components import SCRIPTS, STATIC, RaceView, RunView, StatusView, TourView
from specviz.ui.controls import Controls, also_choices, create_controls, race_options, values
from specviz.ui.explore import create_explore
from specviz.ui.explore_plots import with_curves
from specviz.ui.figures import RunFigures
from specviz.ui.files import open_file, replay_shell
from specviz.ui.jobs import FREE, JOB, Buttons, Event, buttons_after, stream
from specviz.ui.pages import Pages
from specviz.ui.proof import create_proof, wire_proof
from specviz.ui.share import create_share, wire_share
from specviz.ui.talk import create_talk, wire_talk
from specviz.ui.theme import THEME
from specviz.ui.tour import stops_json

PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
STYLES = ("page", "tokens", "panes", "timeline", "scope", "race", "explore", "proof", "bench", "gradio", "tour", "talk")
QUEUE_SIZE = 32
TICK_S = 0.5


def build(host: Any, talk: str | None = None) -> gr.Blocks:
    """The page for one `specviz.serve.Host`.

    Args:
        talk: file with the sequence of talk mode; None for the one that ships with the page.

    Raises:
        SettingsError: `talk` cannot be read or is not a sequence.
    """
    pages = Pages(host)
    presets = recorded.prompts()
    gr.set_static_paths([STATIC, PLOTLY])
    with gr.Blocks(title="specviz: speculative decoding, seen", fill_width=True, analytics_enabled=False) as demo:
        status = StatusView(_status_json(host.status()), elem_id="sv-status")
        TourView(stops_json(), elem_id="sv-tour-view")
        with gr.Row(elem_classes="sv-page"):
            with gr.Column(elem_classes="sv-ask"):
                ask = create_ask(presets)
                create_share()
            with gr.Column(elem_classes="sv-knobs"):
                controls = create_controls()
            with gr.Column(elem_classes="sv-stage"):
                run_view = RunView(
                    recorded.run_feed(), elem_id="sv-run-view", server_functions=[open_file, replay_shell]
                )
                race_view = RaceView(recorded.race_feed(), elem_id="sv-race-view", server_functions=[replay_shell])
                create_explore()
                bench = create_bench()
                proof = create_proof()
        shown = create_talk(ask, controls, talk)
        timer = gr.Timer(TICK_S)
        refresh = _wire_status(demo, timer, host, status, controls)
        buttons = Buttons(ask.run, ask.race, proof.prove, bench.measure, ask.stop)
        wire_ask(ask, presets, controls)
        wire_talk(shown, wire_share(demo, ask, controls))
        _wire_jobs(pages, ask, controls, buttons, run_view, race_view, refresh)
        _wire_live(demo, pages, ask, controls)
        wire_proof(pages, proof, buttons)
        wire_bench(pages, bench, ask.prompt, controls.dtype, buttons)
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
            return [_status_json(status), gr.skip(), gr.skip(), gr.skip(), gr.skip()]
        if status.state == "failed":
            return [_status_json(status), gr.skip(), gr.skip(), gr.skip(), gr.Timer(active=False)]
        reasons = gr.update(reasons=json.dumps(status.drafts))
        choices = list(dict.fromkeys(["auto", *status.dtypes]))
        also = gr.update(choices=also_choices(status.drafts))
        return [_status_json(status), reasons, also, gr.update(choices=choices), gr.Timer(active=False)]

    outputs = [view, controls.draft, controls.also, controls.dtype, timer]
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
    # The browser fills it in as it sends a run: how many choices of draft the run's settings know of.
    picks = gr.Number(0, visible=False)

    def run(request: gr.Request, prompt: str, *given: Any) -> Iterator[list[Any]]:
        def begin(_: Any) -> Iterator[list[Event]]:
            settings, dtype, _ = values(given[:-1])
            return pages.of(request.session_hash).begin_run(int(given[-1]), prompt, dtype=dtype, **settings)

        yield from stream(pages, request, begin, RunFigures())

    def race(request: gr.Request, prompt: str, *given: Any) -> Iterator[list[Any]]:
        def begin(session: Any) -> Iterator[list[Event]]:
            settings, dtype, chosen = values(given)
            return session.race(prompt, dtype=dtype, **race_options(settings, chosen))

        yield from stream(pages, request, begin, with_curves)

    after = {"fn": buttons_after(pages), "outputs": buttons.all, **FREE}
    count = "(...given) => [...given.slice(0, -1), window.specviz.picks]"
    gr.on([ask.run.click, ask.prompt.submit], run, [*inputs, picks], [run_view, *buttons.all], js=count, **JOB).then(
        **after
    ).then(**refresh)
    ask.race.click(race, inputs, [race_view, *buttons.all], **JOB).then(**after).then(**refresh)


def _wire_live(demo: gr.Blocks, pages: Pages, ask: Ask, controls: Controls) -> None:
    """What reaches into a job that is going on: Stop, leaving the page, and another draft type."""

    def stop(request: gr.Request) -> None:
        pages.of(request.session_hash).stop()

    def close(request: gr.Request) -> None:
        pages.close(request.session_hash)

    def swap(request: gr.Request, event: gr.EventData) -> None:
        pages.of(request.session_hash).swap(event.number, event.value)

    ask.stop.click(stop, **FREE)
    demo.unload(close)
    # `pick` is what a person chose; a preset that fills the picker is for the next run.
    controls.draft.pick(swap, None, None, trigger_mode="multiple", **FREE)


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
