"""The page's own components: static templates whose data travel in `value` and are drawn by static/*.js.

Data never enter a template, because gradio evaluates templates as code. Held by
tests/browser/test_page.py::test_hostile_text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr

STATIC = Path(__file__).resolve().parents[1] / "static"

#: In the order they depend on one another.
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
    "kept",
    "talkviews",
    "talk",
    "pane",
    "files",
    "run",
    "lane",
    "why",
    "race",
    "explore",
    "proof",
    "bench",
    "benchpane",
    "tour",
    "status",
    "controls",
    "share",
)


def _mount(function: str, events: tuple[str, ...]) -> str:
    # The scripts in the head may still be loading when gradio mounts the component. An event exists for gradio when
    # its quoted name stands in this text.
    return f"""(function boot() {{
  const events = {json.dumps(events)};
  const ask = typeof server === "undefined" ? null : server;
  if (window.specviz && window.specviz.{function}) window.specviz.{function}(element, props, watch, trigger, ask);
  else setTimeout(boot, 20);
}})();"""


class _Static(gr.HTML):
    """A gr.HTML whose template never changes and whose value is data for its script."""

    template: str
    mount: str
    #: Events that the script triggers.
    events_sent: tuple[str, ...] = ()

    def __init__(self, value: str | None = None, **kwargs: Any) -> None:
        super().__init__(
            value,
            html_template=self.template,
            js_on_load=_mount(self.mount, self.events_sent),
            apply_default_css=False,
            **kwargs,
        )

    def postprocess(self, value: str | None) -> str | None:
        # gr.HTML warns about script tags in a value; here a value is data and never becomes markup.
        return value

    def api_info(self) -> dict[str, Any]:
        return {"type": "string"}


def _template(name: str) -> str:
    return (STATIC / f"{name}.html").read_text(encoding="utf-8")


class StatusView(_Static):
    """Name, lede and the model's state; value: JSON of specviz.serve.Status."""

    template = _template("header")
    mount = "mountStatus"


class RunView(_Static):
    """One run, live or recorded; value: the text of a specviz.ui.feed.Feed."""

    template = _template("run")
    mount = "mountRun"


class RaceView(_Static):
    """One race; value: the text of a specviz.ui.feed.Feed."""

    template = _template("race")
    mount = "mountRace"


class ExploreView(_Static):
    """Charts of the last runs; no value: the script asks server function `figures`."""

    template = _template("explore")
    mount = "mountExplore"


class ProofView(_Static):
    """One proof; value: the text of a specviz.ui.feed.Feed."""

    template = _template("proof")
    mount = "mountProof"


class BenchView(_Static):
    """One benchmark; value: the text of a specviz.ui.feed.Feed."""

    template = _template("bench")
    mount = "mountBench"


class TourView(_Static):
    """The card of the tour; value: the text of specviz.ui.tour.stops_json."""

    template = _template("tour")
    mount = "mountTour"


class TalkView(_Static):
    """Words, note and place of talk mode; value: JSON of {scenes, defaults} (specviz.ui.talk). Event `fill`: the
    controls are to be set."""

    template = _template("talk")
    mount = "mountTalk"
    events_sent = ("fill",)


class ShareLine(_Static):
    """The button that copies the link, and what is to be said about it; no value."""

    template = _template("share")
    mount = "mountShare"


class Fold(_Static):
    """The button that opens the settings on a narrow screen."""

    template = '<button type="button" class="sv-fold" aria-expanded="false">Settings</button>'
    mount = "mountFold"


class Picker(_Static):
    """Radio buttons in groups, with the sentence of the chosen one below; value: the chosen value. Event `pick`: a
    person chose another.

    Args:
        words: JSON list of {value, name, sentence, group, clash}: `clash` is null or {with, values, sentence}, which
            makes it unavailable while the picker `with` stands on one of `values`.
        reasons: JSON of {value: sentence why it cannot be used, or null}.
        needs: JSON of {element id: {types, without_model}}: the controls that do nothing unless one of `types` is
            chosen, or one of `without_model` where value "model" has a reason.
    """

    template = (
        '<fieldset class="sv-picker"><legend>${legend}</legend><div class="sv-choices"></div>'
        '<p class="sv-choice-note"></p><p class="sv-choice-off"></p></fieldset>'
    )
    mount = "mountPicker"
    events_sent = ("pick",)

    def __init__(self, value: str | None = None, words: str = "[]", reasons: str = "{}", **kwargs: Any) -> None:
        super().__init__(value, words=words, reasons=reasons, **({"needs": "{}"} | kwargs))
