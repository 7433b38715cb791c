"""`bench` from the command line: files, tables, one sentence for bad input; MLflow and calibration where asked."""

import contextlib
import json
import sys
import types
from pathlib import Path

import pytest

from specviz import cli
from specviz.lab.bench import runner
from specviz.lab.bench.document import load
from specviz.lab.bench.tracking import metrics
from tests.tiny import tiny_folder
from tests.unit.made_bench import made_bench


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny", "llama", chat=True)


@pytest.fixture
def specviz(monkeypatch, capsys, tmp_path):
    """Runs a command line; gives (exit code, stdout, stderr)."""
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))

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
        (["--drafts", "nope"], "'nope'"),
        (["--gammas", "3,x"], "'x'"),
        (["--gammas", "99"], "99"),
        (["--temperatures", "warm"], "'warm'"),
        (["--temperatures", "nan"], "nan"),
        (["--dtypes", "int3"], "'int3'"),
        (["--reference", "int3"], "'int3'"),
        (["--candidates", "9", "--drafts", "pool"], "9"),
        (["--peers", "exllama"], "'exllama'"),
        (["--peer-python", "vllm=/nowhere"], "'/nowhere'"),
        (["--prompts", "/nowhere.jsonl"], "/nowhere.jsonl"),
        (["--json", "/nowhere/x.json"], "/nowhere/x.json"),
        (["--html", "/nowhere/x.html"], "/nowhere/x.html"),
        (["--rounds", "0"], "--rounds"),
        (["--verify", "hope"], "'hope'"),
        (["--drafts", "pool", "--verify", "block"], "'pool'"),
        (["--mlflow"], "pip install mlflow"),
    ],
)
def test_bad_input_exits_2_with_one_sentence_that_names_it(specviz, arguments, named, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    code, out, err = specviz("bench", "--target", "/nowhere", *arguments)
    assert code == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert out.strip() == ""


def test_a_benchmark_writes_its_files_and_goes_on_with_them(specviz, folder, tmp_path):
    file, page, prompts = (tmp_path / name for name in ("bench.json", "bench.html", "prompts.jsonl"))
    rows = [{"category": "abc"[i % 3], "turns": [f"Prompt {i}", "Again"]} for i in range(6)]
    prompts.write_text("\n".join(map(json.dumps, rows)))
    command = ["bench", "--target", folder, "--prompts", prompts, "--limit", 1, "--tokens", 6,
               "--dtypes", "float32", "--json", file,
               "--ignore-eos", "--peers", "vllm", "--html", page]  # fmt: skip
    code, out, _ = specviz(*command, "--against", "plain float32")
    assert code == 0
    found = load(file)
    assert found.done == 3
    assert "".join(prompt.category for prompt in found.prompts) == "abc"
    assert found.command.startswith("python -m specviz bench --target")
    assert "plain float32" in out
    assert "times as fast as plain float32" in out
    assert "vllm float32 is missing" in out
    assert '"plain float32"' in page.read_text()
    before = file.stat().st_mtime_ns
    code, again, _ = specviz(*command)
    assert (code, file.stat().st_mtime_ns) == (0, before)
    assert again.splitlines()[:2] == out.splitlines()[:2]
    code, _, err = specviz(*command[:-4], "--tokens", 7)
    assert code == 2
    assert "max_new_tokens" in err
    code, _, err = specviz(*command, "--against", "nobody")
    assert code == 2
    assert "no lane 'nobody'" in err
    prompts.write_text(json.dumps({"id": "long", "prompt": "x" * 3000}))
    code, _, err = specviz(*command, "--fresh")
    assert code == 2
    assert "Prompt 'long' cannot be used: The prompt is" in err


def test_an_interrupted_benchmark_says_where_its_prompts_are(specviz, folder, tmp_path, monkeypatch):
    prompts, file, whole = tmp_path / "prompts.jsonl", tmp_path / "bench.json", runner.summarise
    prompts.write_text("".join(json.dumps({"id": name, "prompt": f"Say {name}"}) + "\n" for name in "ab"))
    command = ["bench", "--prompts", prompts, "--target", folder, "--drafts", "ngram", "--dtypes", "float32",
               "--tokens", 4, "--json", file]  # fmt: skip

    def interrupted(document):
        if document.done == 2:
            raise KeyboardInterrupt
        return whole(document)

    monkeypatch.setattr(runner, "summarise", interrupted)
    code, _, err = specviz(*command)
    assert code == 130
    assert f"The prompts that are done are in {file}: run it again without --fresh." in err
    assert json.loads(file.read_text())["done"] == 1
    monkeypatch.setattr(runner, "summarise", whole)
    assert specviz(*command)[0] == 0
    assert [row["prompt"] for row in json.loads(file.read_text())["results"]] == ["a", "a", "b", "b"]


def test_adaptive_runs_calibrate_once_and_info_shows_it(specviz, folder, tmp_path):
    run = ["run", "hi", "--target", folder, "--max-new-tokens", 4, "--adaptive", "--ignore-eos"]
    assert specviz(*run)[0] == 0
    (file,) = (tmp_path / "cache" / "calibrations").iterdir()
    kept = json.loads(file.read_text())
    assert specviz(*run)[0] == 0
    assert json.loads(file.read_text()) == kept
    _, out, _ = specviz("info")
    assert "costs of hybrid on tiny" in out
    assert f"c {kept['calibration']['c']:.3f}" in out
    kept["key"]["code"] = "of yesterday"
    file.with_name("older.json").write_text(json.dumps(kept))
    assert specviz("info")[1].count("costs of") == 1
    file.with_name("older.json").unlink()
    assert specviz(*run, "--recalibrate")[0] == 0
    assert json.loads(file.read_text())["calibration"] != kept["calibration"]


def test_mlflow_gets_settings_figures_and_the_document(monkeypatch):
    from specviz.lab.bench import tracking

    logged = {}
    run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="run-7"))
    stand_in = types.SimpleNamespace(
        start_run=lambda run_name: contextlib.nullcontext(run),
        log_params=lambda values: logged.update(params=values),
        log_metrics=lambda values: logged.update(metrics=values),
        log_artifact=lambda path: logged.update(artifact=json.loads(Path(path).read_text())),
    )
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    bench = made_bench()
    assert tracking.log(bench, None) == "run-7"
    assert logged["params"]["seed"] == "0"
    assert logged["metrics"] == metrics(bench)
    assert logged["metrics"]["ngram_g3_int4/tokens_per_pass"] == 2
    assert logged["artifact"] == bench.to_dict()
