"""Which forward a loaded model runs through: the fast path where it can (on a GPU by graphs), else transformers' own.

The choice is never silent: it is the model's `path`, which every trace carries. Held by tests/unit/test_fast.py.
"""

from __future__ import annotations

from specviz.engine.fast import FastModel
from specviz.engine.graphs import GraphModel
from specviz.engine.model import LanguageModel
from specviz.engine.weights import refuses_fast
from specviz.errors import SettingsError
from specviz.zoo.hardware import QUANTISED
from specviz.zoo.loader import LoadedModel, LoadedPair

#: `static` is the GPU's code of fixed shapes, on whatever device.
PATHS = ("auto", "transformers", "static")


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
    device = pair.device.type
    kind = GraphModel if path == "static" or device == "cuda" else FastModel
    if one.weights is not None:
        return kind(one.weights, one.config, one.name, pair.vocab_size, precision)
    asked = path == "transformers"
    reason = "It was asked to run through transformers." if asked else refuses_fast(one.config, precision, device)
    if path == "static":
        raise SettingsError(f"{one.name} cannot run in passes of fixed shapes: {reason} Choose path='auto'.")
    if precision in QUANTISED:
        raise SettingsError(f"Precision {precision} cannot be had for {one.name}: {reason} Choose bfloat16 or float32.")
    return LanguageModel(one.model, one.name, pair.vocab_size)
