"""Figures of benchmarks and of a run's time show the document's own numbers and leave the theme to the page."""

import json
import math

import pytest

from specviz.ui import plots
from tests.conftest import tiny_engine
from tests.unit.checks import PROMPT
from tests.unit.made_bench import made_bench


@pytest.fixture(scope="module")
def bench():
    return made_bench().to_dict()


def summary(bench, name):
    return next(row for row in bench["summary"]["lanes"] if row["lane"] == name)


def test_a_benchmark_has_its_figures_in_reading_order(bench):
    made = plots.bench_figures(bench)
    assert [one["name"] for one in made] == ["speed", "speedup", "candidates", "categories", "against"]
    for one in made:
        assert one["title"]
        assert one["note"]
        layout = one["figure"]["layout"]
        assert "template" not in layout
        assert layout["paper_bgcolor"] == "rgba(0,0,0,0)"
        assert "color" not in layout["font"]
    json.dumps(made, allow_nan=False)


def test_speed_by_kind_of_lane_told_apart_by_more_than_colour(bench):
    traces = plots.bench_speed(bench)["data"]
    assert [trace["name"] for trace in traces] == ["plain decoding", "with a draft", "another engine"]
    shown = {lane: value for trace in traces for lane, value in zip(trace["y"], trace["x"], strict=True)}
    assert shown == {row["lane"]: row["overall"]["tokens_per_second"] for row in bench["summary"]["lanes"]}
    assert len({trace["marker"].get("pattern", {}).get("shape") for trace in traces}) == 3


def test_speedups_with_their_intervals_and_the_predictions(bench):
    measured, predicted = plots.bench_speedup(bench)["data"]
    for i, name in enumerate(measured["y"]):
        found = summary(bench, name)["overall"]["speedup"]
        assert measured["x"][i] == found["mean"]
        assert measured["x"][i] + measured["error_x"]["array"][i] == pytest.approx(found["high"])
        assert measured["x"][i] - measured["error_x"]["arrayminus"][i] == pytest.approx(found["low"])
    assert predicted["y"] == ["ngram g3 int4", "pool g3 c1 int4", "pool g3 c2 int4"]
    assert predicted["x"] == pytest.approx([1.5] * 3)


def test_heat_maps_say_their_numbers_and_put_one_in_the_middle(bench):
    (heat,) = plots.bench_categories(bench)["data"]
    assert heat["x"] == ["prose", "code"]
    at = heat["y"].index("ngram g3 int4")
    assert heat["text"][at] == ["2.00", "1.22"]
    assert heat["z"][at] == pytest.approx([1.0, math.log2(1.5) / 2])
    assert (heat["zmid"], heat["zmin"]) == (0, -heat["zmax"])
    (against,) = plots.bench_against(bench)["data"]
    assert against["x"] == ["plain int4", "plain bfloat16", "hf bfloat16"]
    row = against["text"][against["y"].index("plain int4")]
    assert row[0] == ""
    assert float(row[1]) == 2.5


def test_the_sweep_has_gamma_across_and_drafts_down(bench):
    assert plots.bench_sweep(bench) is None  # one gamma: the speed-ups say it all
    rates = {"plain int4": [1.0], "ngram g3 int4": [2.0], "ngram g10 int4": [3.0], "pool g3 c2 int4": [0.5]}
    (heat,) = plots.bench_sweep(made_bench(rates, prompts=1).to_dict())["data"]
    assert heat["x"] == ["3", "10"]
    assert heat["y"] == ["ngram", "pool, 2 candidates"]
    assert heat["text"] == [["2.00", "3.00"], ["0.50", ""]]


def test_speed_against_candidates_is_a_line_for_each_draft(bench):
    line = plots.bench_candidates(bench)["data"][0]
    assert (line["x"], line["name"]) == ([1, 2], "pool")
    assert line["y"] == [
        summary(bench, name)["overall"]["speedup"]["mean"] for name in ("pool g3 c1 int4", "pool g3 c2 int4")
    ]


def test_names_reach_plotly_as_text_not_as_markup():
    bench = made_bench({"plain int4": [1.0] * 4, "hf <a href='x'>": [2.0] * 4}).to_dict()
    labels = [name for trace in plots.bench_figures(bench)[0]["figure"]["data"] for name in trace["y"]]
    assert labels == ["plain int4", "hf &lt;a href='x'&gt;"]


def test_a_benchmark_without_drafts_leaves_their_figures_out():
    bench = made_bench({"plain int4": [1.0] * 4}).to_dict()
    assert [one["name"] for one in plots.bench_figures(bench)] == ["speed"]
    assert plots.bench_figures(made_bench({"plain int4": []}).to_dict()) == []


def test_time_breakdown_stacks_each_step_s_own_times():
    run = tiny_engine().generate(PROMPT, draft="ngram", max_new_tokens=8, ignore_eos=True).to_dict()
    figure = plots.time_breakdown(run)
    assert figure["layout"]["barmode"] == "stack"
    for trace, key in zip(figure["data"], ("draft_s", "verify_s", "host_s"), strict=True):
        assert trace["x"] == [step["index"] + 1 for step in run["steps"]]
        assert trace["y"] == pytest.approx([1000 * step[key] for step in run["steps"]])
        assert trace["name"].split()[0] == key.removesuffix("_s")
    shares = [int(trace["name"].split()[1].rstrip("%")) for trace in figure["data"]]
    assert sum(shares) == pytest.approx(100, abs=2)
    assert "no step" in plots.time_breakdown({"steps": []})["layout"]["annotations"][0]["text"]
