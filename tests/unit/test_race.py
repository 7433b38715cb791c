"""The race is what it says: both lanes run, warmed up, in alternating order; the verdict follows from the numbers."""

import json

import pytest
import torch

from specviz.engine.engine import Engine
from specviz.engine.model import LanguageModel
from specviz.errors import SettingsError
from specviz.lab.race import Divergence, Lane, Race, RaceCancelled, Spread, race, stream_race, top2_margin, verdict
from specviz.settings import Settings
from specviz.trace import Run
from tests.conftest import tiny_engine
from tests.tiny import VOCAB_SIZE, tiny_model, tiny_tokenizer
from tests.unit.checks import SPECULATIVE

PROMPT = "The target checks what the draft proposes"


@pytest.fixture(scope="module")
def result() -> Race:
    return race(tiny_engine(), PROMPT, rounds=3, draft="ngram", max_new_tokens=20)


def test_lanes_hold_whole_runs_of_every_round(result):
    assert [lane.draft for lane in result.lanes] == ["none", "ngram"]
    for lane in result.lanes:
        assert len(lane.runs) == 3
        rates = [run.summary.tokens_per_second for run in lane.runs]
        assert lane.tokens_per_second == Spread(sorted(rates)[1], min(rates), max(rates))
        assert lane.prefill_s.median > 0


def test_the_speedup_is_drafting_over_plain_round_by_round_and_the_shown_round_has_the_median(result):
    plain, draft = ([run.summary.tokens_per_second for run in lane.runs] for lane in result.lanes)
    ratios = [b / a for a, b in zip(plain, draft, strict=True)]
    assert result.speedup == Spread(sorted(ratios)[1], min(ratios), max(ratios))
    assert [ratios[lane.shown] for lane in result.lanes] == [result.speedup.median] * 2


def test_both_lanes_have_the_same_settings_but_for_the_draft(result):
    plain, draft = (lane.runs[0].settings for lane in result.lanes)
    assert {k: v for k, v in plain.items() if k not in ("draft", "gamma")} == {
        k: v for k, v in draft.items() if k not in ("draft", "gamma")
    }


def test_the_order_alternates_after_a_warm_up_of_both(result, monkeypatch):
    monkeypatch.setattr("specviz.lab.race.PROGRESS_S", -1)
    assert result.order == [["none", "ngram"], ["ngram", "none"], ["none", "ngram"]]
    seen = [
        (at.round, at.lane)
        for at in stream_race(tiny_engine(), PROMPT, rounds=2, max_new_tokens=4)
        if not isinstance(at, Race)
    ]
    assert list(dict.fromkeys(seen)) == [
        (0, "none"),
        (0, "ngram"),
        (1, "none"),
        (1, "ngram"),
        (2, "ngram"),
        (2, "none"),
    ]


def test_greedy_float32_lanes_write_the_same(result):
    assert result.same_output is True
    assert result.first_divergence is None
    assert "same text" in result.verdict


def real_margin(engine, context) -> float:
    """Gap of the two best logits behind `context`, without any cache."""
    best = engine.target._model(input_ids=torch.tensor([context])).logits[0, -1].topk(2).values
    return float(best[0] - best[1])


def test_the_first_difference_comes_with_its_margin(monkeypatch):
    engine = tiny_engine()
    real = engine.target.run

    def wobbling(passes):
        (logits,) = real(passes)
        if passes[0].cache.length >= 50 and len(passes[0].ids) > 1:  # only passes of several rows go astray
            logits = logits.clone()
            logits[:, 7] += 1e4
        return [logits]

    monkeypatch.setattr(engine.target, "run", wobbling)
    result = race(engine, PROMPT, rounds=1, draft="ngram-smoothed", max_new_tokens=40, ignore_eos=True)
    difference = result.first_divergence
    plain, draft = (lane.runs[0].output.token_ids for lane in result.lanes)
    assert result.same_output is False
    assert plain[: difference.index] == draft[: difference.index]
    assert difference.ids == [plain[difference.index], draft[difference.index]]
    assert difference.position == len(result.lanes[0].runs[0].prompt.token_ids) + difference.index
    logits = real_margin(engine, [*result.lanes[0].runs[0].prompt.token_ids, *plain[: difference.index]])
    assert difference.margin == pytest.approx(logits, rel=1e-4)
    assert f"part at token {difference.index + 1}" in result.verdict
    assert "texts part" in result.verdict


def test_above_temperature_zero_no_one_expects_the_same_text():
    result = race(tiny_engine(), PROMPT, rounds=1, temperature=1.0, max_new_tokens=8)
    assert result.same_output is None
    assert result.first_divergence is None


def test_json_round_trip_and_contract(result):
    data = json.loads(result.to_json())
    assert data["schema"] == "specviz.race/1"
    assert data["lanes"][0].keys() >= {"name", "draft", "tokens_per_second", "runs"}
    assert data["lanes"][0]["tokens_per_second"].keys() == {"median", "low", "high"} == data["speedup"].keys()
    assert Run.from_dict(data["lanes"][1]["runs"][0]) == result.lanes[1].runs[0]
    assert Race.from_dict(data) == result
    assert [len(lane.runs) for lane in result.shown_only().lanes] == [1, 1]


def test_a_stopped_race_is_no_result():
    asked = iter([False] * 30 + [True] * 100)
    with pytest.raises(RaceCancelled):
        race(tiny_engine(), PROMPT, draft="ngram", max_new_tokens=30, ignore_eos=True, cancelled=lambda: next(asked))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"rounds": 0}, "rounds must be"), ({"draft": "none"}, "A race needs a draft"), ({"gamma": 99}, "gamma must be")],
)
def test_a_race_that_cannot_be_run_is_refused(options, sentence):
    with pytest.raises(SettingsError, match=sentence):
        race(tiny_engine(), PROMPT, **options)


@pytest.mark.parametrize(
    ("speedup", "opening"),
    [
        (Spread(1.8, 1.7, 1.9), "Speculation wins"),
        (Spread(0.8, 0.7, 0.9), "Speculation loses"),
        (Spread(1.02, 0.98, 1.1), "Too close to call"),
        (Spread(1.01, 1.005, 1.015), "Too close to call"),
    ],
)
def test_the_verdict_says_who_won_also_when_speculation_loses(result, speedup, opening):
    lanes: list[Lane] = result.lanes
    assert verdict(lanes, speedup, True, None, False).startswith(opening)
    assert "end of the answer was ignored" in verdict(lanes, speedup, True, None, True)


def test_one_round_calls_no_winner():
    result = race(tiny_engine(), PROMPT, rounds=1, max_new_tokens=8)
    assert "too few to call a winner" in result.verdict


def test_a_difference_in_low_precision_is_explained(result):
    difference = Divergence(3, 40, [5, None], ["a\x1b", None], 0.125, "bfloat16")
    words = verdict(result.lanes, Spread(1.8, 1.7, 1.9), False, difference, False)
    assert "token 4 ('a\\x1b' against the end)" in words
    assert "0.125 apart in bfloat16: a pass over several tokens rounds differently" in words


def test_every_size_of_pass_is_made_before_the_clock_runs(monkeypatch):
    engine, sizes = tiny_engine(), []
    real = engine.target.run
    monkeypatch.setattr(
        engine.target, "run", lambda passes: sizes.append([len(one.ids) for one in passes]) or real(passes)
    )
    race(engine, "abc", rounds=1, draft="ngram", gamma=6, max_new_tokens=2)
    assert sizes[:2] == [[1], [7]]


@pytest.mark.parametrize("draft", SPECULATIVE)
def test_every_draft_type_can_race(draft):
    """Also behind a run that filled the memory, and with the calibration that adaptive gamma asks for."""
    engine = tiny_engine(draft_seed=1)
    engine.generate(PROMPT, draft=draft, max_new_tokens=4)
    result = race(engine, PROMPT, rounds=1, draft=draft, max_new_tokens=6, ignore_eos=True)
    assert result.same_output is True
    assert result.lanes[1].runs[0].draft.type == draft


def test_penalties_count_in_the_margin():
    engine = tiny_engine()
    context = engine.encode(PROMPT, chat=False)
    biased = Settings.of(logit_bias={7: 1e3})
    assert top2_margin(engine, biased, len(context), context) > 900


def test_in_bfloat16_the_texts_are_the_same_or_the_first_difference_is_a_near_tie():
    target = LanguageModel(tiny_model("llama", std=0.1).to(torch.bfloat16), "llama", VOCAB_SIZE)
    engine = Engine(target, tiny_tokenizer())
    for number in range(4):
        prompt = [(11 * i + 5 * number) % 90 + 3 for i in range(20)]
        result = race(engine, prompt, rounds=1, draft="ngram-smoothed", max_new_tokens=40, ignore_eos=True)
        difference = result.first_divergence
        assert result.same_output is (difference is None)
        if difference is not None:
            plain, draft = (lane.runs[0].output.token_ids for lane in result.lanes)
            assert plain[: difference.index] == draft[: difference.index]
            assert difference.ids == [plain[difference.index], draft[difference.index]]
            assert difference.precision == "bfloat16"
            assert 0 <= difference.margin < 0.1
            assert "rounds differently" in result.verdict
