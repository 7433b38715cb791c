"""The draft types on offer: one file each, one protocol, one registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from specviz.drafters.eagle import EagleDrafter, EagleModel, EagleTree
from specviz.drafters.hybrid import HybridDrafter
from specviz.drafters.model import ModelDrafter, OwnContext, SharedContext
from specviz.drafters.ngram import NgramLookup, NgramSmoothed
from specviz.drafters.plain import NoDrafter
from specviz.drafters.pool import PoolDrafter
from specviz.drafters.protocol import Ask, Drafter, Draw, Proposal, Start
from specviz.drafters.tree import DynamicTree, StaticTree
from specviz.engine.model import LanguageModel
from specviz.settings import Settings


@dataclass(frozen=True, slots=True)
class Kit:
    """What a drafter is made of."""

    target: LanguageModel
    draft_model: LanguageModel | None
    settings: Settings
    head: EagleModel | None = None

    @property
    def exit_layer(self) -> int:
        return self.settings.exit_layer or self.target.layers // 2

    @property
    def precision(self) -> torch.dtype:
        """Of distributions: float32, or float64 for a float64 target."""
        return torch.float64 if self.target.dtype == torch.float64 else torch.float32

    def early_exit(self) -> SharedContext:
        """The target's first layers, reading with the target's own cache."""
        return SharedContext(self.target.exit(self.exit_layer))

    def drafting_model(self) -> OwnContext | SharedContext:
        """The draft model; without one, the target's first layers."""
        return OwnContext(self.draft_model) if self.draft_model else self.early_exit()


#: How each draft type of `specviz.settings.DRAFTS` is made.
MAKERS: dict[str, Callable[[Kit], Drafter]] = {
    "none": lambda kit: NoDrafter(),
    "ngram": lambda kit: NgramLookup(),
    "ngram-smoothed": lambda kit: NgramSmoothed(kit.target.vocab_size, kit.target.device, kit.precision),
    "model": lambda kit: ModelDrafter(OwnContext(kit.draft_model), kit.target.device),
    "eagle": lambda kit: EagleDrafter(kit.head),
    "eagle-tree": lambda kit: EagleTree(kit.head, kit.settings.candidates),
    "layer_skip": lambda kit: ModelDrafter(kit.early_exit(), kit.target.device, "layer_skip"),
    "hybrid": lambda kit: HybridDrafter(NgramLookup(), MAKERS["model" if kit.draft_model else "layer_skip"](kit)),
    "tree": lambda kit: StaticTree(kit.drafting_model(), kit.target.device, kit.settings.candidates),
    "tree-dynamic": lambda kit: DynamicTree(kit.drafting_model(), kit.target.device, kit.settings.candidates),
    "pool": lambda kit: PoolDrafter([MAKERS[name](kit) for name in pool_members(kit)]),
}


def pool_members(kit: Kit) -> list[str]:
    """The draft types of a pool: cheap copying first, then what draws from a q of its own.

    Two members that read with the target's cache would write over one another, so there is one at most; a type that
    draws may be there twice, and draws apart.
    """
    if kit.draft_model:
        order = ["ngram", "model", "ngram-smoothed", "model"]
    elif kit.target.layers < 2 or kit.target.refuses_exit():
        order = ["ngram", "ngram-smoothed", "ngram-smoothed", "ngram-smoothed"]
    else:
        order = ["ngram", "ngram-smoothed", "layer_skip", "ngram-smoothed"]
    return order[: kit.settings.candidates]


__all__ = [
    "MAKERS",
    "Ask",
    "Drafter",
    "Draw",
    "DynamicTree",
    "EagleDrafter",
    "EagleModel",
    "EagleTree",
    "HybridDrafter",
    "Kit",
    "ModelDrafter",
    "NgramLookup",
    "NgramSmoothed",
    "NoDrafter",
    "OwnContext",
    "PoolDrafter",
    "Proposal",
    "SharedContext",
    "Start",
    "StaticTree",
    "pool_members",
]
