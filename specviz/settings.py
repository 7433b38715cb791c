"""Decoding settings: every default and every bound of the product stands here and nowhere else.

App, command line and Python API build a `Settings` through `Settings.of`, so one sentence serves all three.
Held by tests/unit/test_settings.py.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import reprlib
from dataclasses import dataclass
from typing import Any

from specviz.errors import SettingsError

GAMMA_MIN, GAMMA_MAX = 1, 16
TEMPERATURE_MAX = 100.0  # the page offers 0 to 2; the engine is tested up to here
SEED_MAX = 2**63 - 1
CANDIDATES_MIN, CANDIDATES_MAX = 1, 4
#: What the draft types are called in sentences.
TITLES = {
    "none": "plain decoding",
    "ngram": "n-gram lookup",
    "ngram-smoothed": "smoothed n-gram drafting",
    "model": "the draft model",
    "eagle": "the trained head",
    "eagle-tree": "a tree of the trained head",
    "medusa": "medusa heads",
    "feedforward": "feed-forward drafting",
    "layer_skip": "layer skipping",
    "hybrid": "hybrid drafting",
    "tree": "a sampled tree",
    "tree-dynamic": "a dynamic tree",
    "pool": "a pool of drafts",
}
DRAFTS = tuple(TITLES)
#: Draft types whose proposals branch.
TREES = ("eagle-tree", "medusa", "tree", "tree-dynamic", "pool")
RULES = ("rejection", "block", "coupled")


@dataclass(frozen=True, slots=True)
class Settings:
    """What decides the output of a run, besides the models and the prompt.

    `chat` None means: apply the chat template when the tokenizer has one. `eos_token_id` None means the model's own.
    `gamma` is how many tokens deep a step drafts, unless the draft has nothing to say or the context ends; when
    `adaptive`, the most it may choose. A draft stops behind a token whose own confidence is below `min_confidence`.
    `candidates` is the number of drafters in a pool and of children of a tree's node. `exit_layer` is where
    `layer_skip` leaves the target, 0 for half its layers. `verify` names the acceptance rule. `top_k` 0, `top_p` 1,
    `min_p` 0, `repetition_penalty` 1 and `frequency_penalty` 0 are off.
    """

    draft: str = "hybrid"
    gamma: int = 4
    adaptive: bool = False
    min_confidence: float = 0.0
    candidates: int = 2
    exit_layer: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = dataclasses.field(default_factory=dict)
    seed: int = 0
    max_new_tokens: int = 128
    verify: str = "rejection"
    chat: bool | None = None
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    eos_token_id: tuple[int, ...] | None = None

    @classmethod
    def of(cls, **given: Any) -> Settings:
        """Settings from keywords, checked and in canonical types.

        Raises:
            SettingsError: an unknown keyword, or a value out of bounds; the sentence names it.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"the settings are {', '.join(names)}."
                raise SettingsError(f"Unknown setting {name!r}: {hint}")
        values = {name: _CHECKS[name](value) for name, value in given.items()}
        if values.get("draft") == "none":
            values["gamma"], values["adaptive"] = 0, False
        return cls(**values)._checked()

    def _checked(self) -> Settings:
        if self.verify == "block" and self.draft in TREES:
            raise SettingsError(
                f"Rule 'block' verifies a chain as one block and draft type {self.draft!r} proposes a tree: "
                "choose rule rejection or coupled, or another draft type."
            )
        return self

    def with_draft(self, draft: str) -> Settings:
        """A copy for another draft type.

        Raises:
            SettingsError: an unknown type, or one that the rule cannot verify.
        """
        return dataclasses.replace(self, draft=_CHECKS["draft"](draft))._checked()

    def given(self) -> dict[str, Any]:
        """The fields as keywords for `Settings.of`."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.draft == "none":
            del fields["gamma"]
        return fields

    def replace(self, **changes: Any) -> Settings:
        """A copy with some fields changed to values that are already canonical."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; keys of `logit_bias` become text, as JSON wants."""
        data = dataclasses.asdict(self)
        data["stop"] = list(self.stop)
        data["eos_token_id"] = None if self.eos_token_id is None else list(self.eos_token_id)
        data["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        return data


def _number(name: str, low: float, high: float, what: str = ""):
    def check(value: Any) -> float:
        if value is None:
            raise SettingsError(f"{name} is empty: give a number.")
        # Compared before it is converted: a whole number may be too large for a float. NaN fails both comparisons.
        if not isinstance(value, numbers.Real) or isinstance(value, bool) or not (value >= low and value <= high):
            raise SettingsError(f"{name} must be a number from {low:g} to {high:g}, not {shown(value)}{what}.")
        return float(value)

    return check


def _integer(name: str, low: int, high: int | None = None, what: str = ""):
    def check(value: Any) -> int:
        if value is None:
            raise SettingsError(f"{name} is empty: give a whole number.")
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        whole = number and (isinstance(value, numbers.Integral) or (math.isfinite(value) and value == int(value)))
        if not whole or value < low or (high is not None and value > high):
            bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
            raise SettingsError(f"{name} must be a whole number {bounds}, not {shown(value)}{what}.")
        return int(value)

    return check


def shown(value: Any) -> str:
    """The value as a sentence names it: as Python writes it, cut short where it is long."""
    return reprlib.repr(value)


def _choice(name: str, choices: tuple[str, ...]):
    def check(value: Any) -> str:
        if value not in choices:
            raise SettingsError(f"Unknown {name} {shown(value)}: choose one of {', '.join(choices)}.")
        return value

    return check


def _flag(name: str, maybe: bool = False):
    def check(value: Any) -> bool | None:
        if not isinstance(value, bool) and not (maybe and value is None):
            raise SettingsError(f"{name} must be true or false, not {shown(value)}.")
        return value

    return check


def _stop(value: Any) -> tuple[str, ...]:
    if value is not None and not isinstance(value, (str, list, tuple)):
        raise SettingsError(f"stop must be a text or a list of texts, not {shown(value)}.")
    texts = (value,) if isinstance(value, str) else tuple(value or ())
    for text in texts:
        if not isinstance(text, str) or not text or any("\ud800" <= c <= "\udfff" for c in text):
            raise SettingsError(f"A stop text must be a non-empty text of whole characters, not {shown(text)}.")
    return texts


def _token_ids(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    ids = value if isinstance(value, (list, tuple, set)) else (value,)
    check = _integer("eos_token_id", 0)
    return tuple(check(token) for token in ids)


def _logit_bias(value: Any) -> dict[int, float]:
    token, bias = _integer("A token id in logit_bias", 0), _number("A bias in logit_bias", -1e4, 1e4)
    if not isinstance(value, dict):
        raise SettingsError(f"logit_bias must map token ids to numbers, not {shown(value)}.")
    return {
        token(int(key) if isinstance(key, str) and key.isdecimal() else key): bias(amount)
        for key, amount in value.items()
    }


_CHECKS = {
    "draft": _choice("draft type", DRAFTS),
    "gamma": _integer("gamma", GAMMA_MIN, GAMMA_MAX, " (for plain decoding choose the draft type none)"),
    "adaptive": _flag("adaptive"),
    "min_confidence": _number("min_confidence", 0.0, 1.0),
    "candidates": _integer("candidates", CANDIDATES_MIN, CANDIDATES_MAX),
    "exit_layer": _integer("exit_layer", 0),
    "temperature": _number("temperature", 0.0, TEMPERATURE_MAX),
    "top_k": _integer("top_k", 0),
    "top_p": _number("top_p", 0.0, 1.0),
    "min_p": _number("min_p", 0.0, 1.0),
    "repetition_penalty": _number("repetition_penalty", 0.01, 100.0),
    "frequency_penalty": _number("frequency_penalty", -100.0, 100.0),
    "logit_bias": _logit_bias,
    "seed": _integer("seed", 0, SEED_MAX),
    "max_new_tokens": _integer("max_new_tokens", 1),
    "verify": _choice("verification rule", RULES),
    "chat": _flag("chat", maybe=True),
    "ignore_eos": _flag("ignore_eos"),
    "stop": _stop,
    "eos_token_id": _token_ids,
}
