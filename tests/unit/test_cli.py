"""The command line: one sentence and code 2 for bad input, JSON alone on stdout when asked, hostile text harmless."""

import io
import json
import sys

import pytest

from specviz import cli
from specviz.lab.race import Race
from specviz.terminal import visible
from specviz.trace import Run
from tests.tiny import tiny_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny", "llama", chat=True)


@pytest.fixture
def specviz(monkeypatch, capsys):
    """Runs a command line; gives (exit code, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["specviz", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out = capsys.readouterr()
        return ended.value.code, out.out, out.err

    return call


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", ""], "prompt is empty"),
        (["run", "hi", "--gamma", "0"], "0"),
        (["run", "hi", "--gamma", "999"], "999"),
        (["run", "hi", "--gamma", "x"], "'x'"),
        (["run", "hi", "--temperature", "-1"], "-1.0"),
        (["run", "hi", "--temperature", "nan"], "nan"),
        (["run", "hi", "--top-p", "7"], "7.0"),
        (["run", "hi", "--max-new-tokens", "0"], "0"),
        (["run", "hi", "--draft", "foo"], "'foo'"),
        (["run", "hi", "--verify", "hope"], "'hope'"),
        (["run", "hi", "--pair", "nope"], "'nope'"),
        (["run", "hi", "--target", "/nowhere"], "/nowhere"),
        (["run", "hi", "--dtype", "int3"], "'int3'"),
        (["run", "hi", "--device", "abacus"], "'abacus'"),
        (["run", "hi", "--json", "/nowhere/x.json"], "/nowhere/x.json"),
        (["run", "hi", "--json", "/tmp"], "it is a folder"),
        (["run", "hi", "--json", "a" * 300 + "/x"], "name too long"),
        (["run", "hi", "--seed", "1" + "0" * 400], "seed must be"),
        (["run", "hi", "--draft", "none", "--gamma", "999"], "999"),
        (["run", "hi", "--gama", "3"], "--gama"),
        (["run"], "PROMPT"),
        (["race", "hi", "--rounds", "0"], "0"),
        (["race", "hi", "--draft", "none"], "needs a draft"),
        (["race", "hi", "--draft", "ngram:temperature=1"], "temperature"),
        (["race", "hi", "--draft", "ngram", "--draft", "ngram"], "Two lanes are the same"),
        (["info", "--pair", "nope"], "'nope'"),
        (["fetch", "--pair", "nope"], "'nope'"),
    ],
)
def test_bad_input_exits_2_with_one_sentence_that_names_it(specviz, arguments, named):
    code, out, err = specviz(*arguments)
    assert code == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert out.strip() == ""


def test_bad_input_that_only_the_model_can_tell(specviz, folder):
    code, _, err = specviz("run", "hi", "--target", folder, "--draft", "model")
    assert code == 2
    assert "'model' cannot be used" in err
    code, _, err = specviz("run", "x" * 3000, "--target", folder)
    assert code == 2
    assert "reads at most 256" in err


def test_run_writes_json_alone_on_stdout(specviz, folder):
    code, out, err = specviz("run", "hi", "--target", folder, "--max-new-tokens", 9, "--ignore-eos", "--json", "-")
    run = Run.from_json(out)
    assert code == 0
    assert run.summary.tokens == 9
    assert "9 tokens in" in err


def test_run_takes_every_option(specviz, folder, tmp_path):
    file = tmp_path / "run.json"
    options = ["--draft-model", folder, "--draft", "model", "--gamma", 3, "--verify", "rejection", "--temperature", 0.7,
               "--top-k", 20, "--top-p", 0.9, "--seed", 7, "--max-new-tokens", 12, "--stop", "zz", "--stop", "yy",
               "--dtype", "float32", "--device", "cpu", "--no-chat", "--ignore-eos", "--json", file]  # fmt: skip
    code, out, _ = specviz("run", "hi", "--target", folder, *options)
    run = Run.from_json(file.read_text())
    assert code == 0
    assert run.draft.type == "model"
    expected = {
        "gamma": 3,
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["zz", "yy"],
        "chat": False,
    }
    assert expected.items() <= run.settings.items()
    assert "per target pass" in out


def test_without_a_terminal_the_output_is_the_text_alone(specviz, folder):
    _, out, _ = specviz("run", "hi", "--target", folder, "--max-new-tokens", 20, "--json", "-")
    text = Run.from_json(out).output.text
    _, out, _ = specviz("run", "hi", "--target", folder, "--max-new-tokens", 20)
    assert out.startswith(visible(text))


def test_race_writes_the_race_contract(specviz, folder):
    code, out, _ = specviz("race", "hi", "--target", folder, "--max-new-tokens", 9, "--rounds", 2, "--json", "-")
    data = json.loads(out)
    assert code == 0
    assert Race.from_dict(data).rounds == 2
    assert data["schema"] == "specviz.race/1"


def test_a_race_of_several_drafts_says_how_each_did_and_why(specviz, folder):
    drafts = ["--draft", "ngram", "--draft", "ngram-smoothed:gamma=2"]
    code, out, _ = specviz("race", "hi", "--target", folder, "--max-new-tokens", 9, "--rounds", 1, *drafts)
    assert code == 0
    assert "smoothed n-gram drafting (gamma 2)" in out
    assert "predicted" in out
    assert out.count("times the speed of plain decoding") >= 2
    assert "too few to call a winner" in out


def test_info_names_device_precision_and_pairs(specviz):
    code, out, _ = specviz("info")
    assert code == 0
    assert "smollm2-135m (default)" in out
    assert "precision" in out


def test_escape_sequences_do_not_reach_the_terminal():
    assert "\x1b" not in visible("\x1b[31mred\x07\u202e")
    for text in ("line\nwith\ttab é 日本", "👩\u200d🚀", "1\u00a0000\u202f€", "日本\u3000語"):
        assert visible(text) == text


def test_stdin_that_is_not_utf8_is_refused(specviz, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8"))
    code, _, err = specviz("run", "-", "--target", folder)
    assert code == 2
    assert "not UTF-8 text (byte 3)" in err


def test_a_prompt_comes_from_stdin_and_json_is_ascii(specviz, folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("日本".encode()), encoding="ascii"))
    code, out, _ = specviz("run", "-", "--target", folder, "--max-new-tokens", 3, "--json", "-")
    assert code == 0
    assert out.isascii()
    assert Run.from_json(out).prompt.text == "日本"


def test_a_full_disk_is_one_sentence(specviz, folder, monkeypatch, tmp_path):
    import errno
    from pathlib import Path

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    code, _, err = specviz("run", "hi", "--target", folder, "--max-new-tokens", 2, "--json", tmp_path / "x.json")
    assert code == 2
    assert "No space left on device" in err


def test_prove_passes_and_says_so(specviz):
    code, out, _ = specviz("prove", "--samples", 400)
    assert code == 0
    assert "Lossless: the draft model under rule rejection" in out


def test_prove_as_json(specviz):
    code, out, err = specviz("prove", "--draft", "tree", "--verify", "rejection", "--samples", 300, "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert (found["schema"], found["mistake"], found["n"], found["passed"]) == ("specviz.proof/1", None, 300, True)
    assert {"tv", "tv_exact", "chi2", "p_value", "dof"} < found.keys()
    assert "total variation" in err


def test_every_mistake_that_is_listed_makes_prove_fail(specviz):
    code, out, _ = specviz("prove", "--list-mistakes")
    assert code == 0
    names = out.split()
    assert len(names) == 10
    for name in names:
        code, out, _ = specviz("prove", "--mistake", name, "--samples", 1000, "--json", "-")
        assert (code, json.loads(out)["passed"], json.loads(out)["mistake"]) == (1, False, name)


def test_prove_refuses_in_a_sentence(specviz):
    for arguments, words in [
        (("--mistake", "typo"), "Unknown mistake 'typo'"),
        (("--samples", "many"), "samples must be a whole number"),
        (("--draft", "pool", "--verify", "block"), "proposes a tree"),
        (("--gamma", "7"), "gamma must be at most 4"),
    ]:
        code, out, err = specviz("prove", *arguments)
        assert (code, out) == (2, "")
        assert words in err
