"""Sessions on a real host with a tiny model: one job at a time, places in line, stop and close free the device."""

import importlib
import sys
import threading
import time
import types

import pytest

from specviz.errors import SpecvizError
from specviz.serve import Desk, Host
from specviz.serve import gpu as gpu_module
from specviz.trace import Run
from tests.tiny import tiny_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny", "llama", max_positions=2048)


@pytest.fixture(scope="module")
def host(folder):
    host = Host(target=str(folder), dtype="float32", device="cpu")
    wait(lambda: host.status().state != "loading")
    assert host.status().state == "ready", host.status()
    return host


def wait(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def flat(batches) -> list[dict]:
    return [event for batch in batches for event in batch]


def events_of_a_stopped_run(host) -> list[dict]:
    """Of a run that is stopped as soon as its first batch has come."""
    session = host.session()
    events = []
    for batch in session.run("the draft", max_new_tokens=1900, ignore_eos=True):
        events += batch
        session.stop()
    return events


def test_a_run_arrives_whole(host):
    events = flat(host.session().run("the draft", max_new_tokens=40, ignore_eos=True))
    assert [event["type"] for event in events[:1] + events[-1:]] == ["run", "end"]
    steps = [event["step"] for event in events if event["type"] == "step"]
    run = Run.from_dict(
        {**events[0]["run"], "steps": steps, "output": events[-1]["output"], "summary": events[-1]["summary"]}
    )
    assert run.summary.tokens == 40
    assert len(run.steps) == run.summary.steps


def test_a_sweep_arrives_as_progress_and_one_report(host):
    options = {"drafts": ["ngram"], "gammas": [2], "max_new_tokens": 6, "ignore_eos": True}
    *progress, last = flat(host.session().bench("the draft", **options))
    assert {event["type"] for event in progress} == {"bench_progress"}
    assert (last["type"], last["bench"]["done"]) == ("bench", 1)
    assert [row["lane"] for row in last["bench"]["summary"]["lanes"]] == ["plain float32", "ngram g2 float32"]
    session = host.session()
    batches = session.bench("the draft", **{**options, "max_new_tokens": 1900})
    next(batches)
    session.stop()
    assert flat(batches)[-1] == {"type": "stopped"}
    assert flat(host.session().bench("the draft", drafts=[]))[-1]["type"] == "error"
    wait(lambda: not host.desk.busy)


def test_bad_input_is_one_error_event_and_the_device_stays_free(host):
    for options in ({"gamma": 99}, {"draft": "model"}, {"dtype": "int3"}):
        events = flat(host.session().run("hi", **options))
        assert [event["type"] for event in events] == ["error"]
    assert flat(host.session().run(" "))[-1]["message"].startswith("The prompt is empty")
    assert not host.desk.busy


def test_stop_ends_a_run_and_what_was_decoded_stays(host):
    events = events_of_a_stopped_run(host)
    assert events[-1]["output"]["finish_reason"] == "cancelled"
    assert events[-1]["summary"]["tokens"] == len(events[-1]["output"]["token_ids"]) < 1900
    wait(lambda: not host.desk.busy)


def test_a_stop_before_the_first_batch_counts(host):
    session = host.session()
    batches = session.run("the draft", max_new_tokens=1900, ignore_eos=True)
    session.stop()
    assert flat(batches) == [{"type": "stopped"}]
    assert not host.desk.busy


def test_a_thread_that_cannot_start_gives_the_place_back(host, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            flat(host.session().run("the draft"))
    assert not host.desk.busy


def test_closing_the_iterator_frees_the_device(host):
    batches = host.session().run("the draft", max_new_tokens=1900, ignore_eos=True)
    next(batches)
    assert host.desk.busy
    batches.close()
    wait(lambda: not host.desk.busy)


def test_a_second_run_of_the_same_page_ends_the_first(host):
    session = host.session()
    first = session.run("the draft", max_new_tokens=1900, ignore_eos=True)
    next(first)
    second = flat(session.run("the draft", max_new_tokens=5, ignore_eos=True))
    assert second[-1]["summary"]["tokens"] == 5
    assert flat(first)[-1]["output"]["finish_reason"] == "cancelled"


def test_others_see_their_place_in_line_and_get_their_turn(host):
    first = host.session().run("the draft", max_new_tokens=1900, ignore_eos=True)
    next(first)
    results: dict[str, list] = {}

    def visit(name):
        results[name] = flat(host.session().run("the draft", max_new_tokens=4, ignore_eos=True))

    visitors = [threading.Thread(target=visit, args=(name,)) for name in "ab"]
    for visitor in visitors:
        visitor.start()
        time.sleep(0.05)
    time.sleep(0.3)
    first.close()
    for visitor in visitors:
        visitor.join(10)
    places = [[event["position"] for event in results[name] if event["type"] == "queued"] for name in "ab"]
    assert places[0][0] == 1
    assert places[1][0] == 2
    assert all(results[name][-1]["type"] == "end" for name in "ab")


def test_a_visitor_who_leaves_the_line_does_not_hold_it_up(host):
    first = host.session().run("the draft", max_new_tokens=1900, ignore_eos=True)
    next(first)
    waiting = host.session().run("the draft", max_new_tokens=4)
    assert next(waiting) == [{"type": "queued", "position": 1}]
    waiting.close()
    first.close()
    assert flat(host.session().run("the draft", max_new_tokens=4))[-1]["type"] == "end"


def test_a_full_line_sends_newcomers_away_with_a_sentence():
    desk = Desk(waiting_max=1)
    desk.take(), desk.take()
    with pytest.raises(SpecvizError, match="1 others are waiting"):
        desk.take()


def test_a_race_ends_with_its_result_and_can_be_stopped(host):
    events = flat(host.session().race("the draft", rounds=1, max_new_tokens=20))
    assert events[-1]["type"] == "race"
    assert [len(lane["runs"]) for lane in events[-1]["race"]["lanes"]] == [1, 1]
    session = host.session()
    batches = session.race("the draft", rounds=20, max_new_tokens=400, ignore_eos=True)
    next(batches)
    session.stop()
    assert flat(batches)[-1] == {"type": "stopped"}
    wait(lambda: not host.desk.busy)


def test_another_draft_takes_over_in_the_middle_of_a_run(host):
    session = host.session()
    assert not session.swap("none")
    events = []
    for batch in session.run("the draft", max_new_tokens=1200, ignore_eos=True):
        if not any(event["type"] == "step" for event in events):
            assert session.swap("tree")
            assert session.swap("ngram-smoothed")
        events += batch
    steps = [event["step"] for event in events if event["type"] == "step"]
    drafts = [step["draft"] for step in steps]
    turn = drafts.index("ngram-smoothed")
    assert drafts == ["hybrid"] * turn + ["ngram-smoothed"] * (len(drafts) - turn)
    assert steps[turn]["note"].startswith("draft changed from hybrid to ngram-smoothed")
    assert events[-1]["summary"]["tokens"] == 1200
    assert not session.swap("none")


def test_a_change_of_draft_that_cannot_be_made_is_a_sentence_and_the_run_goes_on(host):
    for wish, sentence in {"model": "cannot be used", "tree": "Rule 'block'", "other": "Unknown draft type"}.items():
        session = host.session()
        events = []
        for batch in session.run("the draft", max_new_tokens=300, ignore_eos=True, verify="block"):
            if not events:
                session.swap(wish)
            events += batch
        refused = [event["message"] for event in events if event["type"] == "swap_refused"]
        assert len(refused) == 1
        assert sentence in refused[0]
        assert events[-1]["output"]["finish_reason"] == "length"
        assert {event["step"]["draft"] for event in events if event["type"] == "step"} == {"hybrid"}


def test_a_proof_ends_with_its_result_and_needs_no_model(tmp_path):
    host = Host(target=str(tmp_path / "missing"), device="cpu")
    events = flat(host.session().prove(samples=1000, mistake="softmax-residual"))
    assert events[0] == {"type": "proof_progress", "done": 0, "of": 1000}
    assert events[-1]["proof"]["passed"] is False
    assert events[-1]["proof"]["n"] == 1000


def test_a_proof_can_be_stopped_and_refuses_nonsense(host):
    session = host.session()
    batches = session.prove(samples=1_000_000)
    next(batches)
    session.stop()
    assert flat(batches)[-1] == {"type": "stopped"}
    events = flat(host.session().prove(draft="tree", verify="block"))
    assert [event["type"] for event in events] == ["error"]
    assert "Rule 'block'" in events[0]["message"]
    wait(lambda: not host.desk.busy)


def test_another_precision_is_loaded_on_demand_and_named_in_the_run(host):
    events = flat(host.session().run("the draft", dtype="bfloat16", max_new_tokens=3))
    header = next(event["run"] for event in events if event["type"] == "run")
    assert header["device"]["dtype"] == "bfloat16"


def test_an_error_nobody_foresaw_reaches_the_page_and_frees_the_device(host, monkeypatch):
    engine = host.engine()
    monkeypatch.setattr(engine.target, "run", lambda passes: 1 / 0)
    events = flat(host.session().run("the draft"))
    assert "ZeroDivisionError" in events[-1]["message"]
    assert not host.desk.busy


def test_a_load_that_fails_is_a_sentence_and_the_next_run_tries_again(tmp_path):
    missing = tmp_path / "later"
    host = Host(target=str(missing), device="cpu", dtype="float32")
    wait(lambda: host.status().state != "loading")
    assert host.status().state == "failed"
    assert "later" in host.status().message
    tiny_folder(missing, "llama")
    assert flat(host.session().run("hello", max_new_tokens=3))[-1]["type"] == "end"
    assert host.status().state == "ready"


def test_with_zerogpu_the_engine_call_is_wrapped_and_only_plain_data_crosses(host, monkeypatch):
    import pickle

    asked = []

    def gpu(duration):
        def wrap(function):
            def call(*arguments):
                arguments = pickle.loads(pickle.dumps(arguments))
                asked.append(duration(*arguments))
                for item in function(*arguments):
                    yield pickle.loads(pickle.dumps(item))

            return call

        return wrap

    spaces = types.ModuleType("spaces")
    spaces.GPU = gpu
    spaces.__spec__ = types.SimpleNamespace(name="spaces")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "spaces", spaces)
        wrapped = importlib.reload(gpu_module)
        patched.setattr("specviz.serve.session.on_device", wrapped.on_device)
        assert wrapped.ON_SPACES
        check_zerogpu(host, asked)
    importlib.reload(gpu_module)


def test_a_sweep_asks_for_the_gpu_for_all_of_its_runs():
    lists = {"drafts": ["ngram", "eagle"], "gammas": [1, 2], "temperatures": [0.0], "candidates": [2]}
    small = gpu_module.seconds(None, 0, "", lists | {"max_new_tokens": 100})
    assert small == 4 * gpu_module.SECONDS_BASE + 5 * 100 * gpu_module.SECONDS_PER_TOKEN
    assert gpu_module.seconds(None, 0, "", lists | {"own_set": True}) == gpu_module.SECONDS_MAX


def check_zerogpu(host, asked):
    events = flat(host.session().run("the draft", max_new_tokens=40, ignore_eos=True))
    assert events[-1]["summary"]["tokens"] == 40
    assert flat(host.session().race("the draft", rounds=2, max_new_tokens=40))[-1]["type"] == "race"
    assert asked == [22, 28]
    events = events_of_a_stopped_run(host)
    assert events[-1]["output"]["finish_reason"] == "cancelled"
    assert events[-1]["summary"]["tokens"] == len(events[-1]["output"]["token_ids"])
    session = host.session()
    batches = session.run("the draft", max_new_tokens=1900, ignore_eos=True)
    next(batches)
    assert not session.swap("none")
    batches.close()
