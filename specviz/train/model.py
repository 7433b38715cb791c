"""The distilled draft model as it is trained: a few Llama layers between the target's own embedding and head rows.

Distillation on soft targets (Hinton et al. 2015; for drafts Zhou et al. 2024, DistillSpec). Begun as the target's
first and last layers where these are Llama's, so that it need not learn to speak from nothing. Held by
tests/unit/test_train.py and, against the model that drafts, by tests/unit/test_distilled.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from specviz.drafters.shapes import ModelShape, rotate, rotations
from specviz.engine.model import layer_stack
from specviz.train.features import Batch
from specviz.train.learner import Learner

#: Llama's own names of a layer's weights, in the order in which they stand in one of ours.
LLAMA = {
    "norm": ("input_layernorm",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "mlp_norm": ("post_attention_layernorm",),
    "up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


class DraftModel(Learner):
    """It reads the text's tokens as they are, so one position is like another."""

    shape: ModelShape
    still: ClassVar[tuple[str, ...]] = ("out", "down")

    def parts(self) -> dict[str, list[int]]:
        shape, made = self.shape, {}
        for i in range(shape.layers):
            made[f"layer{i}.qkv"] = [shape.heads * shape.head_dim, *[shape.kv_heads * shape.head_dim] * 2]
            made[f"layer{i}.up"] = [shape.inner, shape.inner]
        return made

    @torch.no_grad()
    def begin_as(self, target: PreTrainedModel) -> bool:
        """Take over the target's first and last layers and its final norm; false where they are not of this shape."""
        stack = layer_stack(target)
        last = self.shape.layers - 1
        chosen = [i if i < last else len(stack) - 1 for i in range(self.shape.layers)]
        found: dict[str, Tensor] = {}
        for number, layer in enumerate(chosen):
            named = dict(stack[layer].named_parameters())
            for name, theirs in LLAMA.items():
                if any(f"{part}.weight" not in named for part in theirs):
                    return False
                found[f"layer{number}.{name}"] = torch.cat([named[f"{part}.weight"].float() for part in theirs])
        own = dict(self.named_parameters())
        if any(own[name].shape != weight.shape for name, weight in found.items()):
            return False
        for name, weight in found.items():
            own[name].copy_(weight)
        return True

    def outputs(self, batch: Batch, positions: int) -> Iterator[tuple[int, Tensor]]:
        shape = self.shape
        texts, length = batch.ids.shape
        x, dtype = F.embedding(batch.ids, self.embedding).float(), self.working()
        cos, sin = rotations(shape, 0, length, dtype, x.device)
        group, split = shape.heads // shape.kv_heads, shape.heads + shape.kv_heads
        for i in range(shape.layers):
            layer = getattr(self, f"layer{i}")
            normed = F.rms_norm(x, (shape.hidden,), layer.norm, shape.eps)
            joined = F.linear(normed, layer.qkv).view(texts, length, -1, shape.head_dim)
            turned = rotate(joined[:, :, :split], cos[:, None], sin[:, None])
            query = turned[:, :, : shape.heads].transpose(1, 2)
            keys, values = (
                part.transpose(1, 2).repeat_interleave(group, 1)
                for part in (turned[:, :, shape.heads :], joined[:, :, split:])
            )
            mixed = F.scaled_dot_product_attention(query, keys, values, is_causal=True)
            x = x + F.linear(mixed.transpose(1, 2).flatten(2), layer.out)
            gate, up = F.linear(F.rms_norm(x, (shape.hidden,), layer.mlp_norm, shape.eps), layer.up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        yield 0, x
