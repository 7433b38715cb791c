"""`train eagle` and its like from beginning to end: read the chats, train the draft, write it beside its card.

Held by tests/unit/test_train.py, on tiny models.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from specviz.drafters.head import describe_target, load_head, save_head
from specviz.drafters.shapes import EagleShape, FeedForwardShape, MedusaShape, ModelShape, Shape
from specviz.engine.model import LanguageModel
from specviz.errors import SettingsError
from specviz.train.chats import Chats, documents, frequent
from specviz.train.eagle import EagleLayer
from specviz.train.features import Features, Reader
from specviz.train.feedforward import FeedForward
from specviz.train.learner import Learner
from specviz.train.loop import Plan, Progress, Training
from specviz.train.medusa import MedusaHeads
from specviz.train.model import DraftModel
from specviz.zoo.loader import LoadedPair

LEARNERS: dict[str, type[Learner]] = {
    "eagle": EagleLayer,
    "medusa": MedusaHeads,
    "feedforward": FeedForward,
    "model": DraftModel,
}
#: What each kind is called in its card.
NAMES = {
    "eagle": "eagle head for {}",
    "medusa": "medusa heads for {}",
    "feedforward": "feed-forward draft for {}",
    "model": "draft model distilled from {}",
}
#: Where features are taken: parts of the way through the target's layers.
LOW, MIDDLE = 4 / 15, 2 / 3
#: Positions that medusa heads draft, tokens that the feed-forward draft sees, its width against the target's, and the
#: layers of a draft model.
DEPTH, WINDOW, WIDER, LAYERS = 4, 4, 2, 2
#: Spread of the logits that an untrained head begins with.
SPREAD = 2.0


@dataclass(slots=True)
class Order:
    """What is to be made: `data` are files of chats, the last chats of the first one kept out to measure on; `out` is
    the path of card and weights without suffix, `work` the folder of checkpoints (one below it for each kind) and of
    the features that all kinds share; `vocabulary` is how many tokens it can draft; `start` is the card of a draft to
    go on from, `resume` goes on from the last checkpoint of `work`. `command` is noted in the card."""

    kind: str
    data: Sequence[Path]
    out: Path
    work: Path
    plan: Plan
    vocabulary: int = 8192
    start: Path | None = None
    resume: bool = True
    command: str = ""


def shape_for(kind: str, config: PretrainedConfig) -> Shape:
    """The shape of a draft for a target: its layers are like the target's own."""
    config = config.get_text_config(decoder=True)
    hidden, heads, layers = config.hidden_size, config.num_attention_heads, config.num_hidden_layers
    rope = getattr(config, "rope_parameters", None) or {}
    taps = tuple(sorted({max(1, round(LOW * layers)), max(1, round(MIDDLE * layers)), layers}))
    eps = float(getattr(config, "rms_norm_eps", None) or 1e-5)
    if kind == "medusa":
        return MedusaShape(hidden, DEPTH, taps, eps)
    if kind == "feedforward":
        return FeedForwardShape(hidden, WINDOW, WIDER * hidden, taps, eps)
    layer = {
        "hidden": hidden,
        "heads": heads,
        "kv_heads": getattr(config, "num_key_value_heads", None) or heads,
        "head_dim": getattr(config, "head_dim", None) or hidden // heads,
        "inner": getattr(config, "intermediate_size", None) or 4 * hidden,
        "taps": taps,
        "theta": float(rope.get("rope_theta") or getattr(config, "rope_theta", None) or 10_000.0),
        "eps": eps,
    }
    return EagleShape(**layer) if kind == "eagle" else ModelShape(**layer, layers=LAYERS)


def new_learner(kind: str, shape: Shape, model: PreTrainedModel, vocabulary: Tensor) -> Learner:
    """One that has learnt nothing yet, as near to the target as it can begin."""
    embedding = model.get_input_embeddings().weight.detach()
    head = model.get_output_embeddings().weight.detach()[vocabulary.to(model.device)].clone()
    learner = LEARNERS[kind](shape, embedding, head)
    final = _final_norm(model)
    begun = isinstance(learner, DraftModel) and learner.begin_as(model)
    for name, weight in learner.named_parameters():
        if name.startswith("norm"):
            if final is not None and (begun or kind == "medusa"):
                weight.data.copy_(final)
            else:
                weight.data.mul_(SPREAD / float(head.float().norm(dim=1).mean()))
    return learner.to(model.device)


def _final_norm(model: PreTrainedModel) -> Tensor | None:
    """Weights of the norm in front of the target's head, where it is found."""
    for name in ("norm", "ln_f", "final_layernorm", "final_layer_norm"):
        if (norm := getattr(model.base_model, name, None)) is not None:
            return norm.weight.detach().float()
    return None


def train(
    pair: LoadedPair,
    eos: Sequence[int],
    order: Order,
    report: Callable[[str], None] = print,
    show: Callable[[float, str], None] | None = None,
) -> Path:
    """Train, or train on, and write the draft; the card's path.

    Args:
        pair: loaded in float32 or bf16, as transformers models.
        eos: ids that end a turn.
        show: as for `Training`.

    Raises:
        SettingsError: the chats are not this target's, or there are too few.
        ModelError: the card to start from cannot be read.
    """
    model, size = pair.target.model, pair.vocab_size
    files = [Chats.load(path, size) for path in order.data]
    first, held = files[0].parted()
    if not len(held):
        raise SettingsError(f"{order.data[0]} holds {len(first)} chats: training needs at least 10.")
    files[0] = first
    rest = Chats.joined(files)
    torch.manual_seed(order.plan.seed)
    begun = None if order.start is None else load_head(order.start)
    if begun is not None and begun.card["type"] != order.kind:
        raise SettingsError(
            f"{order.start} is a draft of type {begun.card['type']}, and {order.kind} is to be trained."
        )
    shape = shape_for(order.kind, model.config) if begun is None else begun.shape
    vocabulary = frequent(rest, min(order.vocabulary, size), size, eos) if begun is None else begun.vocabulary
    learner = new_learner(order.kind, shape, model, vocabulary)
    if begun is not None:
        learner.load_state_dict(begun.weights)
    readers = [Reader(model, shape.taps, vocabulary), Reader(model, shape.taps, vocabulary, size)]
    # Each file by itself: what opens all chats of a file says where their own words begin.
    read = [one for part in files for one in documents(part, eos, order.plan.seed)]
    try:
        folder, hidden = order.work / "features" / _key(pair, order, shape, vocabulary), shape.reads_features
        training = Training(
            learner,
            Features(readers[0], read, folder / "train", hidden),
            Features(readers[1], documents(held, eos, None), folder / "held-out", hidden),
            order.plan,
            order.work / order.kind,
            report,
            show,
        )
        if order.resume and training.resume():
            report(f"going on at step {training.progress.step}")
        progress = training.run()
    finally:
        for reader in readers:
            reader.close()
    target = LanguageModel(model, pair.target.name, size)
    card = make_card(target, pair, order, shape, rest, progress)
    return save_head(order.out, learner.state_dict(), vocabulary, card)


def _key(pair: LoadedPair, order: Order, shape: Shape, vocabulary: Tensor) -> str:
    """Of all that the stored features depend on."""
    digest = hashlib.sha256()
    for path in order.data:
        digest.update(path.read_bytes())
    about = (pair.target.source, str(pair.target.model.dtype), order.plan.seed, shape.taps, vocabulary.tolist())
    digest.update(repr(about).encode())
    return digest.hexdigest()[:16]


def make_card(
    target: LanguageModel, pair: LoadedPair, order: Order, shape: Shape, chats: Chats, progress: Progress
) -> dict[str, Any]:
    """What is written beside the weights of a draft that was trained so far."""
    return {
        "type": order.kind,
        "name": NAMES[order.kind].format(pair.target.name),
        "created_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "target": describe_target(target, pair.target.tokenizer, shape.taps),
        "shape": asdict(shape),
        "training": {
            "data": f"{len(chats)} chats that {pair.target.name} wrote itself, {chats.tokens} answer tokens",
            "tokens_seen": progress.tokens,
            "steps": progress.step,
            "minutes": round(progress.seconds / 60, 1),
            "plan": asdict(order.plan),
            "held_out": "greedy agreement and overlap at temperature 1 by position, on chats never trained on",
            "curve": [_rounded(point) for point in progress.curve],
        },
        "command": order.command,
    }


def _rounded(point: dict[str, Any]) -> dict[str, Any]:
    return {
        name: np.round(value, 4).tolist() if isinstance(value, list) and name != "rows" else value
        for name, value in point.items()
    }
