"""specviz shows speculative decoding happening.

    import specviz
    engine = specviz.load("smollm2-135m")
    for step in engine.stream("Explain what a hash table is.", draft="ngram"):
        print(step.emitted)

Importing this package imports neither gradio nor torch; `load` imports what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from specviz.errors import ModelError, NumericsError, SettingsError, SpecvizError
from specviz.trace import Run, Step, Token

if TYPE_CHECKING:
    from specviz.engine.engine import Engine

__version__ = "0.1.0"
__all__ = ["ModelError", "NumericsError", "Run", "SettingsError", "SpecvizError", "Step", "Token", "load"]


def __getattr__(name: str) -> Any:
    if name == "zoo":  # `specviz.zoo.locate` without an import of its own
        return importlib.import_module("specviz.zoo")
    raise AttributeError(f"module 'specviz' has no attribute {name!r}")


def load(
    pair: str | None = None,
    *,
    target: str | None = None,
    draft_model: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    path: str = "auto",
    progress: Any = None,
) -> Engine:
    """Load a target (and its draft model) and return the engine that decodes with them.

    Args:
        pair: a name from `specviz.zoo.PAIRS`; without it and without `target`, the default model.
        target, draft_model: a folder in Hugging Face format, or a Hub id.
        dtype: auto, float32, bfloat16, float16, int8 or int4; auto asks the hardware.
        device: auto, cpu, cuda, cuda:N or mps.
        path: auto takes the fast path where the model allows it (on a GPU in CUDA graphs); transformers leaves it out;
            static is the GPU's code on whatever device.
        progress: called with `specviz.zoo.Progress` while weights are fetched and loaded.

    Raises:
        ModelError: a model that cannot be found, fetched, loaded or paired, in one sentence.
    """
    from specviz.startup import uncollected
    from specviz.zoo import load_pair

    with uncollected():
        loaded = load_pair(
            pair, target=target, draft_model=draft_model, dtype=dtype, device=device, path=path, progress=progress
        )
        # Behind `load_pair`, which checks files on one core while it imports on another.
        from specviz.drafters.heads import find_heads
        from specviz.engine.engine import Engine
        from specviz.zoo.costs import CostFiles
        from specviz.zoo.forward import language_models

        ours, theirs = language_models(loaded, path)
        ends = end_ids(loaded.target.generation_config)
        tokenizer = loaded.target.tokenizer
        heads = find_heads(ours, tokenizer)
        engine = Engine(ours, tokenizer, theirs, loaded.draft_unavailable, eos_token_ids=ends, heads=heads)
        engine.costs = CostFiles()
    return engine


def end_ids(generation_config: Any) -> tuple[int, ...] | None:
    """The ids that end an answer by the model's generation config (chat models have several), None without one."""
    ids = generation_config.eos_token_id if generation_config else None
    return tuple(ids) if isinstance(ids, list) else None if ids is None else (ids,)
