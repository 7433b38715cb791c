"""The settings pane: one control for each setting a viewer may change, starting at the defaults of Settings.

Bounds are for comfort only; `Settings.of` is what checks. Held by tests/unit/test_ui.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gradio as gr

from specviz.errors import SettingsError
from specviz.lab.race.entrants import DRAFTS_MAX
from specviz.settings import CANDIDATES_MAX, CANDIDATES_MIN, GAMMA_MAX, GAMMA_MIN, Settings
from specviz.ui.components import Fold, Picker
from specviz.ui.words import DRAFT_WORDS, NEEDS, draft_words, rule_words

MAX_NEW_TOKENS = 2048
#: Whole numbers a browser holds exactly: it rounds larger ones before they come here, and in what it shows of a run.
SAFE_WHOLE = 2**53 - 1
ROUNDS = 3
WAITING = {"model": "known once the target model has loaded."}


@dataclass
class Controls:
    """The components of the pane; `inputs` is the order in which `values` reads them."""

    draft: Picker
    candidates: gr.Radio
    verify: Picker
    gamma: gr.Slider
    adaptive: gr.Checkbox
    temperature: gr.Slider
    max_new_tokens: gr.Slider
    seed: gr.Number
    top_p: gr.Slider
    top_k: gr.Number
    min_p: gr.Slider
    repetition_penalty: gr.Slider
    frequency_penalty: gr.Slider
    min_confidence: gr.Slider
    exit_layer: gr.Number
    chat: gr.Checkbox
    dtype: gr.Dropdown
    rounds: gr.Slider
    also: gr.Dropdown

    @property
    def inputs(self) -> list[gr.components.Component]:
        return list(vars(self).values())


def values(given: tuple[Any, ...]) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """(settings, dtype, {rounds, also} of a race) from the components' values in the order of `Controls.inputs`.

    Raises:
        SettingsError: a seed that is no longer the one that was typed.
    """
    named = dict(zip(Controls.__dataclass_fields__, given, strict=True))
    if isinstance(named["seed"], (int, float)) and named["seed"] > SAFE_WHOLE:
        raise SettingsError(
            f"The seed is too large for a browser, which rounds whole numbers above {SAFE_WHOLE} (2^53 - 1): take a "
            "smaller one, or run it in a terminal with --seed."
        )
    dtype, race = named.pop("dtype") or "auto", {name: named.pop(name) for name in ("rounds", "also")}
    # Ticked means "where the tokenizer has a template", which is what None says.
    named["chat"] = None if named["chat"] else False
    return named, dtype, race


def race_options(settings: dict[str, Any], race: dict[str, Any]) -> dict[str, Any]:
    """What `values` gives, as options of a race: the chosen draft and those that race along."""
    own = {name: value for name, value in settings.items() if name != "draft"}
    drafts = list(dict.fromkeys([settings["draft"], *(race["also"] or ())]))
    # Plain decoding has a lane of its own, unless there is nothing else.
    drafting = [draft for draft in drafts if draft != "none"] or drafts
    return {**own, "rounds": race["rounds"], "drafts": drafting}


def create_controls() -> Controls:
    """The pane, created in the current gradio context."""
    default = Settings()
    Fold()
    with gr.Column(elem_classes="sv-knobs-body"):
        found = _create_drafting(default) | _create_also() | _create_sampling(default)
        with gr.Accordion("More settings", open=False, elem_id="sv-more"):
            found |= _create_more(default)
    return Controls(**{name: found[name] for name in Controls.__dataclass_fields__})


def _slider(name: str, low: float, high: float, value: float, step: float, label: str, info: str) -> gr.Slider:
    return gr.Slider(low, high, value, step=step, label=label, info=info, elem_id=f"sv-{name}")


def _create_drafting(default: Settings) -> dict[str, Any]:
    """How drafts are made and judged."""
    draft = Picker(
        default.draft,
        draft_words(),
        json.dumps(WAITING),
        name="draft",
        legend="Draft type",
        needs=json.dumps(NEEDS),
        elem_id="sv-draft-picker",
    )
    candidates = gr.Radio(
        list(range(CANDIDATES_MIN, CANDIDATES_MAX + 1)),
        value=default.candidates,
        label="Candidates",
        info="drafts in a pool, branches at a tree's node",
        elem_id="sv-candidates",
    )
    verify = Picker(default.verify, rule_words(), name="rule", legend="Acceptance rule", elem_id="sv-rule-picker")
    gamma = _slider("gamma", GAMMA_MIN, GAMMA_MAX, default.gamma, 1, "Gamma", "how many tokens ahead a step drafts")
    adaptive = gr.Checkbox(
        default.adaptive,
        label="Adaptive",
        info="chooses gamma step by step, up to this; drafts nothing where it does not pay",
        elem_id="sv-adaptive",
    )
    return {"draft": draft, "candidates": candidates, "verify": verify, "gamma": gamma, "adaptive": adaptive}


def also_choices(reasons: dict[str, str | None]) -> list[tuple[str, str]]:
    """Draft types that can be used, with their names."""
    return [
        (title, kind)
        for rows in DRAFT_WORDS.values()
        for kind, title, _ in rows
        if kind != "none" and not reasons.get(kind)
    ]


def _create_also() -> dict[str, Any]:
    """Further lanes of a race."""
    also = gr.Dropdown(
        also_choices(WAITING),
        value=[],
        multiselect=True,
        max_choices=DRAFTS_MAX - 1,
        label="Also race against",
        info=f"up to {DRAFTS_MAX - 1} more drafts, a lane each",
        elem_id="sv-also",
    )
    return {"also": also}


def _create_sampling(default: Settings) -> dict[str, Any]:
    """What every run needs."""
    return {
        "temperature": _slider(
            "temperature", 0, 2, default.temperature, 0.05, "Temperature", "0 takes the most likely token"
        ),
        "max_new_tokens": _slider(
            "length", 1, MAX_NEW_TOKENS, default.max_new_tokens, 1, "Length", "new tokens at most"
        ),
    }


def _create_more(default: Settings) -> dict[str, Any]:
    """What most runs leave alone."""
    with gr.Row(elem_classes="sv-pair"):
        seed = gr.Number(default.seed, label="Seed", info="of all draws", elem_id="sv-seed")
        top_k = gr.Number(default.top_k, label="Top-k", info="0 is off", elem_id="sv-top-k")
    top_p = _slider("top-p", 0, 1, default.top_p, 0.01, "Top-p", "1 is off")
    min_p = _slider("min-p", 0, 1, default.min_p, 0.01, "Min-p", "0 is off")
    repetition = _slider(
        "repetition-penalty", 0.5, 2, default.repetition_penalty, 0.05, "Repetition penalty", "1 is off"
    )
    frequency = _slider("frequency-penalty", -2, 2, default.frequency_penalty, 0.1, "Frequency penalty", "0 is off")
    confidence = _slider(
        "min-confidence", 0, 1, default.min_confidence, 0.05, "Least confidence", "a draft stops below it; 0 is off"
    )
    with gr.Row(elem_classes="sv-pair"):
        exit_layer = gr.Number(
            default.exit_layer, label="Exit layer", info="layers used; 0 is half", elem_id="sv-exit-layer"
        )
        dtype = gr.Dropdown(["auto"], value="auto", label="Precision", info="auto asks the chip", elem_id="sv-dtype")
    chat = gr.Checkbox(
        default.chat is not False,
        label="Chat template",
        info="off: the model just continues the text",
        elem_id="sv-chat",
    )
    rounds = _slider("rounds", 1, 9, ROUNDS, 1, "Rounds of the race", "more rounds, narrower range")
    return {
        "seed": seed,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition,
        "frequency_penalty": frequency,
        "min_confidence": confidence,
        "exit_layer": exit_layer,
        "dtype": dtype,
        "chat": chat,
        "rounds": rounds,
    }
