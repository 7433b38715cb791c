"""Files of a trained head beside the target, and which of them fits.

A head is two files: weights as safetensors (int8 with a scale for each row, or fp16) and a model card as JSON that
says which target they belong to. What does not fit the target is refused with a sentence; other weights of the same
shape get a warning, since a draft can cost speed and never the output. Held by tests/unit/test_eagle.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from specviz.drafters.shapes import SHAPES, Shape
from specviz.engine.model import LanguageModel
from specviz.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SCHEMA = "specviz.draft/1"
#: Where the heads that come with specviz lie.
FOLDER = Path(__file__).resolve().parents[2] / "assets" / "drafts"
#: Numbers of a fingerprint, tokens it is read behind, and the least cosine at which two are of the same weights.
#: Precisions of the same weights come to more than 0.998.
FINGERPRINT, READ, SAME = 96, 8, 0.98


@dataclass(slots=True)
class Head:
    """Weights in float32, and what their card says."""

    shape: Shape
    weights: dict[str, Tensor]
    vocabulary: Tensor
    card: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fit:
    """The card of a head that fits a target, its files whole, its weights not read yet; `warning` where they belong to
    other weights than the target's."""

    path: Path
    shape: Shape
    sha256: str
    warning: str | None


def save_head(path: Path, weights: Mapping[str, Tensor], vocabulary: Tensor, card: dict[str, Any]) -> Path:
    """Write `path`.safetensors, matrices in int8, and `path`.json beside it; the card's path."""
    tensors = {"vocabulary": vocabulary.int().cpu()}
    for name, weight in weights.items():
        weight = weight.detach().float().cpu()
        if weight.dim() == 2:
            scale = weight.abs().amax(1).clamp_(min=1e-12) / 127
            tensors[name] = (weight / scale[:, None]).round_().to(torch.int8)
            tensors[f"{name}.scale"] = scale
        else:
            tensors[name] = weight
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_suffix(".safetensors")
    save_file(tensors, file)
    file.chmod(0o644)  # safetensors leaves it to its owner alone
    about = {"file": file.name, "bytes": file.stat().st_size, "precision": "int8", "sha256": _sha256(file)}
    text = json.dumps({"schema": SCHEMA, **card, "weights": about}, indent=1)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    return path.with_suffix(".json")


def read_card(card_path: Path) -> tuple[dict[str, Any], Shape]:
    """A card and the shape it states, its weights untouched but for their SHA-256.

    Raises:
        ModelError: a file is missing, damaged, or of another format.
    """
    try:
        card = json.loads(card_path.read_text(encoding="utf-8"))
        file = card_path.with_name(card["weights"]["file"])
        if card["schema"] != SCHEMA or _sha256(file) != card["weights"]["sha256"]:
            raise ModelError(f"The trained head {card_path.stem} is damaged: fetch {file.name} again.")
        return card, SHAPES[card["type"]](**{**card["shape"], "taps": tuple(card["shape"]["taps"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(card_path, error) from error


def load_head(card_path: Path) -> Head:
    """Read a card and its weights.

    Raises:
        ModelError: a file is missing, damaged, or of another format.
    """
    card, shape = read_card(card_path)
    try:
        with safe_open(card_path.with_name(card["weights"]["file"]), "pt") as tensors:
            weights = {name: tensors.get_tensor(name).float() for name in shape.sizes()}
            for name in weights:
                if f"{name}.scale" in tensors.keys():  # noqa: SIM118 (it is no dict)
                    weights[name] *= tensors.get_tensor(f"{name}.scale")[:, None]
            vocabulary = tensors.get_tensor("vocabulary").long()
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise _unreadable(card_path, error) from error
    for name, size in shape.sizes().items():
        if tuple(weights[name].shape) != size:
            raise ModelError(f"The trained head {card_path.stem} has {name} of another size than its card says.")
    return Head(shape, weights, vocabulary, card)


def _unreadable(card_path: Path, error: Exception) -> ModelError:
    return ModelError(f"The trained head {card_path.stem} cannot be read ({type(error).__name__}).")


def describe_target(target: LanguageModel, tokenizer: PreTrainedTokenizerBase, taps: Sequence[int]) -> dict[str, Any]:
    """What a card says of the target a head belongs to; `taps` are tapped."""
    return {
        "name": target.name,
        "hidden": target.embedding.shape[1],
        "layers": target.layers,
        "vocab_size": target.vocab_size,
        "tokenizer_sha256": tokenizer_hash(tokenizer),
        "fingerprint": [round(value, 4) for value in fingerprint(target, taps).tolist()],
    }


@lru_cache(maxsize=4)
def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """Of all tokens and their ids."""
    pairs = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


@torch.inference_mode()
def fingerprint(target: LanguageModel, taps: Sequence[int]) -> Tensor:
    """(FINGERPRINT,) numbers that other weights would change much and another precision little.

    The target's taps are left as they were, or as `taps` where there were none.
    """
    before = target.tapped
    target.tap(tuple(taps))
    target.clear(READ)
    cache = target.open(READ)
    cache.forward([7 * i % target.vocab_size for i in range(1, READ + 1)])
    features = cache.features(READ - 1, READ)[0].float().unflatten(0, (len(taps), -1))
    features = F.rms_norm(features, features.shape[1:]).clamp(-3, 3).flatten()
    target.clear(READ)
    if before:
        target.tap(before)
    return features[torch.linspace(0, len(features) - 1, FINGERPRINT).long()]


def find_head(
    target: LanguageModel,
    tokenizer: PreTrainedTokenizerBase,
    kind: str,
    folder: Path = FOLDER,
    name: str = "*",
    mark: Callable[[tuple[int, ...]], Tensor] | None = None,
) -> Fit | str:
    """The head of this kind in `folder` that fits the target, or the sentence that says why there is none.

    Args:
        mark: `fingerprint` of the target, where the caller keeps what came out.

    Raises:
        ModelError: the files of a head that fits are damaged.
    """
    if reason := target.refuses_taps():
        return reason
    reasons = []
    for path in sorted(folder.glob(f"{name}.json")):
        try:
            card = json.loads(path.read_text(encoding="utf-8"))
            if card["type"] != kind:
                continue
            misfit = _misfit(card["target"], target, tokenizer)
        except (OSError, ValueError, KeyError, TypeError):
            misfit = f"the card {path.name} cannot be read."
        if misfit is None:
            card, shape = read_card(path)
            ours = mark(shape.taps) if mark else fingerprint(target, shape.taps)
            same = F.cosine_similarity(torch.tensor(card["target"]["fingerprint"]), ours.cpu(), 0) > SAME
            other = f"the head was trained for other weights than these, those of {card['target']['name']}"
            return Fit(path, shape, card["weights"]["sha256"], None if same else other)
        reasons.append(misfit)
    return f"No trained head fits {target.name}: {reasons[0] if reasons else f'there is none in {folder}.'}"


def _misfit(card: dict[str, Any], target: LanguageModel, tokenizer: PreTrainedTokenizerBase) -> str | None:
    ours = {"hidden": target.embedding.shape[1], "layers": target.layers, "vocab_size": target.vocab_size}
    for name, words in (("hidden", "a hidden size"), ("layers", "a number of layers"), ("vocab_size", "a vocabulary")):
        if card[name] != ours[name]:
            return f"the one for {card['name']} wants {words} of {card[name]}, and this has {ours[name]}."
    if card["tokenizer_sha256"] != tokenizer_hash(tokenizer):
        return f"the one for {card['name']} was trained with another tokenizer."
    return None


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
