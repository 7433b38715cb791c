"""How a model reads a text that is already written: one pass over it, teacher-forced.

Held by tests/unit/test_bench.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specviz.engine.engine import Engine

#: Rows whose logits are held at once: bounds the memory at a vocabulary of 150,000 to 40 MB.
ROWS = 64


@dataclass(slots=True)
class Read:
    """`nll` is the negative log likelihood of the text in nats, `best` the likeliest token at each of its places."""

    nll: float
    best: Tensor


@torch.inference_mode()
def read(engine: Engine, prompt: Sequence[int], output: Sequence[int]) -> Read:
    """Read `output` behind `prompt` (neither empty), at temperature 1, with no penalties."""
    ids = [*prompt, *output]
    engine.claim(len(ids))
    cache = engine.target.open(len(ids))
    cache.prefill(ids[: len(prompt) - 1])
    nll, best = 0.0, []
    for start in range(len(prompt) - 1, len(ids) - 1, ROWS):
        end = min(start + ROWS, len(ids) - 1)
        logits = cache.forward(ids[start:end]).float()
        after = torch.tensor(ids[start + 1 : end + 1], device=logits.device)
        nll -= float(logits.log_softmax(-1).gather(1, after[:, None]).double().sum())
        best.append(logits.argmax(-1).cpu())
    return Read(nll, torch.cat(best))
