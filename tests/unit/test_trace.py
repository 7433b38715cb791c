"""A run goes to JSON and comes back unchanged; foreign files fail at once and say where."""

import dataclasses
import json

import pytest

from specviz.trace import Calibration, Run
from tests.conftest import tiny_engine

#: DESIGN.md §3, the contract: what every reader of a trace may count on.
RUN = {"schema", "id", "created_at", "app_version", "device", "target", "draft", "settings", "prompt", "prefill",
       "steps", "output", "summary", "calibration"}  # fmt: skip
STEP = {"index", "t_start", "t_end", "draft_s", "verify_s", "host_s", "gamma", "draft", "cache_before", "cache_after",
        "note", "tokens"}  # fmt: skip
TOKEN = {"position", "id", "text", "fate", "parent", "p", "q", "u", "accept_prob", "overlap", "confidence", "source",
         "top_p", "top_q", "residual"}  # fmt: skip
SETTINGS = {"draft", "gamma", "adaptive", "min_confidence", "candidates", "exit_layer",
            "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
            "frequency_penalty", "logit_bias", "seed", "max_new_tokens", "verify", "chat", "ignore_eos", "stop",
            "eos_token_id"}  # fmt: skip


@pytest.fixture(scope="module")
def run() -> Run:
    return tiny_engine(draft_seed=1).generate("the draft", draft="model", temperature=1.0, max_new_tokens=20, top=3)


def test_round_trip_is_exact(run):
    assert Run.from_json(run.to_json()) == run


def test_every_field_of_the_contract_is_there_and_no_other(run):
    data = json.loads(run.to_json())
    assert data.keys() == RUN
    assert data["settings"].keys() == SETTINGS
    assert all(step.keys() == STEP for step in data["steps"])
    assert all(token.keys() == TOKEN for step in data["steps"] for token in step["tokens"])
    assert data["summary"].keys() == {"tokens", "steps", "tokens_per_step", "tokens_per_second", "acceptance_rate",
                                      "alpha", "by_position", "predicted"}  # fmt: skip


def test_a_run_that_adapts_holds_its_calibration_and_its_prediction():
    calibration = Calibration(c=0.1, v=[1.0, 1.1, 1.2], h=0.05, h0=0.02, unit_s=0.001)
    run = tiny_engine(draft_seed=0).generate(
        "a", draft="model", adaptive=True, calibration=calibration, max_new_tokens=9
    )
    assert run.calibration == calibration
    assert Run.from_json(run.to_json()) == run
    assert json.loads(run.to_json())["calibration"].keys() == {"c", "v", "h", "h0", "unit_s"}
    assert run.summary.predicted.keys() == {"alpha", "c", "v", "h", "h0", "speedup"}


def test_a_modelled_step_costs_its_drafts_its_rows_and_the_host():
    calibration = Calibration(c=0.5, v=[1.0, 1.25, 2.0], h=0.125, h0=0.0625, unit_s=1.0)
    assert calibration.step(0) == 1.0625
    assert calibration.step(1) == 0.5 + 1.25 + 0.125
    assert calibration.step(1, 2) == 0.5 + 2.0 + 0.125  # two nodes side by side
    assert calibration.step(2, 9) == 1.0 + 2.0 + 0.125  # beyond what was timed: the largest


def test_top_rows_hold_id_text_prob_and_raw_prob(run):
    rows = [row for step in run.steps for token in step.tokens for row in token.top_p]
    assert rows
    assert all(len(row) == 4 and isinstance(row[0], int) and isinstance(row[1], str) for row in rows)
    assert all(0 <= row[2] <= 1 and 0 <= row[3] <= 1 for row in rows)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d.update(schema="other/1"), "schema"),
        (lambda d: d["steps"][0].pop("gamma"), r"run\.steps\[0\] lacks gamma"),
        (lambda d: d["steps"][0]["tokens"][0].update(fate="eaten"), r"tokens\[0\]\.fate is 'eaten'"),
        (lambda d: d["prompt"].update(token_ids="x"), r"run\.prompt\.token_ids is not a list"),
        (lambda d: d.update(extra=1), "unknown fields: extra"),
    ],
)
def test_a_foreign_file_is_refused_with_the_place(run, change, sentence):
    data = json.loads(run.to_json())
    change(data)
    with pytest.raises(ValueError, match=sentence):
        Run.from_dict(data)


def test_special_tokens_are_named_and_files_from_before_that_are_read(run):
    data = json.loads(run.to_json())
    assert data["target"]["special"] == {"0": "<|endoftext|>", "1": "<|im_start|>", "2": "<|im_end|>"}
    del data["target"]["special"]
    assert Run.from_dict(data).target.special == {}
    data["target"]["special"] = {"0": 5}
    with pytest.raises(ValueError, match=r"run\.target\.special\.0 is 5, not str"):
        Run.from_dict(data)


def test_text_that_is_not_json_is_refused():
    with pytest.raises(ValueError, match="not JSON"):
        Run.from_json("{")


def test_a_run_that_holds_nan_is_not_written(run):
    with pytest.raises(ValueError, match="JSON compliant"):
        dataclasses.replace(run, prefill=dataclasses.replace(run.prefill, target_s=float("nan"))).to_json()
