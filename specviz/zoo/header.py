"""Where the tensors of a GGUF file lie, read from its header without making an object of anything else.

The gguf package's own reader makes an array of each of a tokenizer's hundred thousand texts and merges, which takes
seconds and has no switch; here they are stepped over. The layout of types stays the package's. The format: "GGUF",
version, counts, metadata, tensor infos, padding, data (ggml's docs/gguf.md, versions 2 and 3). Held by
tests/unit/test_quantised.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from specviz.errors import ModelError
from specviz.zoo.cache import in_short

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType

VERSIONS = (2, 3)
#: struct codes of the metadata's types by number; 8 is a text and 9 an array.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9
ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class Tensor:
    """`shape` is outermost first; `data` holds its bytes, (rows, bytes of a row) of a matrix, still on the disk."""

    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    data: np.ndarray


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a GGUF file by name.

    Raises:
        ModelError: it is cut short, or no GGUF file of a version that is known.
    """
    try:
        return {tensor.name: tensor for tensor in _tensors(np.memmap(file, mode="r"))}
    except (struct.error, ArithmeticError, ValueError, TypeError, LookupError) as error:
        raise ModelError(f"{file.name} is damaged or no GGUF file ({in_short(error)}): fetch it again.") from error


def _tensors(data: np.ndarray) -> Iterator[Tensor]:
    from gguf import GGMLQuantizationType
    from gguf.quants import quant_shape_to_byte_shape

    walk = _Walk(data)
    magic, version, tensors, pairs = walk.next("4sIQQ")
    if magic != b"GGUF" or version not in VERSIONS:
        raise ValueError(f"it begins with {magic!r}, version {version}")
    alignment = ALIGNMENT
    for _ in range(pairs):
        key = walk.text()
        (kind,) = walk.next("I")
        if key == b"general.alignment":
            (alignment,) = walk.next(SCALARS[kind])
        else:
            walk.skip(kind)
    infos = []
    for _ in range(tensors):
        name = walk.text().decode()
        (count,) = walk.next("I")
        sizes = walk.next(f"{count}Q")
        infos.append((name, sizes[::-1], *walk.next("IQ")))
    start = walk.at + -walk.at % alignment
    for name, shape, number, offset in infos:
        kind = GGMLQuantizationType(number)
        size = quant_shape_to_byte_shape(shape, kind) if shape else ()
        begin, count = start + offset, int(np.prod(size))
        if begin + count > len(data):
            raise ValueError(f"{name} ends behind the file")
        yield Tensor(name, kind, shape, data[begin : begin + count].reshape(size))


class _Walk:
    """Steps through the header."""

    def __init__(self, data: np.ndarray) -> None:
        self._data, self.at = data.data, 0

    def next(self, codes: str) -> tuple:
        values = struct.unpack_from(f"<{codes}", self._data, self.at)
        self.at += struct.calcsize(f"<{codes}")
        return values

    def text(self) -> bytes:
        (length,) = self.next("Q")
        begin, self.at = self.at, self.at + length
        return bytes(self._data[begin : self.at])

    def skip(self, kind: int) -> None:
        """Step over a value."""
        if kind == TEXT:
            self._skip_texts(1)
        elif kind == ARRAY:
            kind, count = self.next("IQ")
            if kind == TEXT:
                self._skip_texts(count)
            elif kind == ARRAY:
                for _ in range(count):
                    self.skip(ARRAY)
            else:
                self.at += count * struct.calcsize(f"<{SCALARS[kind]}")
        else:
            self.at += struct.calcsize(f"<{SCALARS[kind]}")

    def _skip_texts(self, count: int) -> None:
        length, data, at = struct.Struct("<Q").unpack_from, self._data, self.at
        for _ in range(count):
            at += 8 + length(data, at)[0]
        self.at = at
