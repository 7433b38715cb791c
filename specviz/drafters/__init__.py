"""The draft types on offer: one file each, one protocol, one registry."""

from __future__ import annotations

from collections.abc import Callable

from specviz.drafters.model import ModelDrafter
from specviz.drafters.ngram import NgramLookup, NgramSmoothed
from specviz.drafters.plain import NoDrafter
from specviz.drafters.protocol import Drafter, Proposal
from specviz.engine.model import LanguageModel

#: How each draft type of `specviz.settings.DRAFTS` is made, from the target and the draft model (None without one).
MAKERS: dict[str, Callable[[LanguageModel, LanguageModel | None], Drafter]] = {
    "none": lambda target, draft_model: NoDrafter(),
    "ngram": lambda target, draft_model: NgramLookup(),
    "ngram-smoothed": lambda target, draft_model: NgramSmoothed(target.vocab_size, target.device),
    "model": lambda target, draft_model: ModelDrafter(draft_model, target.device),
}

__all__ = ["MAKERS", "Drafter", "ModelDrafter", "NgramLookup", "NgramSmoothed", "NoDrafter", "Proposal"]
