"""Which forward a loaded model runs through: the CPU's fast path where it can, else transformers' own.

The choice is never silent: it is the model's `path`, which every trace carries. Held by tests/unit/test_fast.py.
"""

from __future__ import annotations

from specviz.engine.fast import FastModel, read_weights, refuses_fast
from specviz.engine.model import LanguageModel
from specviz.errors import SettingsError
from specviz.zoo.hardware import QUANTISED
from specviz.zoo.loader import LoadedModel, LoadedPair

PATHS = ("auto", "transformers")


def language_models(loaded: LoadedPair, path: str = "auto") -> tuple[LanguageModel, LanguageModel | None]:
    """(target, draft model or None) ready to run; the same weights twice are packed once.

    Raises:
        SettingsError: an unknown path, or a precision that this model cannot run in.
    """
    if path not in PATHS:
        raise SettingsError(f"Unknown path {path!r}: choose one of {', '.join(PATHS)}.")
    target = _language_model(loaded.target, loaded, path)
    if loaded.draft is None:
        return target, None
    if loaded.draft is loaded.target and isinstance(target, FastModel):
        return target, target.twin()
    return target, _language_model(loaded.draft, loaded, path)


def _language_model(one: LoadedModel, pair: LoadedPair, path: str) -> LanguageModel:
    precision = pair.precision
    if one.weights is not None and path == "auto":
        return FastModel(one.weights, one.config, one.name, pair.vocab_size, precision)
    reason = "It was asked to run through transformers." if path != "auto" else refuses_fast(one.model, precision)
    if reason is None:
        return FastModel(read_weights(one.model, precision), one.config, one.name, pair.vocab_size, precision)
    if precision in QUANTISED:
        raise SettingsError(f"Precision {precision} cannot be had for {one.name}: {reason} Choose bfloat16 or float32.")
    return LanguageModel(one.model, one.name, pair.vocab_size)
