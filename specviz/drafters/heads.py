"""The trained drafts of a target, by kind: each of them ready to draft, or the sentence that says why it is not there.

Held by tests/unit/test_heads.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.drafters.distilled import distilled
from specviz.drafters.eagle import EagleModel
from specviz.drafters.feedforward import FeedForwardModel
from specviz.drafters.head import FOLDER, find_head
from specviz.drafters.limited import LimitedModel
from specviz.drafters.medusa import MedusaModel
from specviz.engine.model import LanguageModel
from specviz.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: What drafts, of any kind.
Head = LimitedModel | LanguageModel
#: Makes of (target, weights, shape, vocabulary, name, warning) what drafts. Those that read features come first: they
#: decide what is tapped.
KINDS: dict[str, Callable[..., Head]] = {
    "eagle": EagleModel,
    "medusa": MedusaModel,
    "feedforward": FeedForwardModel,
    "model": distilled,
}
#: The kind of head that each draft type needs.
NEEDS = {"eagle": "eagle", "eagle-tree": "eagle", "medusa": "medusa", "feedforward": "feedforward"}
NOT_LOADED = "No trained head was loaded."


def find_heads(
    target: LanguageModel, tokenizer: PreTrainedTokenizerBase, folder: Path = FOLDER
) -> dict[str, Head | str]:
    """Of every kind the head in `folder` that fits the target, else the sentence that says why there is none."""
    found: dict[str, Head | str] = {}
    for kind in KINDS:
        others = {name: head.shape.taps for name, head in found.items() if isinstance(head, LimitedModel)}
        found[kind] = load(target, tokenizer, kind, folder, taps=others)
    return found


def load(
    target: LanguageModel,
    tokenizer: PreTrainedTokenizerBase,
    kind: str,
    folder: Path = FOLDER,
    name: str = "*",
    taps: Mapping[str, tuple[int, ...]] | None = None,
) -> Head | str:
    """The head of a kind, or the sentence that says why there is none.

    Args:
        name: of the card in `folder`, without suffix; * takes the first that fits.
        taps: for each kind that is loaded already, the layers whose features it reads.
    """
    try:
        head, words = find_head(target, tokenizer, kind, folder, name)
        if head is None:
            return words
        for other, layers in (taps or {}).items():
            if head.shape.reads_features and layers != head.shape.taps:
                return (
                    f"The {kind} head reads layers {_listed(head.shape.taps)} of {target.name} and the {other} head "
                    f"{_listed(layers)}: only one of them can be used, so train both for the same layers."
                )
        return KINDS[kind](target, head.weights, head.shape, head.vocabulary, head.card["name"], words)
    except ModelError as error:
        return str(error)


def _listed(layers: tuple[int, ...]) -> str:
    return ", ".join(map(str, layers))
