"""What a link may hold: every decoding setting of the page, with the bounds of its control."""

from __future__ import annotations

import gradio as gr

from specviz.settings import DRAFTS, Settings
from specviz.ui.controls import create_controls
from specviz.ui.share import OWN_TO_THE_MACHINE, link_spec


def test_every_setting_has_its_kind_and_its_default_is_allowed():
    with gr.Blocks():
        spec = link_spec(create_controls())
    defaults = Settings().to_dict()
    assert set(spec) <= set(defaults)
    assert not set(spec) & set(OWN_TO_THE_MACHINE)
    assert spec["draft"]["choices"] == list(DRAFTS)
    for name, entry in spec.items():
        if entry["kind"] in ("whole", "number"):
            assert entry["low"] <= entry["default"] <= entry["high"], name
            checked = Settings.of(**{name: entry["low"]}), Settings.of(**{name: entry["high"]})
            assert all(checked)
        elif entry["kind"] == "choice":
            assert entry["default"] in entry["choices"]
    assert {name for name, entry in spec.items() if entry["kind"] == "flag"} == {"adaptive", "chat"}
