"""Chats that the target writes itself: the same however they are made, drawn as they say, and tasks about texts."""

import numpy as np
import pytest
import torch

from specviz.engine.engine import Engine
from specviz.engine.model import LanguageModel
from specviz.errors import SettingsError
from specviz.train.chats import Chats
from specviz.train.synthesise import (
    ANSWER_LEAST,
    MIN_P,
    TEMPERATURES,
    TURN_LEAST,
    TURN_MOST,
    Attempt,
    Desk,
    synthesise,
    template,
)
from specviz.train.tasks import Tasks, whole_sentences
from tests.conftest import tiny_engine
from tests.tiny import VOCAB_SIZE, tiny_model, tiny_tokenizer


def chatting_engine() -> Engine:
    """Its end-of-turn id comes often enough that some turns are too short, some too long and some just right."""
    model = tiny_model("llama", std=0.05)
    tokenizer = tiny_tokenizer(True)
    engine = Engine(LanguageModel(model, "tiny", VOCAB_SIZE), tokenizer, eos_token_ids=range(24))
    assert len(template(engine).between) > 1
    return engine


def made_chats(engine: Engine, path, count: int, side: int, source: Chats | None = None) -> Chats:
    return synthesise(engine, path, chats=count, side=side, answer_most=20, source=source, report=lambda _: None)


@pytest.mark.parametrize("with_template", [True, False])
def test_synthesis_is_the_same_however_many_are_written_side_by_side_and_interrupted(tmp_path, with_template):
    engine = chatting_engine() if with_template else tiny_engine()
    whole = made_chats(engine, tmp_path / "a.npz", 12, 5)
    made_chats(engine, tmp_path / "b.npz", 3, 4)
    again = made_chats(engine, tmp_path / "b.npz", 12, 1)
    assert [one.tolist() for one in again.ids] == [one.tolist() for one in whole.ids]
    assert (again.answer_start, again.tried) == (whole.answer_start, whole.tried)
    assert len({tuple(one.tolist()) for one in whole.ids}) > 10
    form, ends = template(engine), engine.eos_token_ids
    for ids, start in zip(whole.ids, whole.answer_start, strict=True):
        ids = ids.tolist()
        assert ids[: len(form.opening)] == form.opening
        assert ANSWER_LEAST <= len(ids) - start <= 20
        assert not set(ids[start:-1]) & set(ends)
        if with_template:
            turn = ids[len(form.opening) : start - len(form.between)]
            assert ids[start - len(form.between) : start] == form.between
            assert TURN_LEAST <= len(turn) < TURN_MOST
            assert not set(turn) & set(ends)
    assert whole.tried > 12 or not with_template


def test_a_pass_of_synthesis_is_always_full_until_enough_is_under_way(tmp_path, monkeypatch):
    """A chat that ends makes room for the next one."""
    engine, sizes = chatting_engine(), []
    assert engine.target.refuses_trees() is None  # tried out once, by passes of its own
    run, slots = engine.target.run, []

    def counted(passes):
        sizes.append([len(one.ids) for one in passes])
        slots.append([one.cache.slot for one in passes])
        return run(passes)

    monkeypatch.setattr(engine.target, "run", counted)
    made_chats(engine, tmp_path / "a.npz", 12, 4)
    assert all(set(rows) == {1} for rows in sizes)
    assert sum(len(rows) == 4 for rows in sizes) > 0.8 * len(sizes)
    assert all(row == sorted(row) for row in slots)  # or every pass would copy the memory together


def test_the_tokens_are_drawn_from_the_tempered_distribution():
    engine = chatting_engine()
    with torch.inference_mode():
        desk = Desk(engine, 1, 20, 0, 0)
    logits = torch.tensor([[0.0, 1.0, 2.0, -9.0]]).expand(4000, -1)
    for number, answer_start in ((0, 5), (1, 5), (2, 5), (0, 0)):
        heat = TEMPERATURES[number] if answer_start else 1.0
        attempts = [Attempt(number, [1], np.random.default_rng(i), answer_start) for i in range(4000)]
        seen = np.bincount(desk._draw(logits, attempts), minlength=4) / 4000
        expected = (logits[0] / heat).softmax(-1).numpy()
        assert abs(seen - np.where(expected < MIN_P * expected.max(), 0, expected)).max() < 0.03
        assert seen[3] == 0


def test_a_target_that_writes_no_chats_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("specviz.train.synthesise.IDLE_MOST", 20)
    engine = chatting_engine()
    engine.eos_token_ids = tuple(range(VOCAB_SIZE))  # every turn ends at once
    with pytest.raises(SettingsError, match="writes no chats"):
        made_chats(engine, tmp_path / "a.npz", 2, 4)


def test_a_task_is_an_instruction_and_a_text_of_an_earlier_chat(tmp_path, monkeypatch):
    """The same ones however many are written side by side, in the template's place for a user's turn."""
    monkeypatch.setattr("specviz.train.tasks.PASSAGE_LEAST", 5)
    engine = chatting_engine()
    form, tokenizer = template(engine), engine.tokenizer
    said = ["What is a draft?", "A draft is a guess of the next words. It is cheap to make."]
    question, passage = (tokenizer.encode(text, add_special_tokens=False) for text in said)
    source = Chats([np.array([*form.opening, *question, *form.between, *passage])],
                   [len(form.opening) + len(question) + len(form.between)])  # fmt: skip
    whole = made_chats(engine, tmp_path / "a.npz", 8, 5, source)
    again = made_chats(engine, tmp_path / "b.npz", 8, 1, source)
    assert [one.tolist() for one in again.ids] == [one.tolist() for one in whole.ids]
    turns = []
    for ids, start in zip(whole.ids, whole.answer_start, strict=True):
        ids = ids.tolist()
        assert ids[: len(form.opening)] == form.opening
        assert ids[start - len(form.between) : start] == form.between
        turns.append(tokenizer.decode(ids[len(form.opening) : start - len(form.between)]))
    assert all("guess" in turn or "cheap" in turn for turn in turns)
    assert len(set(turns)) > 4
    with pytest.raises(SettingsError, match="made in another way"):
        made_chats(engine, tmp_path / "a.npz", 9, 5)


def test_tasks_need_texts_and_a_place_for_them(tmp_path):
    short = Chats([np.array([1, 2, 3])], [2])
    with pytest.raises(SettingsError, match="Tasks need chats with answers of 40 tokens"):
        made_chats(chatting_engine(), tmp_path / "a.npz", 1, 1, short)
    with pytest.raises(SettingsError, match="has no chat template"):
        made_chats(tiny_engine(), tmp_path / "a.npz", 1, 1, short)


def test_a_passage_ends_with_a_sentence():
    assert whole_sentences("One. Two 1.5 is! And then so") == "One. Two 1.5 is!"
    assert whole_sentences("no end") == "no end"


def test_the_first_draw_of_an_answer_says_nothing_of_its_task():
    """Numbers of one stream would tie them: every summary would begin with the target's likeliest word."""
    ids = np.array([1, *range(20, 70)])
    tasks = Tasks(Chats([ids], [1]), tiny_tokenizer(True), [], [], 3)
    forms = [tuple(tasks.turn(number)[:6]) for number in range(300)]
    first = [np.random.default_rng([3, number]).random() for number in range(300)]
    for form in set(forms):
        drawn = [u for u, other in zip(first, forms, strict=True) if other == form]
        assert len(drawn) < 10 or max(drawn) - min(drawn) > 0.5
    assert len(set(forms)) > 5


def test_a_template_that_begins_with_the_users_words_still_has_an_opening():
    engine = chatting_engine()
    engine.tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %} ok"
    assert template(engine).opening == [engine.eos_token_ids[0]]
