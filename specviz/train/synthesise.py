"""The target writes its own chats: a user's turn behind the template's opening, then the answer, many side by side.

What the target itself would say is what a draft has to foresee, so no outside text is needed. A wave of chats is a
batch of the engine's own; the file is written behind each and a later call goes on with it. The seed of a wave is
(seed, chats before it), so an interrupted job ends up with the same chats. Held by tests/unit/test_train.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specviz.engine.engine import Engine
from specviz.train.chats import Chats

#: Temperatures of the answers, in turn; user turns are drawn at 1. Tokens below this part of the best are left out.
TEMPERATURES, MIN_P = (0.2, 0.6, 1.0), 0.003
#: Most tokens of a user's turn; longer ones, and shorter than the least, are not answered.
TURN_MOST, TURN_LEAST = 70, 4
#: Least tokens of an answer that is kept.
ANSWER_LEAST = 8
_MARK = "specviz user turn"


@dataclass(frozen=True, slots=True)
class Template:
    """Ids in front of a user's turn, and those between its end and the answer; without a chat template there is no
    user's turn, and text begins behind the end-of-text id."""

    opening: list[int]
    between: list[int] | None


def template(engine: Engine) -> Template:
    """The target's own chat template, in two pieces."""
    tokenizer = engine.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        return Template([engine.eos_token_ids[0] if engine.eos_token_ids else 0], None)
    chat = [{"role": "user", "content": _MARK}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    before, behind = text.split(_MARK)
    return Template(*(tokenizer.encode(part, add_special_tokens=False) for part in (before, behind)))


def synthesise(
    engine: Engine,
    path: Path,
    *,
    chats: int,
    seed: int = 0,
    wave: int = 64,
    answer_most: int = 256,
    report: Callable[[str], None] = print,
) -> Chats:
    """Write chats to `path` until it holds `chats`; those it holds already count.

    Args:
        wave: chats written side by side.
        answer_most: length limit of an answer in tokens.
    """
    known = Chats.load(path, engine.target.vocab_size) if path.exists() else Chats([], [])
    form, start, before, idle = template(engine), time.monotonic(), known.tokens, 0
    while len(known) < chats and idle < 20:
        random = np.random.default_rng([seed, len(known), idle])
        new = _wave(engine, form, min(wave, chats - len(known)), answer_most, random)
        idle = 0 if new.ids else idle + 1
        known = Chats(known.ids + new.ids, known.answer_start + new.answer_start)
        known.save(path)
        rate = (known.tokens - before) / max(time.monotonic() - start, 1e-9)
        report(f"{len(known)} chats, {known.tokens} answer tokens, {rate:.0f} a second")
    return known


def _wave(engine: Engine, form: Template, count: int, most: int, random: np.random.Generator) -> Chats:
    plain = {"draft": "none", "trace": False, "min_p": MIN_P}
    prompts, between = [form.opening] * count, form.between
    if between is not None:
        turns = engine.generate_batch(
            prompts, [{"seed": int(s)} for s in random.integers(2**31, size=count)],
            temperature=1.0, max_new_tokens=TURN_MOST, **plain,
        )  # fmt: skip
        said = [run.output.token_ids for run in turns if run.output.finish_reason == "eos"]
        # The end-of-turn id is the template's own.
        prompts = [[*form.opening, *ids[:-1], *between] for ids in said if len(ids) > TURN_LEAST]
        if not prompts:
            return Chats([], [])
    settings = [
        {"seed": int(s), "temperature": TEMPERATURES[i % len(TEMPERATURES)] if between is not None else 1.0}
        for i, s in enumerate(random.integers(2**31, size=len(prompts)))
    ]
    runs = engine.generate_batch(prompts, settings, max_new_tokens=most, **plain)
    made = Chats([], [])
    for prompt, run in zip(prompts, runs, strict=True):
        if len(run.output.token_ids) >= ANSWER_LEAST:
            made.ids.append(np.array([*prompt, *run.output.token_ids]))
            made.answer_start.append(len(prompt))
    return made
