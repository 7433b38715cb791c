"""`train eagle` from beginning to end: read the chats, train the head, write it beside its card.

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
from transformers import PretrainedConfig

from specviz.drafters.head import HeadShape, describe_target, load_head, save_head
from specviz.engine.model import LanguageModel
from specviz.errors import SettingsError
from specviz.train.chats import Chats, documents, frequent
from specviz.train.eagle import EagleLayer
from specviz.train.features import Features, Reader
from specviz.train.loop import Plan, Progress, Training
from specviz.zoo.loader import LoadedPair

#: Tokens a head can draft, and chats kept out of training to measure on.
VOCABULARY, HELD_OUT = 8192, 100
#: Where features are taken: parts of the way through the target's layers.
LOW, MIDDLE = 4 / 15, 2 / 3
#: Spread of the logits that an untrained head begins with.
SPREAD = 2.0


@dataclass(slots=True)
class Order:
    """What is to be made: `data` is the file of chats, `out` the path of card and weights without suffix, `work` the
    folder of checkpoints and features; `start` is the card of a head to go on from, `resume` goes on from the last
    checkpoint of `work`. `command` is noted in the card."""

    data: Path
    out: Path
    work: Path
    plan: Plan
    start: Path | None = None
    resume: bool = True
    command: str = ""


def shape_for(config: PretrainedConfig) -> HeadShape:
    """The shape of a head for a target: a layer like its own."""
    config = config.get_text_config(decoder=True)
    hidden, heads, layers = config.hidden_size, config.num_attention_heads, config.num_hidden_layers
    rope = getattr(config, "rope_parameters", None) or {}
    return HeadShape(
        hidden=hidden,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or hidden // heads,
        inner=getattr(config, "intermediate_size", None) or 4 * hidden,
        taps=tuple(sorted({max(1, round(LOW * layers)), max(1, round(MIDDLE * layers)), layers})),
        theta=float(rope.get("rope_theta") or getattr(config, "rope_theta", None) or 10_000.0),
        eps=float(getattr(config, "rms_norm_eps", None) or 1e-5),
    )


def train_eagle(pair: LoadedPair, eos: Sequence[int], order: Order, report: Callable[[str], None] = print) -> Path:
    """Train, or train on, and write the head; the card's path.

    Args:
        pair: loaded in float32 or bf16, as transformers models.
        eos: ids that end a turn.

    Raises:
        SettingsError: the chats are not this target's, or there are too few.
    """
    model, size = pair.target.model, pair.vocab_size
    chats = Chats.load(order.data, size)
    kept_out = min(HELD_OUT, len(chats) // 10)
    if not kept_out:
        raise SettingsError(f"{order.data} holds {len(chats)} chats: training needs at least 10.")
    rest, held = chats[:-kept_out], chats[-kept_out:]
    torch.manual_seed(order.plan.seed)
    if order.start is not None:
        begun = load_head(order.start)
        shape, vocabulary = begun.shape, begun.vocabulary
    else:
        shape, vocabulary = shape_for(model.config), frequent(rest, min(VOCABULARY, size), size, eos)
    embedding = model.get_input_embeddings().weight.detach()
    head = model.get_output_embeddings().weight.detach()[vocabulary].clone()
    layer = EagleLayer(shape)
    if order.start is not None:
        layer.load_state_dict(begun.weights)
    else:
        layer.norm.data.mul_(SPREAD / float(head.float().norm(dim=1).mean()))
    readers = [Reader(model, shape.taps, vocabulary), Reader(model, shape.taps, vocabulary, size)]
    try:
        folder = order.work / "features" / _key(pair, order, shape, vocabulary)
        training = Training(
            layer.to(model.device),
            embedding,
            head,
            Features(readers[0], documents(rest, eos, order.plan.seed), folder / "train"),
            Features(readers[1], documents(held, eos, None), folder / "held-out"),
            order.plan,
            order.work,
            report,
        )
        if order.resume and training.resume():
            report(f"going on at step {training.progress.step}")
        progress = training.run()
    finally:
        for reader in readers:
            reader.close()
    target = LanguageModel(model, pair.target.name, size)
    card = _card(target, pair, order, shape, chats, progress)
    return save_head(order.out, layer.state_dict(), vocabulary, card)


def _key(pair: LoadedPair, order: Order, shape: HeadShape, vocabulary: Tensor) -> str:
    """Of all that the stored features depend on."""
    digest = hashlib.sha256(order.data.read_bytes())
    about = (pair.target.source, str(pair.target.model.dtype), order.plan.seed, shape.taps, vocabulary.tolist())
    digest.update(repr(about).encode())
    return digest.hexdigest()[:16]


def _card(
    target: LanguageModel, pair: LoadedPair, order: Order, shape: HeadShape, chats: Chats, progress: Progress
) -> dict[str, Any]:
    return {
        "type": "eagle",
        "name": f"eagle head for {pair.target.name}",
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
