"""The benchmark: lanes take turns alone, every id is counted, a stopped one goes on, and a lane that fails says so."""

import json
import math

import pytest
import torch

from specviz.engine.engine import Engine
from specviz.errors import SettingsError
from specviz.lab.bench import runner
from specviz.lab.bench.document import Bench, load
from specviz.lab.bench.plan import Plan
from specviz.lab.bench.reading import read
from specviz.lab.bench.runner import BenchCancelled, BenchProgress, Job, bench, rotated, stream_bench
from specviz.lab.prompts import OWN, Prompt, first_of_each, read_prompts
from tests.conftest import tiny_engine
from tests.unit.checks import PROMPT

SETTINGS = {"max_new_tokens": 10, "seed": 0, "ignore_eos": True}
PROMPTS = [
    Prompt("a", "prose", PROMPT),
    Prompt("b", "code", "A token that both would say is cheap"),
    Prompt("c", "code", "and"),
]
PLAN = Plan(drafts=["ngram"], gammas=[2])


def job(engine: Engine, plan: Plan = PLAN, prompts=PROMPTS, **options) -> Job:
    return Job(plan, prompts, ["float32"], lambda dtype: engine, {**SETTINGS, **options.pop("settings", {})}, **options)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine()


@pytest.fixture(scope="module")
def result(engine) -> Bench:
    return bench(job(engine, Plan(drafts=["ngram", "eagle"], gammas=[2], rounds=2)))


def test_every_lane_runs_on_every_prompt_in_every_round_and_the_order_rotates(result):
    names = [lane.name for lane in result.lanes]
    assert names == ["plain float32", "ngram g2 float32", "eagle g2 float32"]
    turns = [(row.prompt, row.round, row.lane) for row in result.results]
    expected = []
    for index, prompt in enumerate(PROMPTS):
        for round in (0, 1):
            first = (2 * index + round) % 3
            expected += [(prompt.id, round + 1, name) for name in names[first:] + names[:first]]
    assert turns == expected
    assert result.complete


def test_ids_are_counted_and_the_times_are_the_runs_own(result, engine):
    for row in result.results:
        assert row.tokens == row.timed == len(row.ids) == SETTINGS["max_new_tokens"]
        assert 0 < row.draft_s + row.verify_s + row.host_s <= row.seconds
        assert row.prefill_s > 0
    plain = engine.generate(PROMPT, draft="none", **SETTINGS).output.token_ids
    assert all(row.ids == plain for row in result.results if row.prompt == "a")
    assert [row.same_text for row in result.summary.lanes] == [None, 1.0, 1.0]
    assert result.prompts[0].tokens == len(engine.encode(PROMPT, None))


def test_eos_ends_an_answer_and_is_counted():
    engine = tiny_engine()
    third = engine.generate(PROMPT, draft="none", **SETTINGS).output.token_ids[2]
    engine.eos_token_ids = (third,)
    found = bench(job(engine, prompts=PROMPTS[:1], settings={"ignore_eos": False}))
    for row in found.results:
        assert row.ids[-1] == third
        assert (row.tokens, row.finish) == (len(row.ids), "eos")


def test_costs_and_predictions_of_a_lane_are_those_of_its_runs(result):
    for lane, row in zip(result.lanes, result.summary.lanes, strict=True):
        if lane.kind == "plain":
            assert lane.calibration is None
            assert row.model is None
        elif row.model is not None:
            assert (row.model.c, row.model.h, row.model.h0) == (
                lane.calibration.c,
                lane.calibration.h,
                lane.calibration.h0,
            )
            assert row.model.measured == row.overall.speedup.mean
            assert row.model.speedup > 0
    assert result.summary.lanes[2].model is not None


def test_a_document_comes_back_as_it_was(result):
    assert Bench.from_json(result.to_json()) == result


def test_perplexity_is_that_of_the_ids_under_the_reference(result, engine):
    row = result.results[0]
    ids = [*engine.encode(PROMPT, None), *row.ids]
    logits = engine.target._model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    start = len(ids) - len(row.ids)
    expected = -sum(float(logits[at - 1, ids[at]]) for at in range(start, len(ids)))
    assert row.nll == pytest.approx(expected, rel=1e-4)
    rows = [one for one in result.results if one.lane == "plain float32"]
    assert result.summary.lanes[0].overall.perplexity == pytest.approx(
        math.exp(sum(one.nll for one in rows) / sum(one.tokens for one in rows))
    )


def test_a_text_longer_than_a_pass_is_read_alike(engine, monkeypatch):
    prompt, output = engine.encode(PROMPT, None), [7, 9, 11, 13, 5]
    whole = read(engine, prompt, output)
    monkeypatch.setattr("specviz.lab.bench.reading.ROWS", 2)
    parts = read(engine, prompt, output)
    assert parts.nll == pytest.approx(whole.nll, rel=1e-5)
    assert parts.best.tolist() == whole.best.tolist()


def test_precisions_are_held_against_the_reference():
    """Another model stands in for a bad precision: it reads the reference's text and disagrees."""
    engines = {"float32": tiny_engine(), "int8": tiny_engine(seed=3)}
    plan = Plan(drafts=[])
    found = bench(Job(plan, PROMPTS[:2], ["int8", "float32"], engines.__getitem__, dict(SETTINGS)))
    good, bad = found.summary.quality
    assert (good.dtype, good.agreement.value) == ("float32", 1.0)
    assert (bad.dtype, bad.tokens) == ("int8", 20)
    assert bad.agreement.value < 0.5
    assert bad.perplexity > good.perplexity
    assert {reading.lane for reading in found.readings} == {"plain float32"}


def test_a_stopped_benchmark_goes_on_where_it_was(engine, tmp_path):
    file = tmp_path / "bench.json"
    stop = []
    running = stream_bench(job(engine, file=file, cancelled=lambda: bool(stop)))
    while not isinstance(next(running), Bench):
        pass
    stop.append(True)
    with pytest.raises(BenchCancelled, match=r"1 of 3 prompts are done and in .*bench\.json"):
        list(running)
    kept = load(file)
    assert (kept.done, {row.prompt for row in kept.results}) == (1, {"a"})
    assert kept.summary.lanes
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    whole = bench(job(engine, file=file))
    assert whole.results[: len(kept.results)] == kept.results
    assert [row.prompt for row in whole.results] == ["a", "a", "b", "b", "c", "c"]
    assert load(file) == whole
    assert list(stream_bench(job(engine, file=file))) == [whole]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"settings": {"max_new_tokens": 9}}, "max_new_tokens"),
        ({"settings": {"seed": 1}}, "seed"),
        ({"prompts": [Prompt("a", "prose", "Another"), *PROMPTS[1:]]}, "prompts"),
        ({"plan": Plan(drafts=["ngram"], gammas=[3])}, "lanes"),
        ({"reference": None}, "reference"),
    ],
)
def test_a_file_of_another_benchmark_is_refused_and_fresh_starts_anew(engine, tmp_path, changed, named):
    file = tmp_path / "bench.json"
    bench(job(engine, prompts=PROMPTS, file=file))
    with pytest.raises(SettingsError, match=f"{named}: name another, or start anew with --fresh"):
        bench(job(engine, **{"prompts": PROMPTS, **changed}, file=file))
    assert bench(job(engine, **{"prompts": PROMPTS, **changed}, file=file, fresh=True)).complete


def test_a_benchmark_does_not_go_on_with_other_code(engine, tmp_path, monkeypatch):
    file = tmp_path / "bench.json"
    bench(job(engine, prompts=PROMPTS, file=file))
    monkeypatch.setattr(runner, "code", lambda: "of tomorrow")
    with pytest.raises(SettingsError, match="other versions: name another, or start anew with --fresh"):
        bench(job(engine, prompts=PROMPTS, file=file))


def test_a_file_that_is_no_benchmark_is_refused(engine, tmp_path):
    file = tmp_path / "bench.json"
    file.write_text("{}")
    with pytest.raises(SettingsError, match="not a benchmark"):
        bench(job(engine, file=file))
    assert file.read_text() == "{}"


def test_a_draft_that_cannot_be_used_is_named_and_gets_no_number(engine):
    found = bench(job(engine, Plan(drafts=["model", "ngram"], gammas=[2]), PROMPTS[:1]))
    lane = found.lane("model g2 float32")
    assert lane.status == "failed"
    assert "No draft model was loaded" in lane.message
    assert "model g2 float32" not in [row.lane for row in found.summary.lanes]
    assert any(sentence.startswith("model g2 float32 has no result:") for sentence in found.summary.sentences)
    assert found.complete


def test_progress_counts_lane_runs(engine):
    seen = [item for item in stream_bench(job(engine)) if isinstance(item, BenchProgress)]
    assert {item.of for item in seen} == {6}
    assert [item.done for item in seen] == sorted(item.done for item in seen)
    assert {item.stage for item in seen} == {"warming up", "measuring", "reading"}
    assert seen[-1].prompt == 3


def test_who_begins_rotates():
    assert [rotated(["a", "b", "c"], turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]
    assert rotated([], 3) == []


def test_lanes_are_all_combinations_once():
    plan = Plan(["ngram", "pool", "none"], [2, 4], [0.0, 0.7], [1, 3], adaptive=True, peers=["hf", "llamacpp"])
    names = [lane.name for lane in plan.lanes(["int4", "bfloat16"], "bfloat16")]
    assert len(names) == len(set(names)) == 4 + 4 * (3 + 6) + 2
    assert names[:2] == ["plain int4", "plain int4 t0.7"]
    assert {"ngram g4 int4", "ngram adaptive g4 int4 t0.7", "pool g2 c3 bfloat16", "hf bfloat16", "llamacpp q4_1"} <= {
        *names
    }
    alone = Plan(peers=["hf"]).lanes(["int4"], "float32")
    assert alone[-1].name == "hf float32"


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        (Plan(drafts=["nope"]), "nope"),
        (Plan(gammas=[0]), "gamma"),
        (Plan(gammas=[]), "needs a gamma"),
        (Plan(drafts=["pool"], candidates=[9]), "candidates"),
        (Plan(temperatures=[-1.0]), "temperature"),
        (Plan(temperatures=[]), "temperature"),
        (Plan(peers=["exllama"]), "exllama"),
        (Plan(rounds=0), "rounds"),
    ],
)
def test_a_plan_that_cannot_run_is_refused_before_anything_is_loaded(plan, named):
    def load(dtype):
        raise AssertionError("loaded")

    with pytest.raises(SettingsError, match=named):
        bench(Job(plan, PROMPTS, ["float32"], load, dict(SETTINGS)))


def test_the_project_s_own_prompts_are_two_of_each_category():
    prompts = read_prompts(OWN)
    categories = [prompt.category for prompt in prompts]
    assert len(set(categories)) == 7
    assert all(categories.count(category) == 2 for category in categories)
    assert [prompt.category for prompt in first_of_each(prompts, 1)] == list(dict.fromkeys(categories))


def test_spec_bench_lines_are_read_by_their_first_turn(tmp_path):
    file = tmp_path / "prompts.jsonl"
    rows = [
        {"question_id": 81, "category": "writing", "turns": ["One", "Two"]},
        {"prompt": "Three\u2028lines"},
    ]
    file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n", encoding="utf-8")
    assert read_prompts(file) == [Prompt("81", "writing", "One"), Prompt("2", "all", "Three\u2028lines")]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no prompts"),
        ("nonsense", "line 1 is not JSON"),
        ('{"prompt": "a"}\n{"turns": []}', "line 2 holds no prompt"),
        ('{"prompt": " "}', "line 1 holds no prompt"),
        ("[1]", "line 1 holds no prompt"),
        ('{"id": 1, "prompt": "a"}\n{"id": "1", "prompt": "b"}', "two prompts with the id '1'"),
    ],
)
def test_prompts_of_another_form_are_refused_by_their_line(tmp_path, text, named):
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    with pytest.raises(SettingsError, match=named):
        read_prompts(file)


def test_prompts_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(SettingsError, match="No such file"):
        read_prompts(tmp_path / "nothing.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xe9"}')
    with pytest.raises(SettingsError, match="not UTF-8"):
        read_prompts(tmp_path / "latin.jsonl")
