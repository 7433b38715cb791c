"""A job of a page (run, race, ...) as updates of its components: one at a time, ended by Stop or by leaving.

Held by tests/browser/test_page.py::test_stop_and_restart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from specviz.errors import SettingsError
from specviz.ui.feed import Feed
from specviz.ui.pages import Pages

QUIET = {"show_progress": "hidden", "api_visibility": "private"}
FREE = {"queue": False, **QUIET}
# No limit here: the host itself lets one job at a time onto the device and tells the others their place.
JOB = {"concurrency_limit": None, **QUIET}

Event = dict[str, Any]


@dataclass
class Buttons:
    """What begins and ends jobs."""

    run: gr.Button
    race: gr.Button
    prove: gr.Button
    bench: gr.Button
    stop: gr.Button

    @property
    def all(self) -> list[gr.Button]:
        return [self.run, self.race, self.prove, self.bench, self.stop]


#: How many `Buttons` there are; the last one stops.
BUTTONS = len(dataclasses.fields(Buttons))


def as_alone(event: Event) -> list[Event]:
    """An event that brings nothing along."""
    return [event]


def stream(
    pages: Pages,
    request: gr.Request,
    start: Callable[[Any], Iterator[list[Event]]],
    extend: Callable[[Event], list[Event]] = as_alone,
) -> Iterator[list[Any]]:
    """One job as updates of [view, *Buttons.all]; the buttons are touched once, the view's text only grows.

    Args:
        start: begins the job with the page's session; a SettingsError that it raises is told in the view.
        extend: what an event is sent as, itself included.
    """
    page = pages.of(request.session_hash)
    number = page.next_number()
    feed = Feed(number)
    try:
        yield [feed.text, *_states(busy=True)]
        try:
            events = start(page.session)
        except SettingsError as error:
            events = _refused(error)
        for batch in page.batches(number, events):
            yield [feed.add(*(line for event in batch for line in extend(event))), *[gr.skip()] * BUTTONS]
    finally:
        page.ended(number)


def _refused(error: SettingsError) -> Iterator[list[Event]]:
    """A job that never began."""
    yield [{"type": "error", "message": str(error)}]


def buttons_after(pages: Pages) -> Callable[[gr.Request], list[Any]]:
    """What sets `Buttons.all` behind a job: at rest, unless another job has taken over from it (Shift+Enter)."""

    def settle(request: gr.Request) -> list[Any]:
        return _states(busy=pages.of(request.session_hash).busy)

    return settle


def _states(busy: bool) -> list[Any]:
    return [*[gr.update(interactive=not busy)] * (BUTTONS - 1), gr.update(interactive=busy)]
