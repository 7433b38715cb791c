"""Trained drafts on disk and in the engine: every kind is found, warned of or refused in a sentence."""

import dataclasses
import json

import pytest
import torch

from specviz.drafters import head
from specviz.drafters import heads as heads_module
from specviz.drafters.head import describe_target, load_head, save_head
from specviz.drafters.heads import KINDS, NEEDS, find_heads
from specviz.drafters.shapes import SHAPES, EagleShape, FeedForwardShape, MedusaShape, ModelShape
from specviz.engine.engine import Engine
from specviz.engine.model import LanguageModel
from specviz.errors import SettingsError
from specviz.lab.table import random_weights
from specviz.settings import DRAFTS, Settings
from tests.tiny import VOCAB_SIZE, tiny_model, tiny_tokenizer
from tests.unit.checks import check_counts

VOCABULARY = torch.arange(0, 300, 3)
MADE = {
    "eagle": EagleShape(32, 4, 2, 8, 48, (1, 2)),
    "medusa": MedusaShape(32, 3, (1, 2)),
    "feedforward": FeedForwardShape(32, 4, 48, (1, 2)),
    "model": ModelShape(32, 4, 2, 8, 64, 1, (1, 2)),
}


def target_of(seed: int = 0) -> LanguageModel:
    return LanguageModel(tiny_model("llama", seed=seed), "tiny", VOCAB_SIZE)


def write(folder, kind: str, **changes) -> None:
    shape = dataclasses.replace(MADE[kind], **changes)
    about = {
        "type": kind,
        "name": f"tiny {kind}",
        "target": describe_target(target_of(), tiny_tokenizer(), shape.taps),
        "shape": dataclasses.asdict(shape),
    }
    save_head(folder / kind, random_weights(shape), VOCABULARY, about)


@pytest.fixture
def folder(tmp_path):
    for kind in MADE:
        write(tmp_path, kind)
    return tmp_path


def test_there_is_a_shape_for_every_kind():
    assert set(SHAPES) == set(KINDS) == set(MADE)
    assert set(NEEDS.values()) == set(KINDS) - {"model"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_is_loaded_as_it_was_saved_to_the_precision_of_int8(folder, kind):
    head, weights = load_head(folder / f"{kind}.json"), random_weights(MADE[kind])
    assert (head.shape, head.vocabulary.tolist()) == (MADE[kind], VOCABULARY.tolist())
    for name, weight in weights.items():
        torch.testing.assert_close(head.weights[name], weight.float(), rtol=0, atol=float(weight.abs().max()) / 200)


def test_all_kinds_are_found_and_draft(folder):
    target = target_of()
    heads = find_heads(target, tiny_tokenizer(), folder)
    assert {kind: (head.name, head.warning) for kind, head in heads.items()} == {
        kind: (f"tiny {kind}", None) for kind in KINDS
    }
    engine = Engine(target, tiny_tokenizer(), heads=heads)
    assert set(engine.drafts().values()) == {None}
    for draft in (*NEEDS, "model"):
        run = engine.generate([5, 6, 7], draft=draft, gamma=3, temperature=1.0, max_new_tokens=10, ignore_eos=True)
        check_counts(run)
        assert run.draft.name == f"tiny {NEEDS.get(draft, 'model')}"


def test_heads_for_other_weights_warn_and_change_no_output(folder):
    target = target_of(seed=5)
    engine = Engine(target, tiny_tokenizer(), heads=find_heads(target, tiny_tokenizer(), folder))
    expected = engine.generate([5, 6, 7], draft="none", max_new_tokens=9, ignore_eos=True).output
    for draft in (*NEEDS, "model", "hybrid"):
        run = engine.generate([5, 6, 7], draft=draft, gamma=2, max_new_tokens=9, ignore_eos=True)
        assert sum("trained for other weights" in (step.note or "") for step in run.steps) == 1
        assert run.output == expected


def test_what_does_not_fit_is_a_sentence_of_its_kind(folder):
    card = folder / "medusa.json"
    about = json.loads(card.read_text())
    about["target"]["layers"] = 9
    card.write_text(json.dumps(about))
    weights = folder / "feedforward.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    (folder / "model.json").unlink()
    target = target_of()
    heads = find_heads(target, tiny_tokenizer(), folder)
    assert not isinstance(heads["eagle"], str)
    assert "wants a number of layers of 9, and this has 2" in heads["medusa"]
    assert "is damaged" in heads["feedforward"]
    assert "there is none" in heads["model"]
    engine = Engine(target, tiny_tokenizer(), heads=heads)
    with pytest.raises(SettingsError, match="layers of 9"):
        engine.stream("hi", draft="medusa")
    assert engine.drafts()["model"] == "No draft model was loaded: name one with draft_model."


def test_heads_that_read_other_layers_cannot_be_used_together(folder):
    write(folder, "medusa", taps=(2,))
    write(folder, "feedforward", taps=(2,))  # reads none of them
    target = target_of()
    heads = find_heads(target, tiny_tokenizer(), folder)
    assert "The medusa head reads layers 2 of tiny and the eagle head 1, 2" in heads["medusa"]
    assert not isinstance(heads["feedforward"], str)
    assert target.tapped == (1, 2)
    run = Engine(target, tiny_tokenizer(), heads=heads).generate([5, 6, 7], draft="eagle", max_new_tokens=9)
    check_counts(run)


@pytest.fixture
def read(monkeypatch):
    """The heads whose weights were read, in order."""
    names = []

    def load_head(path):
        names.append(path.stem)
        return head.load_head(path)

    monkeypatch.setattr(heads_module, "load_head", load_head)
    return names


NEEDED = [("none", []), ("ngram", []), ("layer_skip", []), ("eagle", ["eagle"]), ("hybrid", ["eagle"]),
          ("medusa", ["medusa"]), ("tree", ["model"]), ("pool", ["eagle", "model"])]  # fmt: skip


@pytest.mark.parametrize(("draft", "kinds"), NEEDED)
def test_a_run_reads_only_the_heads_it_drafts_with(folder, read, draft, kinds):
    target = target_of()
    engine = Engine(target, tiny_tokenizer(), heads=find_heads(target, tiny_tokenizer(), folder))
    for _ in range(2):
        engine.generate([5, 6, 7], draft=draft, max_new_tokens=4, ignore_eos=True)
    assert read == list(engine.heads.made()) == kinds
    assert set(engine.drafts().values()) == {None}  # who asks what can be used is told no guess
    assert sorted(read) == sorted(MADE)


def test_files_are_checked_before_a_head_is_needed_and_again_when_it_is(folder, read):
    weights = folder / "medusa.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    target = target_of()
    assert "medusa is damaged" in find_heads(target, tiny_tokenizer(), folder)["medusa"]
    weights.write_bytes(whole)
    engine = Engine(target, tiny_tokenizer(), heads=find_heads(target, tiny_tokenizer(), folder))
    assert read == []
    weights.write_bytes(whole[:-1])
    with pytest.raises(SettingsError, match="medusa is damaged"):
        engine.stream([5, 6, 7], draft="medusa")
    assert "medusa is damaged" in engine.drafts()["medusa"]


@pytest.mark.parametrize("kind", KINDS)
def test_making_a_head_leaves_alone_a_run_that_is_under_way(folder, kind):
    target = target_of()
    engine = Engine(target, tiny_tokenizer(), heads=find_heads(target, tiny_tokenizer(), folder))
    options = {"draft": "eagle" if kind == "model" else "ngram", "max_new_tokens": 20, "ignore_eos": True}
    decoding = engine.stream([5, 6, 7, 5, 6], **options)
    steps = [next(decoding)]
    assert kind not in engine.heads.made()
    assert engine.heads.why_not(kind) is None
    assert kind in engine.heads.made()
    steps += decoding
    again = engine.generate([5, 6, 7, 5, 6], **options)
    assert decoding.run.output == again.output
    assert [[token.p for token in step.tokens] for step in steps] == [
        [token.p for token in step.tokens] for step in again.steps
    ]


def test_costs_are_of_the_heads_that_a_draft_type_uses(folder):
    def keys():
        target = target_of()
        engine = Engine(target, tiny_tokenizer(), heads=find_heads(target, tiny_tokenizer(), folder))
        return {draft: engine._cost_key(Settings.of(draft=draft)) for draft in DRAFTS}

    before = keys()
    assert {draft: list(key["heads"]) for draft, key in before.items() if key["heads"]} == {
        "model": ["model"], "eagle": ["eagle"], "eagle-tree": ["eagle"], "medusa": ["medusa"],
        "feedforward": ["feedforward"], "hybrid": ["eagle"], "tree": ["model"], "tree-dynamic": ["model"],
        "pool": ["eagle"],
    }  # fmt: skip
    assert keys() == before
    shape = MADE["eagle"]
    about = json.loads((folder / "eagle.json").read_text())
    save_head(folder / "eagle", random_weights(shape, seed=1), VOCABULARY, about)
    after = keys()
    assert {draft for draft in DRAFTS if after[draft] != before[draft]} == {"eagle", "eagle-tree", "hybrid", "pool"}
