"""`python -m specviz train` from the command line: the whole pipeline on tiny models, and what it refuses."""

import sys

import pytest

from specviz import cli
from specviz.drafters.head import load_head
from specviz.drafters.heads import KINDS, find_heads
from specviz.engine.model import LanguageModel
from specviz.train.evaluate import CHAINS, DEEP, TREES
from specviz.train.features import Reader
from tests.tiny import VOCAB_SIZE, tiny_folder, tiny_model, tiny_tokenizer
from tests.unit.selfchats import chats


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny", "llama", chat=True)


def run(monkeypatch, *arguments) -> int:
    monkeypatch.setattr(sys, "argv", ["specviz", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_the_whole_pipeline_from_the_command_line(monkeypatch, capsys, folder, tmp_path):
    """Chats, every kind of draft from one store of features, and each of them run and measured."""
    data, drafts = tmp_path / "chats.npz", tmp_path / "drafts"
    chats(30).save(data)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"turns": ["hi there"]}\n{"prompt": "the draft"}\n', encoding="utf-8")
    models = ["--target", folder, "--device", "cpu"]
    assert run(monkeypatch, "train", "synthesise", *models, "--out", tmp_path / "own.npz", "--chats", 2,
               "--side", 16, "--answer", 10, "--dtype", "float32") == 0  # fmt: skip
    more = tmp_path / "tasks.npz"
    monkeypatch.setattr("specviz.train.tasks.PASSAGE_LEAST", 5)  # the chats are short
    assert run(monkeypatch, "train", "synthesise", *models, "--tasks", data, "--out", more, "--chats", 2,
               "--side", 2, "--answer", 10, "--dtype", "float32") == 0  # fmt: skip
    reads = []
    read = Reader.read
    monkeypatch.setattr(Reader, "read", lambda self, ids: reads.append(ids) or read(self, ids))
    for kind in KINDS:
        before = len(reads)
        assert run(monkeypatch, "train", kind, *models, "--data", data, "--data", more, "--out", drafts / kind,
                   "--tokens", 600, "--batch", 300, "--dtype", "float32", "--vocabulary", 80,
                   "--work", tmp_path / "work") == 0  # fmt: skip
        assert (len(reads) == before) == (kind != "eagle")  # what the first one read serves all
        card = drafts / f"{kind}.json"
        assert run(monkeypatch, "train", "evaluate", *models, "--head", card, "--data", data, "--prompts", prompts,
                   "--count", 2, "--gammas", "1,3", "--tokens", 8, "--dtype", "float32") == 0  # fmt: skip
        head = load_head(card)
        assert head.card["type"] == kind
        assert len(head.vocabulary) == 80
        assert head.card["training"]["tokens_seen"] >= 600
        assert head.card["training"]["curve"][-1]["overlap"]
        assert head.card["training"]["data"].startswith("29 chats")  # 30 and 2, without 3 kept out
        assert f"train {kind}" in head.card["command"]
        figures = head.card["evaluation"]["figures"]
        types = {CHAINS.get(kind), TREES.get(kind)} - {None}
        assert {(f["prompts"], f["draft"]) for f in figures} == {
            (name, draft) for name in ("held-out chats", "prompts") for draft in types
        }
        for figure in figures:
            assert 1 <= figure["low"] <= figure["tokens_per_step"] <= figure["high"] <= figure["gamma"] + 1
            assert len(figure["overlap"]) == (DEEP if figure["temperature"] else 0)
        assert head.card["weights"]["precision"] == "int8"
    assert sorted(place.name for place in (tmp_path / "work").iterdir()) == sorted([*KINDS, "features"])
    text = capsys.readouterr().out
    assert "held-out overlap" in text
    assert "tokens per step" in text
    heads = find_heads(LanguageModel(tiny_model("llama"), "tiny", VOCAB_SIZE), tiny_tokenizer(True), drafts)
    assert not [words for words in heads.values() if isinstance(words, str)]


def test_a_draft_of_another_kind_is_no_start(monkeypatch, capsys, folder, tmp_path):
    data = tmp_path / "chats.npz"
    chats(12).save(data)
    options = ["--target", folder, "--device", "cpu", "--data", data, "--tokens", 10, "--dtype", "float32"]
    assert run(monkeypatch, "train", "feedforward", *options, "--out", tmp_path / "a") == 0
    assert run(monkeypatch, "train", "feedforward", *options, "--out", tmp_path / "b", "--start",
               tmp_path / "a.json") == 0  # fmt: skip
    assert run(monkeypatch, "train", "medusa", *options, "--out", tmp_path / "c", "--start", tmp_path / "a.json") == 2
    assert "is a draft of type feedforward, and medusa is to be trained" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["eagle", "--data", "x.npz", "--out", "x"], "--minutes or --tokens"),
        (["evaluate", "--head", "x.json"], "--data, --prompts or both"),
        (
            ["eagle", "--data", "x.npz", "--out", "x", "--tokens", "5", "--dtype", "int4"],
            "float32 or bfloat16, not int4",
        ),
    ],
)
def test_bad_input_is_one_sentence(monkeypatch, capsys, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "train", *arguments) == 2
    assert words in capsys.readouterr().err
