"""Users' turns that set a task about a text: an instruction, and a passage that the target wrote in an earlier chat.

Turns that the target thinks of itself are short questions. People also paste text and ask for something to be done with
it, and a draft that never saw that drafts badly there (copied words, long prompts). Passages are the target's own, so
still no outside text is needed. Held by tests/unit/test_synthesise.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from specviz.errors import SettingsError
from specviz.train.chats import Chats

#: Of (passage, question it answers); some put the instruction in front, some behind.
ABOUT_PASSAGES = (
    "Summarize this text in two or three sentences:\n\n{passage}",
    "{passage}\n\nGive me the key points of the text above as a list.",
    "Give the following text a headline, then say in one paragraph what it is about.\n\n{passage}",
    "Use only the text below to answer.\n\nText: {passage}\n\nQuestion: {question}",
    "Background:\n{passage}\n\nWith this background, answer in your own words: {question}",
    "Here is an answer that somebody wrote. Correct its mistakes and make it shorter.\n\n{passage}",
    "Rewrite this so that a child of ten understands it:\n\n{passage}",
    "{passage}\n\nWhat comes next? Go on in the same style.",
    "Read this and write three questions that check whether a reader understood it.\n\n{passage}",
    "Put this into formal language, changing as little as you can:\n\n{passage}",
)
#: Of one sentence.
ABOUT_SENTENCES = (
    "Translate into German: {sentence}",
    "Translate this sentence into French.\n{sentence}",
    "How would you say this in Spanish? {sentence}",
    "Say the same in other words, in five different ways: {sentence}",
    "Is this true, and why? {sentence}",
)
#: The part of the tasks that is about sentences.
SENTENCES = 0.25
#: Tokens of a passage that is used; a longer text is cut behind a sentence.
PASSAGE_LEAST, PASSAGE_MOST = 40, 260
#: Characters of a sentence.
SENTENCE_LEAST, SENTENCE_MOST = 30, 200


@dataclass(frozen=True, slots=True)
class Source:
    """What one chat gives: the user's `question` and the target's answer as a `passage`."""

    question: str
    passage: str


class Tasks:
    """An endless row of tasks; the nth depends on the seed and n alone.

    Args:
        chats: what the target wrote, template included.
        opening, between: the ids in front of a user's turn, and those between its end and the answer.

    Raises:
        SettingsError: no chat has an answer that is long enough.
    """

    def __init__(
        self,
        chats: Chats,
        tokenizer: PreTrainedTokenizerBase,
        opening: Sequence[int],
        between: Sequence[int],
        seed: int,
    ) -> None:
        self._tokenizer, self._seed = tokenizer, seed
        self._sources = []
        for ids, start in zip(chats.ids, chats.answer_start, strict=True):
            if len(ids) - start >= PASSAGE_LEAST:
                passage = whole_sentences(self._text(ids[start : start + PASSAGE_MOST]))
                question = self._text(ids[len(opening) : start - len(between)])
                self._sources.append(Source(question, passage))
        if not self._sources:
            raise SettingsError(f"Tasks need chats with answers of {PASSAGE_LEAST} tokens and more: there are none.")

    def _text(self, ids: np.ndarray) -> str:
        return self._tokenizer.decode(ids.tolist(), skip_special_tokens=True).strip()

    def turn(self, number: int) -> list[int]:
        """Token ids of a user's turn."""
        # Another stream than that of the attempt itself: the same numbers would tie its first token to the form.
        random = np.random.default_rng([self._seed, number, 1])
        source = self._sources[random.integers(len(self._sources))]
        sentences = [part for part in _sentences(source.passage) if SENTENCE_LEAST <= len(part) <= SENTENCE_MOST]
        if sentences and random.random() < SENTENCES:
            form = ABOUT_SENTENCES[random.integers(len(ABOUT_SENTENCES))]
            text = form.format(sentence=sentences[random.integers(len(sentences))])
        else:
            form = ABOUT_PASSAGES[random.integers(len(ABOUT_PASSAGES))]
            text = form.format(passage=source.passage, question=source.question)
        return self._tokenizer.encode(text, add_special_tokens=False)


def whole_sentences(text: str) -> str:
    """Without a last sentence that breaks off; a text of one sentence stays."""
    end = max((match.end() for match in re.finditer(r"[.!?:](?=\s|$)|\n", text)), default=0)
    return text[:end].strip() or text


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"(?<=[.!?])\s+", text.replace("\n", " ")) if part.strip()]
