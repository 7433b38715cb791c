"""The race is what it says: every lane runs alone, warmed up, in an order that favours none; the verdict follows."""

import dataclasses
import itertools
import json

import pytest
import torch

from specviz.engine.engine import Engine
from specviz.engine.model import LanguageModel
from specviz.errors import NumericsError, SettingsError
from specviz.lab.race import Divergence, Lane, Race, RaceCancelled, Spread, entrants, race, stream_race, top2_margin
from specviz.lab.race.entrants import orders
from specviz.lab.race.words import explain_divergence, fastest, lane_verdict, verdict
from specviz.settings import Settings
from specviz.trace import Run
from tests.conftest import tiny_engine
from tests.tiny import VOCAB_SIZE, tiny_model, tiny_tokenizer
from tests.unit.checks import SPECULATIVE

PROMPT = "The target checks what the draft proposes"
#: A lane with settings of its own in either way of writing them.
THREE = ["ngram", "ngram-smoothed:gamma=2", {"draft": "eagle-tree", "candidates": 3, "gamma": 2}]
KEYS = ["none", "ngram", "ngram-smoothed:gamma=2", "eagle-tree:gamma=2,candidates=3"]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine()


@pytest.fixture(scope="module")
def result(engine) -> Race:
    return race(engine, PROMPT, rounds=3, drafts=["ngram"], max_new_tokens=20)


@pytest.fixture(scope="module")
def four(engine) -> Race:
    return race(engine, PROMPT, rounds=4, drafts=THREE, max_new_tokens=12, ignore_eos=True)


def rates(lane: Lane) -> list[float]:
    return [run.summary.tokens_per_second for run in lane.runs]


def test_lanes_hold_whole_runs_of_every_round(result, four):
    assert [lane.draft for lane in result.lanes] == ["none", "ngram"]
    assert [lane.key for lane in four.lanes] == KEYS
    for lane in (*result.lanes, *four.lanes):
        assert lane.tokens_per_second == Spread.of(rates(lane))
        assert lane.prefill_s.median > 0
    assert {len(lane.runs) for lane in result.lanes} == {3}
    assert {len(lane.runs) for lane in four.lanes} == {4}


def test_rates_are_emitted_ids_over_the_seconds_of_the_lane_s_own_steps(four):
    for lane in four.lanes:
        for run in lane.runs:
            assert run.summary.tokens_per_second == len(run.output.token_ids) / run.steps[-1].t_end


def test_speedups_are_taken_round_by_round_and_the_shown_round_is_nearest_to_the_medians(result, four):
    plain, draft = result.lanes
    ratios = [b / a for a, b in zip(rates(plain), rates(draft), strict=True)]
    assert draft.speedup == Spread(sorted(ratios)[1], min(ratios), max(ratios))
    assert plain.speedup is None
    assert [ratios[lane.shown] for lane in result.lanes] == [draft.speedup.median] * 2
    assert len({lane.shown for lane in four.lanes}) == 1
    for lane in four.lanes[1:]:
        pairs = zip(rates(four.lanes[0]), rates(lane), strict=True)
        assert lane.speedup == Spread.of([b / a for a, b in pairs])


def test_lanes_differ_in_what_is_their_own_and_in_nothing_else(four):
    own = ("draft", "gamma", "candidates", "adaptive")
    assert not set(own) & set(four.settings)
    for lane in four.lanes:
        settings = lane.runs[0].settings
        assert {name: value for name, value in settings.items() if name not in own} == four.settings
    smoothed, tree = (lane.runs[0].settings for lane in four.lanes[2:])
    assert (smoothed["gamma"], tree["gamma"], tree["candidates"]) == (2, 2, 3)
    assert [lane.detail for lane in four.lanes] == ["", "", "gamma 2", "gamma 2, 3 candidates"]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_lane_stands_in_every_place_and_behind_every_other_equally_often(count):
    names = list("abcd"[:count])
    rounds = count * (1 + count % 2)
    rows = orders(names, rounds)
    for place in range(count):
        assert sorted(row[place] for row in rows) == sorted(names * (rounds // count))
    follows = [pair for row in rows for pair in itertools.pairwise(row)]
    assert {pair: follows.count(pair) for pair in itertools.permutations(names, 2)} == dict.fromkeys(
        itertools.permutations(names, 2), rounds // count
    )
    assert orders(names, count + 1)[: count - 1] == rows[: count - 1]


def test_the_rounds_run_as_the_order_says_behind_costs_and_a_warm_up(engine, monkeypatch):
    monkeypatch.setattr("specviz.lab.race.runner.PROGRESS_S", -1)
    seen = list(stream_race(engine, PROMPT, rounds=2, drafts=["ngram", "pool"], max_new_tokens=4))
    *reports, outcome = seen
    assert outcome.order == [["none", "ngram", "pool"], ["ngram", "pool", "none"]]
    stages = list(dict.fromkeys((at.stage, at.round, at.lane) for at in reports))
    warm = [("warmup", 0, key) for key in outcome.order[0]]
    rounds = [("round", number + 1, key) for number, keys in enumerate(outcome.order) for key in keys]
    assert stages == [("costs", 0, "ngram"), ("costs", 0, "pool"), *warm, *rounds]


def test_greedy_float32_lanes_write_the_same(result, four):
    for lane in (*result.lanes[1:], *four.lanes[1:]):
        assert lane.same_output is True
        assert lane.first_divergence is None
    assert "same text" in result.verdict
    assert "same text" in four.lanes[3].verdict


def real_margin(engine, context) -> float:
    """Gap of the two best logits behind `context`, without any cache."""
    best = engine.target._model(input_ids=torch.tensor([context])).logits[0, -1].topk(2).values
    return float(best[0] - best[1])


def test_the_first_difference_comes_with_its_margin_and_both_continuations(monkeypatch):
    engine = tiny_engine()
    engine.calibration(Settings.of(draft="ngram-smoothed"))
    real = engine.target.run

    def wobbling(passes):
        (logits,) = real(passes)
        if passes[0].cache.length >= 50 and len(passes[0].ids) > 1:  # only passes of several rows go astray
            logits = logits.clone()
            logits[:, 7] += 1e4
        return [logits]

    monkeypatch.setattr(engine.target, "run", wobbling)
    result = race(engine, PROMPT, rounds=1, drafts=["ngram-smoothed"], max_new_tokens=40, ignore_eos=True)
    lane = result.lanes[1]
    difference = lane.first_divergence
    runs = [each.runs[0] for each in result.lanes]
    plain, draft = (run.output.token_ids for run in runs)
    assert lane.same_output is False
    assert plain[: difference.index] == draft[: difference.index]
    assert difference.ids == [plain[difference.index], draft[difference.index]]
    assert difference.position == len(runs[0].prompt.token_ids) + difference.index
    for run, after in zip(runs, difference.after, strict=True):
        assert after
        assert difference.before + after in run.output.text
    logits = real_margin(engine, [*runs[0].prompt.token_ids, *plain[: difference.index]])
    assert difference.margin == pytest.approx(logits, rel=1e-4)
    assert f"part at token {difference.index + 1}" in difference.sentence


def test_above_temperature_zero_no_one_expects_the_same_text(engine):
    result = race(engine, PROMPT, rounds=1, temperature=1.0, max_new_tokens=8)
    assert result.lanes[1].same_output is None
    assert result.lanes[1].first_divergence is None


def test_json_round_trip_and_contract(result, four):
    data = json.loads(result.to_json())
    assert data["schema"] == "specviz.race/1"
    assert data["lanes"][1]["speedup"].keys() == {"median", "low", "high"} == data["lead"].keys()
    assert Run.from_dict(data["lanes"][1]["runs"][0]) == result.lanes[1].runs[0]
    assert Race.from_dict(data) == result
    assert Race.from_json(four.to_json()) == four
    assert [len(lane.runs) for lane in four.shown_only().lanes] == [1] * 4


def test_a_stopped_race_is_no_result(engine):
    asked = iter([False] * 30 + [True] * 100)
    with pytest.raises(RaceCancelled):
        race(engine, PROMPT, max_new_tokens=30, ignore_eos=True, cancelled=lambda: next(asked))


def test_a_race_can_be_stopped_while_costs_are_measured():
    asked = iter([False, False, True])
    with pytest.raises(RaceCancelled):
        race(tiny_engine(), PROMPT, cancelled=lambda: next(asked))


def test_a_lane_that_fails_is_named(engine, monkeypatch):
    race(engine, PROMPT, rounds=1, drafts=["ngram", "pool"], max_new_tokens=4)  # costs are known now
    real = engine.target.run

    def broken(passes):
        logits = real(passes)
        if len(passes[0].ids) > 8:  # the pool's tree alone is that large
            logits[0][:] = float("nan")
        return logits

    monkeypatch.setattr(engine.target, "run", broken)
    with pytest.raises(NumericsError, match=r"^The race ended in the lane of a pool of drafts \(gamma 6, 3 cand.*: .+"):
        race(engine, PROMPT, drafts=["ngram", "pool:gamma=6,candidates=3"], max_new_tokens=40, ignore_eos=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds": 0}, "rounds must be"),
        ({"drafts": ["none"]}, "A race needs a draft"),
        ({"drafts": []}, "A race needs a draft"),
        ({"drafts": "ngram"}, "must be a list"),
        ({"drafts": ["ngram", "pool", "eagle", "tree"]}, "at most 3 drafts"),
        ({"drafts": ["ngram", "ngram"]}, "Two lanes are the same"),
        ({"drafts": ["ngram:gamma=x"]}, "gamma must be"),
        ({"drafts": ["ngram:temperature=1"]}, "not temperature"),
        ({"drafts": [{"gamma": 3}]}, "names no draft"),
        ({"drafts": [7]}, "not 7"),
        ({"draft": "ngram"}, "`drafts`"),
        ({"drafts": ["model"]}, "'model' cannot be used"),
        ({"gamma": 99}, "gamma must be"),
        ({"verify": "block", "drafts": ["ngram", "tree"]}, "Rule 'block'"),
    ],
)
def test_a_race_that_cannot_be_run_is_refused(engine, options, sentence):
    with pytest.raises(SettingsError, match=sentence):
        race(engine, PROMPT, **options)


def test_both_ways_of_writing_a_lane_mean_the_same():
    written = entrants(1, ["ngram:gamma=8,adaptive", "eagle-tree:candidates=3"], {})
    mapped = entrants(
        1, [{"draft": "ngram", "gamma": 8, "adaptive": True}, {"draft": "eagle-tree", "candidates": 3}], {}
    )
    assert written == mapped
    assert written[1].key == "ngram:gamma=8,adaptive"
    assert written[1].settings == Settings.of(draft="ngram", gamma=8, adaptive=True)


def paced(lane: Lane, *speeds: float) -> Lane:
    """The lane with these rates, one a round."""
    runs = [
        dataclasses.replace(lane.runs[0], summary=dataclasses.replace(lane.runs[0].summary, tokens_per_second=speed))
        for speed in speeds
    ]
    return dataclasses.replace(lane, runs=runs, tokens_per_second=Spread.of(speeds), speedup=Spread.of(speeds), shown=0)


@pytest.mark.parametrize(
    ("speeds", "opening"),
    [
        ((1.8, 1.7, 1.9), "Speculation wins"),
        ((0.8, 0.7, 0.9), "Speculation loses"),
        ((1.02, 0.98, 1.1), "Too close to call"),
        ((1.01, 1.005, 1.015), "Too close to call"),
    ],
)
def test_the_verdict_says_who_won_also_when_speculation_loses(result, speeds, opening):
    plain, draft = paced(result.lanes[0], 1, 1, 1), paced(result.lanes[1], *speeds)
    assert lane_verdict(draft, plain.runs[0]).startswith(opening)
    winner, _ = fastest([plain, draft])
    assert winner == {"Speculation wins": "ngram", "Speculation loses": "none"}.get(opening)


@pytest.mark.parametrize(
    ("drafts", "winner", "words"),
    [
        (((2.0, 2.1, 2.2), (1.5, 1.5, 1.5)), "ngram", "n-gram lookup is the fastest at 2.10 times"),
        (((1.5, 1.5, 1.5), (2.0, 2.1, 2.2)), "pool", "1.40 times that of n-gram lookup (1.33 to 1.47 over 3 rounds)"),
        (((1.5, 1.6, 1.5), (1.5, 1.5, 1.6)), None, "Too close to call between"),
        (((0.8, 0.8, 0.8), (0.6, 0.6, 0.6)), "none", "Speculation loses: no draft"),
        (((1.5, 1.5, 1.5), (0.5, 0.5, 0.5)), "ngram", "Slower than plain decoding: a pool of drafts"),
    ],
)
def test_the_verdict_over_several_drafts(result, drafts, winner, words):
    pool = dataclasses.replace(result.lanes[1], key="pool", name="a pool of drafts")
    lanes = [paced(lane, *speeds) for lane, speeds in zip([*result.lanes, pool], [(1, 1, 1), *drafts], strict=True)]
    found, lead = fastest(lanes)
    assert found == winner
    assert lead.low <= lead.median <= lead.high
    assert words in verdict(lanes, found, lead)


def test_few_rounds_call_no_winner(engine):
    result = race(engine, PROMPT, rounds=1, max_new_tokens=8)
    assert "too few to call a winner" in result.verdict
    assert result.winner is None
    several = race(engine, PROMPT, rounds=2, drafts=["ngram", "pool"], max_new_tokens=4)
    assert "too few to call a winner" in several.verdict
    assert several.winner is None


def test_a_difference_in_low_precision_is_explained():
    difference = Divergence(3, 40, [5, None], ["a\x1b", None], "so far", ["a", ""], 0.125, "bfloat16")
    words = explain_divergence(difference)
    assert "token 4 ('a\\x1b' against the end)" in words
    assert "0.125 apart in bfloat16: a pass over several tokens rounds differently" in words


def test_every_size_of_pass_is_made_before_the_clock_runs(engine, monkeypatch):
    engine.calibration(Settings.of(draft="ngram", gamma=6))
    sizes, real = [], engine.target.run
    monkeypatch.setattr(
        engine.target, "run", lambda passes: sizes.append([len(one.ids) for one in passes]) or real(passes)
    )
    race(engine, "abc", rounds=1, gamma=6, max_new_tokens=2)
    assert [7] in sizes[: sizes.index([2]) if [2] in sizes else 6]


@pytest.mark.parametrize("draft", SPECULATIVE)
def test_every_draft_type_can_race(draft):
    """Also behind a run that filled the memory, and with the calibration that adaptive gamma asks for."""
    engine = tiny_engine(draft_seed=1)
    engine.generate(PROMPT, draft=draft, max_new_tokens=4)
    result = race(engine, PROMPT, rounds=1, drafts=[draft], max_new_tokens=6, ignore_eos=True)
    lane = result.lanes[1]
    assert lane.same_output is True
    assert lane.runs[0].draft.type == draft
    assert (lane.why is None) == (lane.runs[0].summary.predicted is None)


def test_penalties_count_in_the_margin(engine):
    context = engine.encode(PROMPT, chat=False)
    biased = Settings.of(logit_bias={7: 1e3})
    assert top2_margin(engine, biased, len(context), context) > 900


def test_in_bfloat16_the_texts_are_the_same_or_the_first_difference_is_a_near_tie():
    target = LanguageModel(tiny_model("llama", std=0.1).to(torch.bfloat16), "llama", VOCAB_SIZE)
    engine = Engine(target, tiny_tokenizer())
    for number in range(4):
        prompt = [(11 * i + 5 * number) % 90 + 3 for i in range(20)]
        result = race(engine, prompt, rounds=1, drafts=["ngram-smoothed"], max_new_tokens=40, ignore_eos=True)
        difference = result.lanes[1].first_divergence
        assert result.lanes[1].same_output is (difference is None)
        if difference is not None:
            plain, draft = (lane.runs[0].output.token_ids for lane in result.lanes)
            assert plain[: difference.index] == draft[: difference.index]
            assert difference.ids == [plain[difference.index], draft[difference.index]]
            assert difference.precision == "bfloat16"
            assert 0 <= difference.margin < 0.1
            assert "rounds differently" in difference.sentence
