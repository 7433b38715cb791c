"""The draft model that was distilled from the target: its own few layers between the target's embedding and head rows.

What comes out is a `LanguageModel` like any other draft model's, with a memory of its own, so every draft type that
needs one runs with it. Tokens outside its vocabulary have the logit `OUTSIDE`: no warp draws them. Held by
tests/unit/test_distilled.py; losslessness by tests/statistical/test_exact.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from specviz.drafters.limited import OUTSIDE, packed, spread
from specviz.drafters.shapes import ModelShape
from specviz.engine.fast import FastModel
from specviz.engine.model import LanguageModel
from specviz.engine.weights import fuse

if TYPE_CHECKING:
    from transformers import LlamaConfig


class LimitedHead(nn.Module):
    """The target's head rows of the draft's vocabulary; (..., vocab_size) logits with `OUTSIDE` elsewhere."""

    def __init__(self, target: LanguageModel, vocabulary: Tensor) -> None:
        super().__init__()
        self._vocabulary, self._size = vocabulary.to(target.device), target.vocab_size
        self._rows = packed(target.head_rows(self._vocabulary), target)

    @property
    def bytes(self) -> int:
        return self._rows.bytes

    def forward(self, x: Tensor) -> Tensor:
        logits = self._rows(x)
        # float16 has no number as low as OUTSIDE.
        logits = logits.float() if logits.dtype == torch.float16 else logits
        return spread(logits, self._vocabulary, self._size, OUTSIDE)


def distilled(
    target: LanguageModel,
    weights: Mapping[str, Tensor],
    shape: ModelShape,
    vocabulary: Tensor,
    name: str = "distilled draft model",
    warning: str | None = None,
) -> LanguageModel:
    """The draft model, on the target's path; arguments as for `specviz.drafters.limited.LimitedModel`."""
    config, tensors = _config(target, shape), _named(weights, shape)
    head = LimitedHead(target, vocabulary)
    if isinstance(target, FastModel):
        model = _fast(target, config, tensors, head, name)
    else:
        model = LanguageModel(_llama(target, config, tensors, head), name, target.vocab_size)
    model.params = sum(weight.numel() for weight in weights.values())
    model.warning = warning
    return model


def _fast(
    target: FastModel, config: LlamaConfig, tensors: Mapping[str, Tensor], head: LimitedHead, name: str
) -> FastModel:
    # The file's weights are int8: beside a target in bf16 on a CPU they run as they are.
    on_cpu = target.device.type == "cpu"
    precision = "int8" if target.precision == "bfloat16" and on_cpu else target.precision
    embedding = {"model.embed_tokens.weight": target.embedding[:1]}  # fused for nothing: the target's own serves
    made = fuse({**tensors, **embedding}, config, precision, str(target.device))
    made.embedding, made.head = target.embedding, head
    return type(target)(made, config, name, target.vocab_size, precision)


def _llama(target: LanguageModel, config: LlamaConfig, tensors: Mapping[str, Tensor], head: LimitedHead) -> nn.Module:
    from transformers import LlamaForCausalLM

    # Built empty: the embedding is the target's, and a second one of its size would be made for nothing.
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.model.embed_tokens = nn.Embedding.from_pretrained(target.embedding, freeze=True)
    model.lm_head = head
    options = {"device": target.device, "dtype": target.dtype}
    state = {name: tensor.to(**options) for name, tensor in tensors.items()}
    model.load_state_dict(state, strict=False, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config).to(target.device)
    return model.eval().requires_grad_(False)


def _config(target: LanguageModel, shape: ModelShape) -> LlamaConfig:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(target.embedding),
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=target.max_positions,
        rms_norm_eps=shape.eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )


def _named(weights: Mapping[str, Tensor], shape: ModelShape) -> dict[str, Tensor]:
    """The weights by the names of transformers' Llama."""
    named = {"model.norm.weight": weights["norm"]}
    sides = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.kv_heads * shape.head_dim)
    for i in range(shape.layers):
        at = f"model.layers.{i}."
        query, key, value = weights[f"layer{i}.qkv"].split(sides)
        gate, up = weights[f"layer{i}.up"].split(shape.inner)
        named |= {
            f"{at}input_layernorm.weight": weights[f"layer{i}.norm"],
            f"{at}self_attn.q_proj.weight": query,
            f"{at}self_attn.k_proj.weight": key,
            f"{at}self_attn.v_proj.weight": value,
            f"{at}self_attn.o_proj.weight": weights[f"layer{i}.out"],
            f"{at}post_attention_layernorm.weight": weights[f"layer{i}.mlp_norm"],
            f"{at}mlp.gate_proj.weight": gate,
            f"{at}mlp.up_proj.weight": up,
            f"{at}mlp.down_proj.weight": weights[f"layer{i}.down"],
        }
    return named
