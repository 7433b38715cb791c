"""The draft types on offer: one file each, one protocol, one registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from specviz.drafters.eagle import EagleDrafter, EagleModel, EagleTree
from specviz.drafters.feedforward import FeedForwardDrafter, FeedForwardModel
from specviz.drafters.heads import NEEDS, Head
from specviz.drafters.hybrid import HybridDrafter
from specviz.drafters.medusa import MedusaModel, MedusaTree
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
    """What a drafter is made of: `draft_model` was named by whoever loaded the engine, `heads` are the trained drafts
    that fit the target, by kind."""

    target: LanguageModel
    draft_model: LanguageModel | None
    settings: Settings
    heads: Mapping[str, Head] = field(default_factory=dict)

    @property
    def model(self) -> LanguageModel | None:
        """The named draft model; without one, the distilled one."""
        return self.draft_model or self.heads.get("model")

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
        """A draft model; without one, the target's first layers."""
        return OwnContext(self.model) if self.model else self.early_exit()


#: How each draft type of `specviz.settings.DRAFTS` is made.
MAKERS: dict[str, Callable[[Kit], Drafter]] = {
    "none": lambda kit: NoDrafter(),
    "ngram": lambda kit: NgramLookup(),
    "ngram-smoothed": lambda kit: NgramSmoothed(kit.target.vocab_size, kit.target.device, kit.precision),
    "model": lambda kit: ModelDrafter(OwnContext(kit.model), kit.target.device),
    "eagle": lambda kit: EagleDrafter(kit.heads["eagle"]),
    "eagle-tree": lambda kit: EagleTree(kit.heads["eagle"], kit.settings.candidates),
    "medusa": lambda kit: MedusaTree(kit.heads["medusa"], kit.settings.candidates),
    "feedforward": lambda kit: FeedForwardDrafter(kit.heads["feedforward"]),
    "layer_skip": lambda kit: ModelDrafter(kit.early_exit(), kit.target.device, "layer_skip"),
    "hybrid": lambda kit: HybridDrafter(
        NgramLookup(), (name := hybrid_member(kit)) and MAKERS[name](kit), kit.target.device
    ),
    "tree": lambda kit: StaticTree(kit.drafting_model(), kit.target.device, kit.settings.candidates),
    "tree-dynamic": lambda kit: DynamicTree(kit.drafting_model(), kit.target.device, kit.settings.candidates),
    "pool": lambda kit: PoolDrafter([MAKERS[name](kit) for name in pool_members(kit)]),
}


def hybrid_member(kit: Kit) -> str | None:
    """The draft type that `hybrid` asks where there is nothing to copy; None where there is none for the target."""
    if kit.draft_model:
        return "model"
    return "eagle" if "eagle" in kit.heads else "model" if kit.model else None


def pool_members(kit: Kit) -> list[str]:
    """The draft types of a pool: cheap copying first, then what draws from a q of its own, the best first.

    Two members that read with the target's cache would write over one another, so there is one at most; all others
    write to a memory of their own (the eagle head reads the target's, where only committed rows count). A type that
    draws may be there twice, and draws apart.
    """
    order = ["ngram", *(["model"] if kit.draft_model else []), *(["eagle"] if "eagle" in kit.heads else [])]
    order.append("ngram-smoothed")
    if kit.model:
        order.append("model")
    elif kit.target.layers >= 2 and not kit.target.refuses_exit():
        order.append("layer_skip")
    order += ["ngram-smoothed"] * 2
    return order[: kit.settings.candidates]


def heads_used(draft: str, kit: Kit) -> list[str]:
    """The kinds of trained heads that a draft type drafts with here, sorted."""
    members = {"pool": pool_members, "hybrid": lambda kit: [hybrid_member(kit)]}
    types = members[draft](kit) if draft in members else [draft]
    kinds = {NEEDS[one] for one in types if one in NEEDS}
    if {"model", "tree", "tree-dynamic"} & set(types) and not kit.draft_model and "model" in kit.heads:
        kinds.add("model")
    return sorted(kinds)


__all__ = [
    "MAKERS",
    "Ask",
    "Drafter",
    "Draw",
    "DynamicTree",
    "EagleDrafter",
    "EagleModel",
    "EagleTree",
    "FeedForwardDrafter",
    "FeedForwardModel",
    "Head",
    "HybridDrafter",
    "Kit",
    "MedusaModel",
    "MedusaTree",
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
    "heads_used",
    "hybrid_member",
    "pool_members",
]
