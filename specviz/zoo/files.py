"""A model's safetensors files as a mapping from name to tensor, so that weights are read without building the model.

Building it takes transformers a second of imports and a second copy of the weights. What would be refused there is
refused here with the same sentence. Held by tests/unit/test_zoo.py and tests/unit/test_fast.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from specviz.errors import ModelError
from specviz.zoo.cache import in_short

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PretrainedConfig

    from specviz.engine.weights import Weights


class TensorFiles(Mapping):
    """The tensors of a folder's safetensors files, each read from disk when it is asked for.

    Raises:
        OSError, SafetensorError, ValueError, KeyError: a file is missing or damaged.
    """

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        else:
            names = ["model.safetensors"]
        self._files = {}
        for name in names:
            file = stack.enter_context(safe_open(folder / name, "pt"))
            self._files.update(dict.fromkeys(file.keys(), file))

    def __getitem__(self, name: str) -> Tensor:
        return self._files[name].get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def size(self, name: str) -> tuple[int, ...]:
        """Of a tensor, without reading it."""
        return tuple(self._files[name].get_slice(name).get_shape())


def has_safetensors(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json"))


def read_fused(folder: Path, config: PretrainedConfig, precision: str, device: str, label: str) -> Weights:
    """The weights of a Llama-like model as the fast path computes with them.

    Args:
        label: what error sentences call the model.

    Raises:
        ModelError: the files are damaged, lack tensors, or are of another model.
    """
    from specviz.engine.weights import expected, fuse

    try:
        with contextlib.ExitStack() as stack:
            tensors = TensorFiles(folder, stack)
            wanted = expected(config)
            if missing := sorted(wanted.keys() - tensors.keys()):
                raise ModelError(
                    f"The weights of {label} lack {len(missing)} tensors, {missing[0]} among them: fetch them again."
                )
            for name, size in wanted.items():
                if tensors.size(name) != size:
                    raise ModelError(
                        f"The weights of {label} do not fit its config.json: {name} is {list(tensors.size(name))}, "
                        f"not {list(size)}."
                    )
            return fuse(tensors, config, precision, device)
    except (SafetensorError, EOFError, KeyError, ValueError, OSError) as error:
        raise ModelError(
            f"The weights of {label} are damaged or cut short ({in_short(error)}): fetch them again."
        ) from error
