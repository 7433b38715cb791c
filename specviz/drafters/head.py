"""A trained head beside the target: its shape, its rotary positions, and how its weights lie on disk.

Held by tests/unit/test_eagle.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Sizes of an eagle head: `taps` are the numbers of target layers behind which features are taken (low, middle,
    last), `inner` the width of the feed-forward part, `theta` the base of the rotary positions."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    taps: tuple[int, ...]
    theta: float = 10_000.0
    eps: float = 1e-5


def rotations(
    shape: HeadShape, start: int, length: int, dtype: torch.dtype, device: torch.device
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
