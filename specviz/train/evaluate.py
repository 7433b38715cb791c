"""What a trained draft is worth in the engine's own loop: tokens per step for chain and tree, with intervals.

Agreement does not depend on the machine, so no time is measured here. Held by tests/unit/test_train.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specviz.engine.engine import Engine
from specviz.train.chats import Chats

#: For each kind of draft the types it drafts as: a chain, whose q is a distribution, and a tree.
CHAINS = {"eagle": "eagle", "feedforward": "feedforward", "model": "model"}
TREES = {"eagle": "eagle-tree", "medusa": "medusa", "model": "tree-dynamic"}
#: Tokens deep at which overlaps are measured.
DEEP = 4
#: Draws of prompts that an interval is taken from.
DRAWS = 2000


@dataclass(slots=True)
class Measured:
    """One setting over a set of prompts: emitted tokens per target pass with its 95 % interval over prompts; at each
    depth accepted drafts among tested ones (at temperature 0 that is greedy agreement where all before agreed), and
    mean overlap Σ min(p, q) behind what was drafted (none at temperature 0)."""

    prompts: str
    draft: str
    gamma: int
    candidates: int
    temperature: float
    tokens: int
    steps: int
    tokens_per_step: float
    low: float
    high: float
    acceptance: list[float]
    overlap: list[float]


def held_out_prompts(chats: Chats, count: int) -> list[list[int]]:
    """The ids in front of the answers of the last `count` chats, which training leaves out."""
    last = chats[-count:]
    return [ids[:start].tolist() for ids, start in zip(last.ids, last.answer_start, strict=True)]


def measure(
    engine: Engine, name: str, prompts: Sequence[str | Sequence[int]], tokens: int = 128, **settings: Any
) -> Measured:
    """Decode every prompt and count; `settings` are those of a run."""
    traced = settings.get("temperature", 0) > 0
    counts, tested, accepted, overlaps = [], {}, {}, {}
    for prompt in prompts:
        run = engine.generate(prompt, max_new_tokens=tokens, trace=traced, **settings)
        counts.append((run.summary.tokens, run.summary.steps))
        for row in run.summary.by_position:
            tested[row.position] = tested.get(row.position, 0) + row.tested
            accepted[row.position] = accepted.get(row.position, 0) + row.accepted
        for step in run.steps if traced else ():
            for depth, token in enumerate(step.tokens[: step.gamma]):
                overlaps.setdefault(depth, []).append(token.overlap)
    table = np.array(counts, float)
    draws = np.random.default_rng(0).integers(len(table), size=(DRAWS, len(table)))
    sums = table[draws].sum(1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [0.025, 0.975])
    emitted, steps = table.sum(0)
    return Measured(
        prompts=name,
        draft=settings["draft"],
        gamma=settings.get("gamma", 0),
        candidates=settings.get("candidates", 1),
        temperature=settings.get("temperature", 0.0),
        tokens=int(emitted),
        steps=int(steps),
        tokens_per_step=round(float(emitted / steps), 4),
        low=round(float(low), 4),
        high=round(float(high), 4),
        acceptance=[round(accepted[i] / tested[i], 4) for i in sorted(tested) if tested[i]],
        overlap=[round(float(np.mean(overlaps[depth])), 4) for depth in sorted(overlaps)],
    )


def evaluate(
    engine: Engine,
    kind: str,
    sets: dict[str, Sequence[str | Sequence[int]]],
    *,
    gammas: Sequence[int] = tuple(range(1, 9)),
    candidates: int = 3,
    tokens: int = 128,
    report: Callable[[str], None] = print,
) -> list[Measured]:
    """Chain and tree, where the kind has them, at temperature 0 for each gamma, and the chain at temperature 1 for its
    overlap."""
    found = []
    for name, prompts in sets.items():
        for plan in plans(kind, gammas, candidates):
            one = measure(engine, name, prompts, tokens, **plan)
            found.append(one)
            report(
                f"{name}: {one.draft} gamma {one.gamma}, temperature {one.temperature:g}: "
                f"{one.tokens_per_step:.2f} tokens per step ({one.low:.2f} to {one.high:.2f})"
                + (f", overlap {' '.join(f'{value:.2f}' for value in one.overlap)}" if one.overlap else "")
            )
    return found


def plans(kind: str, gammas: Sequence[int], candidates: int) -> list[dict[str, Any]]:
    """The settings a kind of draft is measured with."""
    made = []
    if chain := CHAINS.get(kind):
        made += [{"draft": chain, "gamma": gamma, "temperature": 0.0} for gamma in gammas]
        made.append({"draft": chain, "gamma": DEEP, "temperature": 1.0})
    if tree := TREES.get(kind):
        made += [{"draft": tree, "gamma": g, "candidates": candidates, "temperature": 0.0} for g in gammas]
    return made


def note_in_card(card_path: Path, found: Sequence[Measured], command: str) -> None:
    """Write what was measured into the head's card."""
    card = json.loads(card_path.read_text(encoding="utf-8"))
    card["evaluation"] = {"command": command, "figures": [asdict(one) for one in found]}
    card_path.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
