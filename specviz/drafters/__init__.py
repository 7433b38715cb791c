"""The draft types on offer: one file each, one protocol, one registry."""

from __future__ import annotations

from specviz.drafters.model import ModelDrafter
from specviz.drafters.ngram import NgramLookup, NgramSmoothed
from specviz.drafters.plain import NoDrafter
from specviz.drafters.protocol import Drafter, Proposal

#: One sentence on each draft type, in the order they are offered (keys are `specviz.settings.DRAFTS`).
DESCRIPTIONS: dict[str, str] = {
    "none": "Plain decoding: the target alone, one token per pass.",
    "ngram": "Copies what followed the same words earlier in the prompt or the answer: certain of itself, nearly free.",
    "ngram-smoothed": "Word statistics of the text so far (Kneser–Ney), drawn at random: a real q to compare with p.",
    "model": "A smaller model with the same tokenizer writes the draft.",
}

__all__ = ["DESCRIPTIONS", "Drafter", "ModelDrafter", "NgramLookup", "NgramSmoothed", "NoDrafter", "Proposal"]
