"""The figures of a benchmark follow from its results: worked out by hand on chosen numbers."""

import math
import statistics

import numpy as np
import pytest

from specviz.lab.bench.contestants import timed_by
from specviz.lab.bench.document import Bench
from specviz.lab.bench.figures import Ledger, ratio, summarise, times
from specviz.trace import Step, Token
from tests.unit.made_bench import COSTS, made_bench, result


@pytest.fixture(scope="module")
def bench() -> Bench:
    return made_bench()


def row(bench: Bench, name: str):
    return next(row for row in bench.summary.lanes if row.lane == name)


def test_a_speedup_is_the_geometric_mean_over_prompts_against_the_same_precision(bench):
    found = row(bench, "ngram g3 int4").overall.speedup
    ratios = [2.0, 1.5, 2.0, 1.0]
    assert found.mean == pytest.approx(math.prod(ratios) ** 0.25)
    assert found.sd == pytest.approx(statistics.stdev(ratios))
    assert found.prompts == 4
    assert 1.0 <= found.low < found.mean < found.high <= 2.0
    assert row(bench, "plain int4").overall.speedup is None
    assert row(bench, "hf bfloat16").overall.speedup.mean == pytest.approx((0.5 * 0.5 * 1 * 1) ** 0.25)


def test_tokens_per_second_are_all_tokens_over_all_seconds(bench):
    figures = row(bench, "plain int4").overall
    assert figures.tokens_per_second == pytest.approx(400 / (1 + 1 + 2 + 2))
    assert figures.tokens_per_pass == 1
    assert figures.acceptance is None
    drafted = row(bench, "ngram g3 int4").overall
    assert (drafted.tokens_per_pass, drafted.acceptance) == (2, 0.75)
    assert figures.perplexity == pytest.approx(math.exp(2))
    assert figures.prefill_s == pytest.approx(0.1)


def test_categories_count_alike_and_the_worst_is_named(bench):
    found = row(bench, "ngram g3 int4")
    prose, code = 2.0, math.sqrt(1.5 * 1.0)
    assert [(part.category, part.prompts) for part in found.categories] == [("prose", 2), ("code", 2)]
    assert found.categories_mean == pytest.approx(math.sqrt(prose * code))
    assert (found.worst.category, found.worst.speedup) == ("code", pytest.approx(code))


def test_any_two_lanes_can_be_compared_and_the_comparison_turns_round(bench):
    ledger = Ledger(bench)
    there, back = ledger.ratio("ngram g3 int4", "hf bfloat16"), ledger.ratio("hf bfloat16", "ngram g3 int4")
    assert there.mean == pytest.approx(1 / back.mean)
    assert there.mean == pytest.approx((10 * 7.5 * 5 * 2.5) ** 0.25)
    against = {one.against: one.ratio for one in row(bench, "ngram g3 int4").comparisons}
    assert list(against) == ["plain int4", "plain bfloat16", "hf bfloat16"]
    assert against["hf bfloat16"] == there


def test_only_prompts_that_both_lanes_were_timed_on_count():
    bench = made_bench({"plain int4": [100.0, 100.0, 50.0, 50.0], "ngram g3 int4": [200.0]})
    bench.results.append(result("p1", "ngram g3 int4", 150.0))
    bench.results[-1].timed = 0  # ended with its first token: nothing was timed
    bench.summary = summarise(bench)
    assert row(bench, "ngram g3 int4").overall.speedup.prompts == 1
    assert row(bench, "ngram g3 int4").overall.speedup.low is None


def test_a_round_that_was_disturbed_does_not_decide():
    bench = made_bench({"plain int4": [100.0] * 4, "ngram g3 int4": [150.0] * 4})
    bench.results += [result("p0", "ngram g3 int4", rate) for rate in (1.0, 150.0)]
    assert Ledger(bench).rates("ngram g3 int4")["p0"] == pytest.approx(150)


def test_a_failed_lane_gets_no_figures_whatever_it_left_behind(bench):
    broken = Bench.from_json(bench.to_json())
    lane = broken.lane("hf bfloat16")
    lane.status, lane.message = "failed", "it ended with code -9"
    summary = summarise(broken)
    assert "hf bfloat16" not in [row.lane for row in summary.lanes]
    assert all(one.against != "hf bfloat16" for row in summary.lanes for one in row.comparisons)
    assert "hf bfloat16 has no result: it ended with code -9" in summary.sentences


def test_intervals_are_seeded_and_cover_the_truth():
    truth, covered = 1.3, 0
    for seed in range(200):
        drawn = np.exp(math.log(truth) + 0.2 * np.random.default_rng(1000 + seed).standard_normal(40)).tolist()
        found = ratio(drawn, seed)
        assert found == ratio(drawn, seed)
        covered += found.low <= truth <= found.high
    assert 0.88 < covered / 200 < 0.99


def test_theory_stands_beside_the_measurement(bench):
    model = row(bench, "ngram g3 int4").model
    assert (model.alpha, model.c, model.v, model.h, model.h0) == (0.5, 0.2, 1.3, 0.05, 0.02)
    assert (model.speedup, model.from_tokens) == (pytest.approx(1.5), pytest.approx(1.4))
    assert model.measured == row(bench, "ngram g3 int4").overall.speedup.mean
    assert row(bench, "plain int4").model is None


def test_the_time_of_steps_by_their_costs():
    drafted = [Token(i, 0, "", "accepted", i - 1) for i in range(2)] + [Token(2, 0, "", "bonus", 1)]
    steps = [
        Step(0, 0, 1, 0, 1, 0, 2, "ngram", 0, 3, None, drafted),
        Step(1, 1, 2, 0, 1, 0, 0, "ngram", 3, 4, None, []),
    ]
    steps[1].tokens = [Token(3, 0, "", "sampled", -1)]
    assert timed_by(COSTS, steps) == pytest.approx(1.02 * 4 / ((2 * 0.2 + 1.2 + 0.05) + 1.02))


def test_precisions_by_agreement_and_perplexity(bench):
    reference, int4 = bench.summary.quality
    assert (reference.agreement.value, int4.agreement.value) == (1.0, 0.97)
    assert int4.agreement.low < 0.97 < int4.agreement.high
    assert int4.perplexity == pytest.approx(math.exp(2.1))


def test_the_sentences_say_what_won_and_what_lost(bench):
    said = bench.summary.sentences
    best = row(bench, "ngram g3 int4").overall.speedup
    assert said[0] == "ngram g3 int4 is the fastest of ours: 96.0 tokens per second."
    assert said[1] == (
        f"ngram g3 int4 has the highest speed-up over its plain lane: {times(best)}; its worst category is code (1.22)."
    )
    assert said[2] == "Slower than plain decoding: pool g3 c1 int4 (0.93)."
    assert said[3].startswith("ngram g3 int4, the fastest of ours against hf bfloat16, is 5.5")
    assert said[-1] == "vllm bfloat16 is missing: No module."


def test_a_lost_race_is_called_lost():
    said = made_bench({"plain int4": [100.0] * 4, "ngram g3 int4": [50.0] * 4}).summary.sentences
    assert said[0] == "plain int4 is the fastest of ours: 100.0 tokens per second."
    assert said[1].startswith("No draft was faster than plain decoding; the best, ngram g3 int4, ran at 0.50 times")


def test_equal_texts_are_counted(bench):
    other = Bench.from_json(bench.to_json())
    next(one for one in other.results if one.lane == "ngram g3 int4").ids[5] = -1
    found = {row.lane: row.same_text for row in summarise(other).lanes}
    assert (found["ngram g3 int4"], found["pool g3 c1 int4"], found["plain int4"]) == (0.75, 1.0, None)
