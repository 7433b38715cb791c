"""Muon: momentum whose update is orthogonalised, for weight matrices; AdamW for the rest.

Learns from fewer tokens than AdamW alone, which is what counts where the target's passes are the cost (Jordan et al.
2024; the scale that lets it share AdamW's learning rates is that of Liu et al. 2025, §2.2). Held by
tests/unit/test_train.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

#: Coefficients of the quintic Newton-Schulz iteration, and how often it is done.
QUINTIC, ITERATIONS = (3.4445, -4.7750, 2.0315), 5


def orthogonalised(matrix: Tensor) -> Tensor:
    """About the nearest matrix with singular values 1, in bf16."""
    a, b, c = QUINTIC
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


class Muon:
    """Updates matrices by orthogonalised Nesterov momentum and vectors by Adam.

    Args:
        module: what is trained.
        parts: for a named matrix, how many rows belong together: they are orthogonalised apart.
    """

    def __init__(
        self, module: nn.Module, parts: Mapping[str, Sequence[int]], momentum: float = 0.95, decay: float = 0.01
    ) -> None:
        self._named = dict(module.named_parameters())
        self._parts, self._momentum, self._decay = parts, momentum, decay
        vectors = [weights for weights in self._named.values() if weights.dim() < 2]
        self._adam = torch.optim.AdamW(vectors, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
        self._speed = {name: torch.zeros_like(weights) for name, weights in self._named.items() if weights.dim() == 2}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Use the gradients with learning rate `rate`, and clear them."""
        for name, speed in self._speed.items():
            weights = self._named[name]
            speed.lerp_(weights.grad, 1 - self._momentum)
            ahead = weights.grad.lerp(speed, self._momentum)
            weights.mul_(1 - rate * self._decay)
            rows = self._parts.get(name, [len(weights)])
            for matrix, update in zip(weights.split(rows), ahead.split(rows), strict=True):
                scale = 0.2 * max(matrix.shape) ** 0.5
                matrix.add_(orthogonalised(update), alpha=-rate * scale)
            weights.grad = None
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self._adam.zero_grad()

    def state_dict(self) -> dict:
        """The momentum in bf16, in which it is used, at half the size."""
        return {
            "speed": {name: speed.bfloat16() for name, speed in self._speed.items()},
            "adam": self._adam.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        for name, speed in state["speed"].items():
            self._speed[name].copy_(speed)
        self._adam.load_state_dict(state["adam"])
