"""The settings pane: one control for each setting a viewer may change, starting at the defaults of Settings.

Bounds are for comfort only; `Settings.of` is what checks. Held by tests/unit/test_ui.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gradio as gr

from specviz.settings import GAMMA_MAX, GAMMA_MIN, Settings
from specviz.ui.components import DraftPicker, Fold

DRAFT_WORDS = (
    (
        "ngram",
        "N-gram lookup",
        "Copies what followed the same words earlier in the text. Drafting costs next to nothing.",
    ),
    ("ngram-smoothed", "Smoothed n-gram", "A small statistical model (Kneser–Ney) of the text so far, with a real q."),
    ("model", "Draft model", "A smaller language model that shares the target's tokenizer."),
    ("none", "Plain decoding", "No draft: one token for each target pass. The baseline."),
)
MAX_NEW_TOKENS = 512
ROUNDS = 3


@dataclass
class Controls:
    """The components of the pane; `inputs` is the order in which `values` reads them."""

    draft: DraftPicker
    gamma: gr.Slider
    temperature: gr.Slider
    max_new_tokens: gr.Slider
    seed: gr.Number
    top_p: gr.Slider
    top_k: gr.Number
    chat: gr.Checkbox
    dtype: gr.Dropdown
    rounds: gr.Slider

    @property
    def inputs(self) -> list[gr.components.Component]:
        return list(vars(self).values())


def values(given: tuple[Any, ...]) -> tuple[dict[str, Any], str, int]:
    """(settings, dtype, rounds) from the components' values in the order of `Controls.inputs`."""
    named = dict(zip(Controls.__dataclass_fields__, given, strict=True))
    dtype, rounds = named.pop("dtype") or "auto", named.pop("rounds")
    # Ticked means "where the tokenizer has a template", which is what None says.
    named["chat"] = None if named["chat"] else False
    return named, dtype, rounds


def create_controls() -> Controls:
    """The pane, created in the current gradio context."""
    default = Settings()
    Fold()
    with gr.Column(elem_classes="sv-knobs-body"):
        draft = DraftPicker(
            default.draft,
            DRAFT_WORDS,
            json.dumps({"model": "Known once the target model has loaded."}),
            elem_id="sv-draft-picker",
        )
        gamma = gr.Slider(
            GAMMA_MIN,
            GAMMA_MAX,
            default.gamma,
            step=1,
            label="Gamma",
            info="tokens drafted in a step",
            elem_id="sv-gamma",
        )
        temperature = gr.Slider(
            0,
            2,
            default.temperature,
            step=0.05,
            label="Temperature",
            info="0 takes the most likely token",
            elem_id="sv-temperature",
        )
        length = gr.Slider(
            1,
            MAX_NEW_TOKENS,
            default.max_new_tokens,
            step=1,
            label="Length",
            info="new tokens at most",
            elem_id="sv-length",
        )
        with gr.Accordion("More settings", open=False, elem_id="sv-more"):
            seed = gr.Number(default.seed, label="Seed", precision=0, elem_id="sv-seed")
            top_p = gr.Slider(0, 1, default.top_p, step=0.01, label="Top-p", info="1 is off", elem_id="sv-top-p")
            top_k = gr.Number(default.top_k, label="Top-k", info="0 is off", precision=0, elem_id="sv-top-k")
            chat = gr.Checkbox(
                default.chat is not False,
                label="Chat template",
                info="off: the model just continues the text",
                elem_id="sv-chat",
            )
            dtype = gr.Dropdown(
                ["auto"], value="auto", label="Precision", info="auto asks the hardware", elem_id="sv-dtype"
            )
            rounds = gr.Slider(
                1,
                9,
                ROUNDS,
                step=1,
                label="Rounds of the race",
                info="more rounds, narrower range",
                elem_id="sv-rounds",
            )
    return Controls(draft, gamma, temperature, length, seed, top_p, top_k, chat, dtype, rounds)
