"""Sizes of the trained heads, one class for each kind, and the rotary positions they share.

A shape is what a card writes down and what a file's tensors must fit; training and drafting both read it, so they
cannot disagree about a name or a size. Held by tests/unit/test_heads.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class EagleShape:
    """One decoder layer over fused features: `taps` are the numbers of target layers behind which features are taken
    (low, middle, last), `inner` the width of the feed-forward part, `theta` the base of the rotary positions."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    taps: tuple[int, ...]
    theta: float = 10_000.0
    eps: float = 1e-5

    reads_features: ClassVar[bool] = True

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """The weights' names and sizes."""
        hidden = self.hidden
        return {
            "fuse": (hidden, len(self.taps) * hidden),
            "embed": (hidden, hidden),
            "qkv": ((self.heads + 2 * self.kv_heads) * self.head_dim, 2 * hidden),
            "out": (hidden, self.heads * self.head_dim),
            "up": (2 * self.inner, hidden),
            "down": (hidden, self.inner),
            "norm": (hidden,),
        }


@dataclass(frozen=True, slots=True)
class MedusaShape:
    """`depth` residual blocks side by side over the last of the tapped layers, one for each position drafted.

    Block i keeps `keep{i}` of the state, adds `leave{i}` of what `enter{i}` sees in it, and `norm{i}` stands in front
    of the target's head rows.
    """

    hidden: int
    depth: int
    taps: tuple[int, ...]
    eps: float = 1e-5

    reads_features: ClassVar[bool] = True

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """As `EagleShape.sizes`."""
        hidden, sizes = self.hidden, {}
        for i in range(self.depth):
            matrices = {f"enter{i}": (hidden, hidden), f"leave{i}": (hidden, hidden)}
            sizes |= {**matrices, f"keep{i}": (hidden,), f"norm{i}": (hidden,)}
        return sizes


@dataclass(frozen=True, slots=True)
class FeedForwardShape:
    """An MLP of width `inner` over the embeddings of the last `window` tokens, the latest last. `taps` only say where
    the target is recognised."""

    hidden: int
    window: int
    inner: int
    taps: tuple[int, ...]
    eps: float = 1e-5

    reads_features: ClassVar[bool] = False

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """As `EagleShape.sizes`."""
        hidden = self.hidden
        return {"enter": (self.inner, self.window * hidden), "leave": (hidden, self.inner), "norm": (hidden,)}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """`layers` Llama layers between the target's embedding and its head rows. `taps` only say where the target is
    recognised."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    layers: int
    taps: tuple[int, ...]
    theta: float = 10_000.0
    eps: float = 1e-5

    reads_features: ClassVar[bool] = False

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """As `EagleShape.sizes`."""
        hidden, sizes = self.hidden, {}
        for i in range(self.layers):
            sizes |= {
                f"layer{i}.norm": (hidden,),
                f"layer{i}.qkv": ((self.heads + 2 * self.kv_heads) * self.head_dim, hidden),
                f"layer{i}.out": (hidden, self.heads * self.head_dim),
                f"layer{i}.mlp_norm": (hidden,),
                f"layer{i}.up": (2 * self.inner, hidden),
                f"layer{i}.down": (hidden, self.inner),
            }
        return {**sizes, "norm": (hidden,)}


Shape = EagleShape | MedusaShape | FeedForwardShape | ModelShape
#: The shape class of each kind of head, as its card's `type` names it.
SHAPES: dict[str, type] = {
    "eagle": EagleShape,
    "medusa": MedusaShape,
    "feedforward": FeedForwardShape,
    "model": ModelShape,
}


def rotations(
    shape: EagleShape | ModelShape, start: int, length: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """(length, head_dim) cosines and signed sines of positions from `start` (RoPE: Su et al. 2021, §3.2.2)."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float32, device=device) / shape.head_dim
    places = torch.arange(start, start + length, dtype=torch.float32, device=device)
    angles = torch.outer(places, shape.theta**-half)
    sin = angles.sin()
    return torch.cat([angles.cos()] * 2, -1).to(dtype), torch.cat([-sin, sin], -1).to(dtype)


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(..., head_dim) states turned to their positions."""
    return states * cos + states.roll(states.shape[-1] // 2, -1) * sin
