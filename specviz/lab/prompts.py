"""Prompts to measure with: lines of JSON in Spec-Bench's form, or the project's own set.

Of a conversation the first turn counts: what follows would depend on what each lane answered. Held by
tests/unit/test_bench.py.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.errors import SettingsError

#: The project's own set: two of each of seven categories.
OWN = Path(__file__).resolve().parents[2] / "assets" / "prompts" / "bench.jsonl"
NO_CATEGORY = "all"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt; `id` tells it from the others of its file."""

    id: str
    category: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


def read_prompts(path: Path = OWN) -> list[Prompt]:
    """The prompts of a JSONL file, each line an object with `turns` (Xia et al. 2024, Spec-Bench) or `prompt`.

    `question_id` or `id` names a prompt, else its line does; `category` groups it.

    Raises:
        SettingsError: the file cannot be read, or a line is something else; the sentence names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # a prompt may hold other line ends
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SettingsError(f"The prompts {path} cannot be read: {reason}.") from error
    prompts = [_prompt(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise SettingsError(f"{path} holds no prompts: each line must be JSON with `turns` or `prompt`.")
    twice = [name for name, count in Counter(prompt.id for prompt in prompts).items() if count > 1]
    if twice:
        raise SettingsError(f"{path} has two prompts with the id {twice[0]!r}: give each its own.")
    return prompts


def first_of_each(prompts: Sequence[Prompt], limit: int | None) -> list[Prompt]:
    """At most `limit` prompts of each category, in order; None keeps all."""
    seen: Counter[str] = Counter()
    kept = []
    for prompt in prompts:
        seen[prompt.category] += 1
        if limit is None or seen[prompt.category] <= limit:
            kept.append(prompt)
    return kept


def _prompt(path: Path, number: int, line: str) -> Prompt:
    where = f"{path}, line {number}"
    try:
        row = json.loads(line)
    except ValueError as error:
        raise SettingsError(f"{where} is not JSON: each line must be an object with `turns` or `prompt`.") from error
    text = _text(row)
    if text is None or not text.strip():
        raise SettingsError(f"{where} holds no prompt: it must be an object with `turns` or `prompt`.")
    name = row.get("question_id", row.get("id", number))
    return Prompt(str(name), str(row.get("category") or NO_CATEGORY), text)


def _text(row: Any) -> str | None:
    if not isinstance(row, dict):
        return None
    turns = row.get("turns")
    text = turns[0] if isinstance(turns, list) and turns else row.get("prompt")
    return text if isinstance(text, str) else None
