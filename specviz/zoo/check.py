"""Which models the engine can decode: decoders with full attention, whose KV cache can be rolled back.

Invariant: a model that passes is a causal LM whose every cache layer keeps every token. GPT-Neo's local layers do (they
mask, they do not drop). Held by tests/unit/test_zoo_refusals.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.errors import ModelError
from specviz.zoo.cache import in_short
from specviz.zoo.hub import missing_file

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

_FULL_ATTENTION = {"full_attention", "attention"}


def read_config(folder: Path, source: str) -> PretrainedConfig:
    """The model's configuration, if it is one the engine can decode.

    Raises:
        ModelError: a file is missing or unreadable, or the model is of a kind that cannot be used.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig
    from transformers.models.auto import CONFIG_MAPPING

    if missing := missing_file(folder):
        raise ModelError(f"{source} is not a model folder in HF format: it has no {missing}.")
    try:
        raw = json.loads((folder / "config.json").read_text("utf-8"))
        kind = raw["model_type"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{source} cannot be loaded: its config.json is not JSON that names a model_type.") from error
    if kind not in CONFIG_MAPPING:
        raise ModelError(f"{source} cannot be loaded: this transformers does not know its architecture {kind!r}.")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (StrictDataclassError, ValueError, TypeError, KeyError, AttributeError, OSError, ImportError) as error:
        raise ModelError(f"{source} cannot be loaded: its config.json is not valid ({in_short(error)}).") from error
    _check_kind(config, source)
    _check_cache(config, source)
    return config


def _check_kind(config: PretrainedConfig, source: str) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    stated = list(config.architectures or ())
    what = stated[0] if stated else config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"{source} is an encoder-decoder model ({what}): choose a causal (decoder-only) language model."
        )
    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
    encoder = "bert" in config.model_type and not getattr(config, "is_decoder", False)
    if name is None or (stated and name not in stated) or encoder:
        raise ModelError(f"{source} is not a causal language model but a {what}: choose a causal (decoder-only) one.")
    if getattr(config, "quantization_config", None) is not None:
        raise ModelError(f"{source} holds quantised weights, which cannot be read here: choose the unquantised model.")


def _check_cache(config: PretrainedConfig, source: str) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    from specviz.engine.weights import FAMILIES

    text = config.get_text_config(decoder=True)
    layers = set(getattr(text, "layer_types", None) or ()) - _FULL_ATTENTION
    if not getattr(text, "layer_types", None):
        if getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True):
            layers.add("sliding_attention")
        if getattr(text, "attention_chunk_size", None):
            layers.add("chunked_attention")
    # Asking the class imports it, which the fast path's families do not need.
    of_fast_path = config.model_type in FAMILIES
    if not layers and not of_fast_path and getattr(MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], "_is_stateful", False):
        layers.add("recurrent")
    if layers:
        kinds = " and ".join(sorted(layer.replace("_", " ") for layer in layers))
        raise ModelError(
            f"{source} ({config.model_type}) has {kinds} layers, whose cache cannot take back refused tokens: "
            "choose a model with full attention in every layer."
        )


def check_vocabularies(
    target: str, draft: str, ours: PreTrainedTokenizerBase, theirs: PreTrainedTokenizerBase, size: int, width: int
) -> None:
    """Refuse a draft model that does not speak the target's tokens.

    Args:
        target, draft: the models' sources, for the sentence.
        ours, theirs: the target's and the draft model's tokenizer.
        size: tokens of the shared vocabulary.
        width: logits of the draft model; padding beyond `size` is fine.

    Raises:
        ModelError: the tokenizers give an id different tokens, or the draft model has fewer logits than tokens.
    """
    left, right = ours.get_vocab(), theirs.get_vocab()
    if left != right:
        raise ModelError(
            f"{draft} cannot draft for {target}: its tokenizer has another vocabulary "
            f"({_difference(left, right)}); choose a draft model of the same family."
        )
    if width < size:
        raise ModelError(
            f"{draft} cannot draft for {target}: it has {width:,} logits but their tokenizer has {size:,} tokens; "
            "choose another draft model."
        )


def _difference(left: dict[str, int], right: dict[str, int]) -> str:
    if len(left) != len(right):
        return f"{len(right):,} tokens, not {len(left):,}"
    token = min((token for token in left if right.get(token) != left[token]), key=left.__getitem__)
    other = next((text for text, number in right.items() if number == left[token]), None)
    return f"id {left[token]} is {other!r}, not {token!r}"
