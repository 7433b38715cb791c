"""What the pickers say of every draft type and every acceptance rule: one sentence each, and what cannot go together.

Held by tests/unit/test_ui.py (every type and rule has its words) and tests/browser/test_controls.py.
"""

from __future__ import annotations

import json
from typing import Any

from specviz.drafters.hybrid import TRUSTED_MATCH
from specviz.settings import DRAFTS, TREES

#: (type, name, sentence) by group, in the order of the page.
DRAFT_WORDS = {
    "Baseline": (("none", "Plain decoding", "No draft: one token for each target pass."),),
    "Copying": (
        (
            "ngram",
            "N-gram lookup",
            "copies what followed the same words earlier in the text. Drafting costs next to nothing.",
        ),
        (
            "ngram-smoothed",
            "Smoothed n-gram",
            "draws from word statistics of the text so far (Kneser–Ney): it guesses where nothing can be copied, too.",
        ),
    ),
    "Models": (
        (
            "model",
            "Draft model",
            "is a smaller language model with the target's tokenizer, or a few layers distilled from the target.",
        ),
        (
            "eagle",
            "Trained head",
            "is one layer that learned to draft from the target's own hidden states (EAGLE-3); it drafts a chain.",
        ),
        (
            "eagle-tree",
            "Trained tree",
            "lets the same layer propose its likeliest tokens side by side, as a tree that grows where it is surest.",
        ),
        (
            "medusa",
            "Medusa",
            "guesses several positions at once: one small head for each on the target's last hidden state, as a tree.",
        ),
        (
            "feedforward",
            "Feed-forward",
            "sees nothing but the last four tokens, through one small network: the cheapest draft that learned.",
        ),
        (
            "layer_skip",
            "Layer skipping",
            "lets the target's first layers draft: no second model or cache. Layers not trained for it agree little.",
        ),
        (
            "hybrid",
            "Hybrid",
            f"copies where the last {TRUSTED_MATCH} tokens or more stood in the text before; else the trained head or "
            "the draft model drafts, where there is one.",
        ),
    ),
    "Trees": (
        (
            "tree",
            "Static tree",
            "draws several candidates side by side, from the draft model or else the target's first layers; one target "
            "pass checks them all.",
        ),
        (
            "tree-dynamic",
            "Dynamic tree",
            "takes the likeliest candidates and grows where the draft is surest of itself (EAGLE-2).",
        ),
        (
            "pool",
            "Pool of drafts",
            "lets several drafts propose at once (copying, model, statistics); what they say becomes one tree.",
        ),
    ),
}
RULE_WORDS = (
    (
        "rejection",
        "Rejection",
        "keeps each draft token with chance min(1, p/q): p is the target's probability of it, q the draft's.",
    ),
    (
        "block",
        "Block",
        "judges the draft as one chain; on average it keeps no fewer tokens than Rejection. While it is chosen, trees "
        "are not available.",
    ),
    (
        "coupled",
        "Coupled",
        "lets both draw with the same random numbers and keeps what agrees: plain decoding by this rule writes the "
        "same text.",
    ),
)
BLOCK_OFF = "judges chains, and this draft branches."
TREE_OFF = "proposes a tree, and rule Block judges one chain as a whole: choose another rule first."

_DRAFTING = tuple(draft for draft in DRAFTS if draft != "none")
#: Controls by element id: the draft types for which they do something, and those for which they do so only where
#: there is no draft model.
NEEDS: dict[str, dict[str, tuple[str, ...]]] = {
    "sv-gamma": {"types": _DRAFTING, "without_model": ()},
    "sv-adaptive": {"types": _DRAFTING, "without_model": ()},
    "sv-candidates": {"types": TREES, "without_model": ()},
    # A copy is as sure as another: only what draws or ranks has a confidence.
    "sv-min-confidence": {"types": tuple(draft for draft in _DRAFTING if draft != "ngram"), "without_model": ()},
    "sv-exit-layer": {"types": ("layer_skip",), "without_model": ("tree", "tree-dynamic", "pool")},
}


def draft_words() -> str:
    """`words` of the draft type's picker."""
    clash = {"with": "rule", "values": ["block"], "sentence": TREE_OFF, "quiet": True}
    return json.dumps(
        [
            _word(*words, group, clash if words[0] in TREES else None)
            for group, rows in DRAFT_WORDS.items()
            for words in rows
        ]
    )


def rule_words() -> str:
    """`words` of the rule's picker."""
    clash = {"with": "draft", "values": TREES, "sentence": BLOCK_OFF, "quiet": False}
    return json.dumps([_word(*words, "", clash if words[0] == "block" else None) for words in RULE_WORDS])


def _word(value: str, name: str, sentence: str, group: str, clash: dict[str, Any] | None) -> dict[str, Any]:
    return {"value": value, "name": name, "sentence": sentence, "group": group, "clash": clash}
