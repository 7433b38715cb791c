"""Explore's figures show the runs' own numbers, for one run and for all lanes of a race."""

import json

import pytest

from specviz.lab.race import race
from specviz.summary import wilson
from specviz.ui.explore import figures
from specviz.ui.explore_plots import BINS, LOOKS, bins, explore, speedup_curves, with_curves
from tests.conftest import tiny_engine

PROMPT = "The target checks what the draft proposes"


@pytest.fixture(scope="module")
def result():
    drafts = ["ngram", "ngram-smoothed:gamma=3", "eagle-tree:gamma=2,candidates=3"]
    return race(tiny_engine(), PROMPT, drafts=drafts, rounds=1, temperature=0.8, max_new_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def named(result):
    return [(lane.name, lane.runs[0]) for lane in result.lanes]


def test_one_run(named):
    _, run = named[2]
    made = explore([("mine", run)])
    accepted, rejected, _, rate = made["steps"]["data"]
    assert accepted["y"] == [step.accepted for step in run.steps]
    assert sum(rejected["y"]) == sum(token.fate == "rejected" for step in run.steps for token in step.tokens)
    assert rate["y"][-1] == run.summary.acceptance_rate.value
    (passes,) = made["passes"]["data"]
    counts = {x: round(y * len(run.steps)) for x, y in zip(passes["x"], passes["y"], strict=True)}
    for tokens, count in counts.items():
        assert count == sum(len(step.emitted) == tokens for step in run.steps)
    (line,) = made["tokens"]["data"]
    assert line["x"] == [0, *(step.t_end for step in run.steps)]
    assert line["y"][-1] == run.summary.tokens
    assert [trace["name"].split()[0] for trace in made["time"]["data"]] == ["draft", "verify", "host"]


def test_acceptance_by_position_has_both_rates_with_intervals(named):
    _, run = named[2]
    given, overall = explore([("mine", run)])["position"]["data"]
    rows = [row for row in run.summary.by_position if row.rate is not None]
    assert given["y"] == [row.rate for row in rows]
    assert overall["y"] == [row.reach_rate for row in rows]
    for place, row in enumerate(rows):
        low, high = wilson(row.accepted, row.proposed)
        assert overall["error_y"]["array"][place] == pytest.approx(high - row.reach_rate)
        assert overall["error_y"]["arrayminus"][place] == pytest.approx(row.reach_rate - low)
        assert given["error_y"]["array"][place] == pytest.approx(row.high - row.rate)


def test_confidence_against_acceptance_counts_tested_tokens_once(named):
    _, run = named[2]
    tested = [
        token
        for step in run.steps
        for token in step.tokens
        if token.fate in ("accepted", "rejected") and token.confidence is not None
    ]
    rows = bins(run)
    assert sum(row["tested"] for row in rows) == len(tested) > 0
    assert sum(row["accepted"] for row in rows) == sum(token.fate == "accepted" for token in tested)
    for row in rows:
        assert row["bin"] / BINS <= row["mean"] <= (row["bin"] + 1) / BINS
        assert row["low"] <= row["rate"] <= row["high"]


def test_lanes_keep_their_look_in_every_figure(named):
    made = explore(named)
    colours = [look[0] for look in LOOKS]
    assert [trace["line"]["color"] for trace in made["tokens"]["data"]] == colours[:4]
    assert [trace["marker"]["color"] for trace in made["passes"]["data"]] == colours[:4]
    assert [trace["line"]["color"] for trace in made["steps"]["data"]] == colours[1:4]
    assert {trace["marker"]["color"] for trace in made["position"]["data"]} == set(colours[1:4])
    assert [trace["y"] for trace in made["time"]["data"]] == [[name for name, _ in named]] * 3
    means = [trace["x"] for trace in made["time"]["data"]]
    for place, (_, run) in enumerate(named):
        assert sum(part[place] for part in means) == pytest.approx(
            1000 * sum(step.t_end - step.t_start for step in run.steps) / len(run.steps)
        )


def test_plain_decoding_alone_has_nothing_to_say_of_drafts(named):
    made = explore(named[:1])
    for name in ("position", "calibration"):
        assert made[name]["layout"]["annotations"]
    json.dumps(made)


def test_speedup_curves_show_prediction_and_measurement(result):
    data = result.to_dict()
    drawn = [lane for lane in data["lanes"] if lane["why"]]
    traces = speedup_curves(data)["data"]
    assert len(traces) == 2 * len(drawn)
    for lane, predicted, measured in zip(drawn, traces[::2], traces[1::2], strict=True):
        assert predicted["y"] == [point["speedup"] for point in lane["why"]["curve"]]
        assert predicted["marker"]["size"].index(11) == lane["why"]["best"]
        assert (measured["x"], measured["y"]) == ([lane["why"]["gamma"]], [lane["speedup"]["median"]])
    assert [event["type"] for event in with_curves({"type": "race", "race": data})] == ["race", "figure"]
    bare = data | {"lanes": [lane | {"why": None} for lane in data["lanes"]]}
    assert with_curves({"type": "race", "race": bare}) == [{"type": "race", "race": bare}]
    assert with_curves({"type": "stopped"}) == [{"type": "stopped"}]


def test_the_page_s_question_is_answered_or_refused_in_a_sentence(named):
    runs = [{"name": "<b>x</b>", "run": run.to_dict()} for _, run in named]
    answer = figures(json.dumps(runs))
    assert set(answer["figures"]) == {"steps", "position", "passes", "calibration", "time", "tokens"}
    assert "<" not in answer["figures"]["tokens"]["data"][0]["name"]
    json.dumps(answer, allow_nan=False)
    for bad in (
        "{",
        "[]",
        "7",
        '[{"name": "x"}]',
        '[{"name": "x", "run": {}}]',
        json.dumps(runs * 3),
        "x" * 17_000_000,
    ):
        (sentence,) = figures(bad).values()
        assert isinstance(sentence, str)
        assert sentence
