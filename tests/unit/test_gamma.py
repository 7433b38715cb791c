"""Adaptive gamma: goes deep where drafts hold, gives up where they do not, and never looks at a clock."""

import itertools
import random
import time

import pytest
import torch

from specviz.engine.engine import Engine
from specviz.engine.gamma import AdaptiveGamma, FixedGamma
from specviz.errors import SettingsError
from specviz.lab.table import TableModel, table_engine
from specviz.settings import GAMMA_MAX, Settings
from specviz.summary import drafted_depth, expected_tokens, levels
from specviz.trace import Calibration
from tests.conftest import tiny_engine
from tests.unit.checks import PROMPT, SPECULATIVE, check_counts, comparable, cycle, plain

#: Drafting costs a third of a target pass, verifying is nearly flat: what a CPU shows.
COSTS = Calibration(c=0.3, v=[1 + 0.02 * i for i in range(65)], h=0.05, h0=0.02, unit_s=0.001)
FREE = Calibration(c=0.0, v=[1.0] * 65, h=0.0, h0=0.0, unit_s=0.001)


def hopeless_engine() -> Engine:
    flip = TableModel(cycle().logits.roll(1, -1))
    return Engine(flip, table_engine(flip).tokenizer, cycle())


def test_a_hopeless_draft_is_given_up_and_tried_again_ever_more_seldom():
    options = {"draft": "model", "gamma": 8, "adaptive": True, "calibration": COSTS, "max_new_tokens": 400}
    run = hopeless_engine().generate([0, 1, 2], **options)
    check_counts(run)
    gammas = [step.gamma for step in run.steps]
    first_plain = gammas.index(0)
    assert 0 < first_plain < 10
    pauses = [len(list(group)) for gamma, group in itertools.groupby(gammas[first_plain:]) if gamma == 0]
    assert pauses[:6] == [4, 8, 16, 32, 64, 64]
    assert set(gammas[first_plain:]) == {0, 1}  # a probe is one token deep
    for step in run.steps[first_plain:]:
        words = (
            "probing: does drafting pay again?" if step.gamma else "fallback to plain decoding: drafting does not pay"
        )
        assert words in step.note
    assert all(step.note is None for step in run.steps[:first_plain])


def test_a_good_draft_goes_deep():
    options = {"draft": "ngram", "gamma": 16, "adaptive": True, "calibration": FREE, "max_new_tokens": 300}
    run = table_engine(cycle()).generate([0, 1, 2, 0, 1, 2, 0], **options)
    assert [step.gamma for step in run.steps[3:-1]] == [16] * (len(run.steps) - 4)
    assert run.summary.acceptance_rate.value == 1


def test_a_draft_that_gets_better_is_noticed():
    gamma = AdaptiveGamma(8, COSTS)
    for _ in range(60):
        depth, _ = gamma.choose(100)
        gamma.learn(depth, depth, min(depth, 1), 0, 1)
    assert gamma.choose(100)[0] == 0
    chosen = []
    for _ in range(300):
        depth, _ = gamma.choose(100)
        gamma.learn(depth, depth, depth, depth, depth + 1)
        chosen.append(depth)
    assert chosen[-1] == 8
    assert gamma.alpha > 0.95


def test_the_pauses_begin_short_again_when_the_draft_had_recovered():
    gamma = AdaptiveGamma(8, COSTS)

    def pauses(steps, accepted):
        """Lengths of the plain spells over so many steps whose drafts hold or not."""
        chosen = []
        for _ in range(steps):
            depth, _ = gamma.choose(100)
            gamma.learn(depth, depth, depth if accepted else min(depth, 1), accepted * depth, accepted * depth + 1)
            chosen.append(depth)
        return [len(list(spell)) for depth, spell in itertools.groupby(chosen) if not depth]

    assert pauses(100, 0)[:4] == [4, 8, 16, 32]
    pauses(300, 1)
    assert gamma.choose(100)[0] == 8
    assert pauses(100, 0)[:3] == [4, 8, 16]


class Listening(FixedGamma):
    def __init__(self, gamma):
        super().__init__(gamma)
        self.heard = []

    def learn(self, depth, nodes, tested, accepted, emitted):
        self.heard.append((depth, nodes, tested, accepted, emitted))


@pytest.mark.parametrize("draft", SPECULATIVE)
def test_what_gamma_learns_is_what_the_trace_shows(draft):
    engine = tiny_engine(draft_seed=1, std=0.15)
    options = {"temperature": 1.0, "top_k": 4, "seed": 5, "max_new_tokens": 24, "ignore_eos": True}
    decoding = engine.stream(PROMPT, draft=draft, candidates=3, **options)
    decoding._parts.gamma = gamma = Listening(4)
    steps = list(decoding)
    assert gamma.heard == [
        (drafted_depth(step), step.gamma, len(levels(step)), step.accepted, len(step.emitted)) for step in steps
    ]
    assert any(accepted < tested for _, _, tested, accepted, _ in gamma.heard)


def test_the_choice_maximises_tokens_less_lambda_times_time():
    gamma, tokens, seconds = AdaptiveGamma(10, COSTS, branches=2), 0, 0.0
    rng = random.Random(0)
    for _ in range(50):
        rate = tokens / seconds if seconds else 1 / COSTS.step(0)
        values = [expected_tokens(gamma.alpha, g) - rate * COSTS.step(g, 2 * g) for g in range(11)]
        depth, _ = gamma.choose(99)
        assert values[depth] == pytest.approx(max(values))
        accepted = sum(1 for _ in itertools.takewhile(lambda _: rng.random() < 0.8, range(depth)))
        gamma.learn(depth, 2 * depth, min(depth, accepted + 1), accepted, accepted + 1)
        tokens, seconds = tokens + accepted + 1, seconds + COSTS.step(depth, 2 * depth)


def test_the_room_bounds_the_choice_and_no_room_is_no_fallback():
    for gamma in (FixedGamma(8), AdaptiveGamma(8, FREE)):
        assert gamma.choose(3) == (3, None)
        assert gamma.choose(0) == (0, None)


def test_steps_in_which_the_draft_said_nothing_are_plain():
    gamma = AdaptiveGamma(4, COSTS)
    before = gamma.alpha
    gamma.learn(0, 0, 0, 0, 1)
    assert gamma.alpha == before


@pytest.mark.parametrize("draft", SPECULATIVE)
def test_a_run_with_the_stored_calibration_is_repeated_exactly(draft):
    engine = tiny_engine(draft_seed=1, std=0.15)
    options = {"draft": draft, "adaptive": True, "gamma": 6, "temperature": 1.0, "top_k": 4, "seed": 7}
    first = engine.generate(PROMPT, max_new_tokens=30, **options)
    assert first.calibration.v[0] == 1
    assert first.calibration.unit_s > 0
    assert len(first.calibration.v) <= GAMMA_MAX * 4 + 1
    check_counts(first)
    other = tiny_engine(draft_seed=1, std=0.15)  # which would measure other costs
    again = other.generate(PROMPT, max_new_tokens=30, calibration=first.calibration, **options)
    assert comparable(again) == comparable(first)


def test_costs_are_measured_once_for_a_draft_type_and_kept():
    engine = tiny_engine(draft_seed=1)
    a, b = (engine.generate(PROMPT, draft="model", adaptive=True, max_new_tokens=4).calibration for _ in range(2))
    assert a is b
    assert engine.generate(PROMPT, draft="ngram", adaptive=True, max_new_tokens=4).calibration is not a
    assert engine.generate(PROMPT, draft="ngram", max_new_tokens=4).calibration is None
    assert engine.generate(PROMPT, draft="none", adaptive=True, max_new_tokens=4).steps[0].gamma == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_decided_reads_the_clock(monkeypatch, temperature):
    engine = tiny_engine(draft_seed=1, std=0.15)
    options = {"draft": "model", "adaptive": True, "calibration": COSTS, "temperature": temperature, "seed": 1,
               "gamma": 8, "max_new_tokens": 40, "top_k": 4}  # fmt: skip
    expected = engine.generate(PROMPT, **options)
    rng, now = random.Random(3), [0.0]

    def erratic():
        now[0] += rng.choice([1e-9, 1e-3, 10.0, 1e4])
        return now[0]

    for name in ("perf_counter", "monotonic", "time", "process_time"):
        monkeypatch.setattr(time, name, erratic)
    run = engine.generate(PROMPT, **options)
    monkeypatch.undo()
    assert run.output == expected.output
    assert [step.gamma for step in run.steps] == [step.gamma for step in expected.steps]
    assert len({step.gamma for step in run.steps}) > 1


class Forced:
    """Gamma 3, 0, 3, 0, ..."""

    def __init__(self):
        self._turns = itertools.cycle([3, 0])

    def choose(self, room):
        return min(next(self._turns), room), None

    def learn(self, depth, nodes, tested, accepted, emitted):
        pass


@pytest.mark.parametrize("draft", SPECULATIVE)
@pytest.mark.parametrize(("rule", "temperature"), [("rejection", 0.0), ("coupled", 1.0)])
def test_gamma_forced_to_three_nought_three(draft, rule, temperature):
    engine = tiny_engine(draft_seed=1, std=0.15)
    options = {"verify": rule, "temperature": temperature, "seed": 2, "max_new_tokens": 24, "ignore_eos": True}
    decoding = engine.stream(PROMPT, draft=draft, **options)
    decoding._parts.gamma = Forced()
    steps = list(decoding)
    check_counts(decoding.run)
    assert decoding.run.output.token_ids == plain(engine, **options).output.token_ids
    for step in steps[1::2]:
        (token,) = step.tokens
        assert (step.gamma, token.fate, token.parent, token.u) == (0, "sampled", -1, None)
    assert any(step.gamma for step in steps[::2])


@pytest.mark.parametrize("draft", ["model", "layer_skip", "ngram-smoothed"])
def test_an_unsure_draft_stops_and_takes_nothing_back(draft):
    engine = tiny_engine(draft_seed=1, std=0.15)
    options = {"draft": draft, "gamma": 8, "temperature": 1.0, "seed": 3, "max_new_tokens": 40, "ignore_eos": True}
    run = engine.generate(PROMPT, min_confidence=0.1, **options)
    check_counts(run)
    stopped = 0
    for step in run.steps:
        *before, last = [token.confidence for token in step.tokens[: step.gamma]]
        assert all(confidence >= 0.1 for confidence in before)  # the unsure one is the last, and it is there
        if step.gamma < 8 and step.note:
            stopped += 1
            assert last < 0.1
            assert f"stopped drafting: confidence {last:.2f} is below 0.1" in step.note
    assert stopped
    coupled = {**options, "verify": "coupled", "min_confidence": 0.1}
    expected = engine.generate(PROMPT, **{**coupled, "draft": "none"}).output
    assert engine.generate(PROMPT, **coupled).output == expected


def test_calibrating_needs_no_long_context():
    engine = tiny_engine("gpt2", draft_seed=1, max_positions=16)
    for draft in ("ngram", "model", "tree", "pool"):
        run = engine.generate([5, 6, 7], draft=draft, adaptive=True, max_new_tokens=6)
        assert all(value > 0 for value in run.calibration.v)
    assert torch.isfinite(torch.tensor(run.calibration.v)).all()


def test_an_adaptive_stream_that_never_began_disturbs_no_other():
    engine = tiny_engine(draft_seed=1)
    expected = plain(engine, max_new_tokens=12).output.token_ids
    current = engine.stream(PROMPT, draft="none", max_new_tokens=12)
    next(current)
    engine.stream(PROMPT, draft="model", adaptive=True)
    list(current)
    assert current.run.output.token_ids == expected


def test_a_draft_of_short_context_is_no_free_draft():
    """A text longer than the draft model can read would make it silent, and its cost nothing."""
    engine = table_engine(TableModel.random(12, 1), TableModel.random(12, 2))
    engine.draft_model.max_positions = 40
    assert engine.calibration(Settings.of(draft="model")).c > 0


def test_hybrid_is_reckoned_at_the_cost_of_its_model(monkeypatch):
    """The text that costs are measured on repeats: copied throughout, the model behind would seem free."""
    engine, asked = table_engine(TableModel.random(12, 1), TableModel.random(12, 2)), []
    generate = engine.generate
    monkeypatch.setattr(engine, "generate", lambda ids, **o: asked.append(o["draft"]) or generate(ids, **o))
    engine.calibration(Settings.of(draft="hybrid"))
    assert set(asked) == {"model", "none"}


@pytest.mark.parametrize(
    "calibration",
    [
        "fast", {}, {"c": 0.1}, Calibration(float("nan"), [1.0], 0, 0, 1), Calibration(0.1, [], 0, 0, 1),
        Calibration(-0.1, [1.0], 0, 0, 1), Calibration(0.1, [0.0], 0, 0, 1), Calibration(None, [1.0], 0, 0, 1),
    ],
)  # fmt: skip
def test_costs_that_cannot_be_reckoned_with_are_refused(calibration):
    with pytest.raises(SettingsError, match="calibration must be the `calibration` of an earlier run"):
        table_engine(TableModel.random(5, 1)).stream([1, 2], draft="ngram", adaptive=True, calibration=calibration)
