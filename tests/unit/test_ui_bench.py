"""The benchmark pane's Python: results and files become one kind of event; a run's end brings its figures."""

import pytest

from specviz.ui.bench import FILE_BYTES_MAX, file_event, with_report
from specviz.ui.figures import RunFigures
from specviz.ui.report import report_data
from tests.conftest import tiny_engine
from tests.unit.checks import PROMPT
from tests.unit.made_bench import made_bench


def test_a_result_comes_with_its_figures_and_without_its_runs():
    bench = made_bench()
    (event,) = with_report({"type": "bench", "bench": bench.to_dict()})
    assert event == {"type": "bench", **report_data(bench.to_dict())}
    assert "results" not in event["bench"]
    other = {"type": "bench_progress", "done": 1}
    assert with_report(other) == [other]


def test_a_file_gives_the_same_event_as_the_benchmark_it_holds(tmp_path):
    bench = made_bench()
    file = tmp_path / "bench.json"
    file.write_text(bench.to_json())
    assert [file_event(file)] == with_report({"type": "bench", "bench": bench.to_dict()})


@pytest.mark.parametrize(
    ("content", "named"),
    [(b"{", "not JSON"), (b"[]", "schema"), (b"\xff\xfe", "not UTF-8"), (b"[" * 200_000, "cannot be shown")],
)
def test_a_file_of_something_else_is_refused_by_its_name(tmp_path, content, named):
    file = tmp_path / "odd.json"
    file.write_bytes(content)
    event = file_event(file)
    assert event["type"] == "error"
    assert event["message"].startswith("odd.json cannot be shown as a benchmark: ")
    assert named in event["message"]


def test_a_file_that_is_too_large_is_refused_unread(tmp_path):
    file = tmp_path / "large.json"
    with file.open("wb") as out:
        out.truncate(FILE_BYTES_MAX + 1)
    assert "larger than 64 MB" in file_event(file)["message"]


def test_a_run_s_end_brings_the_figures_of_its_steps():
    run = tiny_engine().generate(PROMPT, max_new_tokens=5, ignore_eos=True).to_dict()
    hand_on = RunFigures()
    for step in run["steps"]:
        assert hand_on({"type": "step", "step": step}) == [{"type": "step", "step": step}]
    end, position, time = hand_on({"type": "end", "output": run["output"], "summary": run["summary"]})
    assert (end["type"], position["name"], time["name"]) == ("end", "position", "time")
    assert time["figure"]["data"][1]["y"] == [1000 * step["verify_s"] for step in run["steps"]]
