"""Losslessness, sampled: tens of thousands of runs of the engine's own loop, and every classic mistake caught."""

from __future__ import annotations

from collections import Counter

import pytest

from specviz.errors import SettingsError
from specviz.lab import proof
from specviz.lab.mistakes import MISTAKES
from specviz.lab.proof import PROMPT, VOCABULARY, check, compare, make_engine, prove, sample
from specviz.lab.table import TableModel, table_engine
from specviz.trace import Calibration
from tests.statistical import book

#: (draft, rule, samples, options)
CASES = [
    ("none", "rejection", 4_000, {"temperature": 1.5}),
    ("none", "coupled", 4_000, {"temperature": 1.0}),
    ("ngram", "rejection", 4_000, {"temperature": 1.0, "top_k": 0}),
    ("ngram-smoothed", "rejection", 4_000, {"temperature": 1.0, "top_k": 0}),
    ("model", "rejection", 30_000, {}),
    ("model", "block", 4_000, {}),
    ("layer_skip", "block", 4_000, {"top_k": 0, "top_p": 0.9}),
    ("eagle", "rejection", 4_000, {"top_k": 0}),
    ("eagle", "block", 4_000, {}),
    ("eagle", "coupled", 4_000, {}),
    ("eagle-tree", "rejection", 4_000, {}),
    ("medusa", "rejection", 4_000, {}),
    ("feedforward", "rejection", 4_000, {"top_k": 0}),
    ("tree", "rejection", 4_000, {}),
    ("tree-dynamic", "rejection", 4_000, {}),
    ("pool", "rejection", 4_000, {"candidates": 3}),
    ("pool", "coupled", 4_000, {}),
    ("hybrid", "rejection", 4_000, {"gamma": 3, "min_confidence": 0.3}),
]


@pytest.mark.parametrize(("draft", "verify", "samples", "options"), CASES)
def test_the_samples_have_the_targets_law(draft, verify, samples, options):
    found = prove(draft=draft, verify=verify, samples=samples, **options)
    assert found.passed, found.verdict
    assert found.n == samples
    assert found.length >= found.gamma + 2 or draft == "none"
    assert found.tv < 1.5 * found.floor.high
    assert found.tv_exact < 1e-9
    assert sum(cell.expected for cell in found.cells) == pytest.approx(1)
    assert sum(cell.observed for cell in found.cells) == pytest.approx(1)


@pytest.mark.parametrize(
    ("gamma", "warp"), [(4, {"temperature": 1.0, "top_k": 3}), (2, {"temperature": 0.7, "top_p": 0.6})]
)
def test_a_vocabulary_of_eight_over_two_steps_and_more(gamma, warp):
    """Case 7 of the situations that broke published engines, with its negative control."""
    for wrong, samples in ((False, 30_000), (True, 4_000)):
        engine = table_engine(*(TableModel.random(8, seed) for seed in (1, 2)))
        if wrong:
            MISTAKES["resample-from-p"].put_into(engine)
        settings, counts = check("model", "rejection", None, gamma=gamma, **{"top_k": 0, **warp}), Counter()
        for start in range(0, samples, 500):
            counts.update(sample(engine, settings, gamma + 2, range(start, start + 500)))
        p_value = compare(book.law(engine.target, list(PROMPT), gamma + 2, **warp), counts)[2]
        assert p_value < 1e-6 if wrong else p_value > 1e-3


def test_the_law_is_the_one_of_the_book():
    found = prove(samples=500, temperature=0.7, top_k=3, top_p=0.9)
    expected = book.law(make_engine(None).target, list(PROMPT), found.length, temperature=0.7, top_k=3, top_p=0.9)
    assert found.cells[0].expected == pytest.approx(max(expected.values()), rel=1e-4)
    assert len(found.cells) == len(expected)


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_fails(name):
    found = prove(mistake=name, samples=3000)
    assert not found.passed
    assert found.p_value < 1e-6
    assert found.tv > found.floor.high
    if name == "reseed":
        assert found.tv_exact is None
    else:
        assert found.tv_exact > 0.01
        assert found.tv == pytest.approx(found.tv_exact, abs=0.05)  # sampling sees what was enumerated
    assert "bends the law" in found.verdict


def test_adaptive_gamma_keeps_the_law():
    """Gammas that follow from what was accepted before, with costs at which both drafting and going plain pay."""
    settings = check("model", "rejection", None).replace(adaptive=True, gamma=3)
    engine = make_engine(None)
    engine.calibration = lambda *_, **__: Calibration(0.3, [1, 1.05, 1.1, 1.2], 0, 0, 1)
    counts, gammas = Counter(), set()
    for start in range(0, 10_000, 500):
        counts.update(sample(engine, settings, 5, range(start, start + 500)))
    for run in engine.generate_batch(
        [list(PROMPT)] * 20, [settings.replace(seed=s, max_new_tokens=20) for s in range(20)]
    ):
        gammas.update(step.gamma for step in run.steps)
    assert {0, 1} < gammas
    law = book.law(engine.target, list(PROMPT), 5, temperature=0.8, top_k=3)
    assert compare(law, counts)[2] > 1e-4


def test_the_chi_squared_test_agrees_with_scipy():
    from scipy.stats import chisquare

    law = {(i,): 0.25 for i in range(4)}
    counts = Counter({(0,): 30, (1,): 20, (2,): 25, (3,): 45})
    statistic, dof, p_value, outside = compare(law, counts)
    expected = chisquare([30, 20, 25, 45])
    assert (statistic, dof, outside) == (pytest.approx(expected.statistic), 3, 0)
    assert p_value == pytest.approx(expected.pvalue)
    assert compare(law, counts + Counter({(9,): 1}))[2:] == (0.0, 1)


def test_bad_input_is_refused_in_a_sentence():
    for options, words in [
        ({"samples": 10}, "samples must be a whole number from 100"),
        ({"mistake": "typo"}, "Unknown mistake 'typo'"),
        ({"gamma": 9}, "gamma must be at most 4 here"),
        ({"draft": "tree", "verify": "block"}, "proposes a tree"),
        ({"temprature": 1}, "did you mean 'temperature'"),
    ]:
        with pytest.raises(SettingsError, match=words):
            prove(**options)


def test_it_can_be_stopped_also_while_the_law_is_enumerated():
    with pytest.raises(proof.ProofCancelled):
        prove(cancelled=lambda: True, progress=lambda _: pytest.fail("sampling had begun"))


@pytest.mark.parametrize("draft", ["tree", "pool"])
def test_more_drafts_than_can_be_enumerated_are_refused_at_once(draft):
    with pytest.raises(SettingsError, match="gamma 4 has too many drafts to enumerate"):
        prove(draft=draft, gamma=4, candidates=4, samples=100)


def test_a_rare_text_in_a_small_sample_is_no_deviation():
    law = {(0,): 0.6, (1,): 0.3999, (2,): 0.0001}
    assert compare(law, Counter({(0,): 60, (1,): 39, (2,): 1}))[1:3] == (1, pytest.approx(1, abs=0.01))
    assert compare(law, Counter({(0,): 5}))[1:3] == (0, 1.0)  # nothing to compare


def test_a_mistake_is_shown_where_it_can_happen():
    found = check("ngram", "block", "softmax-top-k-tree")
    assert (found.draft, found.verify) == ("tree-dynamic", "rejection")
    assert VOCABULARY <= 6
