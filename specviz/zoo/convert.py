"""Turns the GGUF file into an HF-format folder with the very float32 values transformers reads from it.

Invariant: loading the folder gives the same logits, bit for bit, as loading the GGUF file.
Held by tests/unit/test_zoo_bundled.py (real_model).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from specviz.errors import ModelError


def import_libraries() -> None:
    """Import what every load needs (about a second, once per process)."""
    import torch  # noqa: F401
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig  # noqa: F401


def convert(folder: Path, file: str, out: Path) -> None:
    """Write config, generation config, tokenizer and float32 safetensors of `folder/file` into the folder `out`.

    Raises:
        ModelError: a package transformers needs to read GGUF files is not installed.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
            tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    except ImportError as error:
        raise ModelError(
            f"Reading {file} needs the Python packages gguf and accelerate: run `pip install -r requirements.txt`."
        ) from error
    config = model.config.to_dict()
    # transformers will not save a model marked as quantised, though these weights are plain float32 by now.
    config.pop("quantization_config", None)
    config.pop("_name_or_path", None)
    config["architectures"] = [type(model).__name__]
    (out / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    model.generation_config.save_pretrained(out)
    tokenizer.save_pretrained(out)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if config["tie_word_embeddings"]:
        del weights["lm_head.weight"]
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)  # the library leaves it readable by its owner alone


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' bars and warnings off the terminal: stdout may be holding JSON, stderr one sentence."""
    from transformers import modeling_gguf_pytorch_utils
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    bar = getattr(modeling_gguf_pytorch_utils, "tqdm", None)  # drawn whatever the library's own switch says
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    if bar is not None:
        modeling_gguf_pytorch_utils.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
        if bar is not None:
            modeling_gguf_pytorch_utils.tqdm = bar
