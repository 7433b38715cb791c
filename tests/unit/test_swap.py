"""The draft changes between two steps of one run: the trace says so, and the text does not notice."""

import pytest

from specviz.errors import SettingsError
from tests.conftest import tiny_engine
from tests.unit.checks import CHAINS, PROMPT, SPECULATIVE, check_counts, plain


def swapping(engine, order, **options):
    """A run that changes its draft before every step but the first."""
    decoding = engine.stream(PROMPT, draft=order[0], **options)
    for i, step in enumerate(decoding):
        assert step.draft == order[i % len(order)]
        decoding.swap(order[(i + 1) % len(order)])
    return decoding.run


@pytest.mark.parametrize("rule", ["rejection", "coupled"])
def test_the_trace_shows_the_change_and_greedy_ids_do_not(rule):
    engine = tiny_engine(draft_seed=1)
    order = ["model", "tree", "layer_skip", "pool", "ngram", "tree-dynamic", "none", "hybrid", "ngram-smoothed"]
    run = swapping(engine, order, verify=rule, gamma=3, max_new_tokens=40, ignore_eos=True)
    assert run.output.token_ids == plain(engine, max_new_tokens=40, ignore_eos=True).output.token_ids
    check_counts(run)
    assert run.draft.type == run.settings["draft"] == "model"
    assert "changed" not in (run.steps[0].note or "")
    for before, after in zip(run.steps, run.steps[1:], strict=False):
        assert after.note.startswith(f"draft changed from {before.draft} to {after.draft}")
    assert all(step.gamma == 0 for step in run.steps if step.draft == "none")


def test_coupled_ids_do_not_notice_at_temperature_one():
    engine = tiny_engine(draft_seed=1, std=0.2)
    options = {"temperature": 1.0, "seed": 3, "verify": "coupled", "max_new_tokens": 30, "ignore_eos": True}
    run = swapping(engine, list(SPECULATIVE), **options)
    assert run.output.token_ids == plain(engine, **options).output.token_ids
    check_counts(run)


def test_a_draft_that_comes_back_has_caught_up_and_takes_no_new_memory():
    engine = tiny_engine(draft_seed=0)
    run = swapping(engine, ["model", "ngram", "model", "none"], gamma=3, max_new_tokens=60, ignore_eos=True)
    # The target's own weights: whatever happened in between, all of it is accepted.
    assert all(step.accepted == 3 for step in run.steps[:-1] if step.draft == "model")
    assert engine.draft_model.store.slots == 1
    check_counts(run)


def test_the_same_draft_again_is_no_change():
    engine = tiny_engine()
    decoding = engine.stream(PROMPT, draft="ngram-smoothed", max_new_tokens=12, temperature=1.0)
    for _ in decoding:
        decoding.swap("ngram-smoothed")
    expected = engine.generate(PROMPT, draft="ngram-smoothed", max_new_tokens=12, temperature=1.0)
    assert decoding.run.output == expected.output
    assert all(step.note is None for step in decoding.run.steps)


@pytest.mark.parametrize("tree", ["tree", "tree-dynamic", "pool"])
def test_what_the_rule_cannot_verify_is_refused_and_the_run_goes_on(tree):
    engine = tiny_engine(draft_seed=1)
    decoding = engine.stream(PROMPT, draft="ngram", verify="block", max_new_tokens=12)
    next(decoding)
    with pytest.raises(SettingsError, match=r"verifies a chain as one block and .* proposes a tree"):
        decoding.swap(tree)
    with pytest.raises(SettingsError, match="Unknown draft type"):
        decoding.swap("oak")
    for draft in CHAINS:
        decoding.swap(draft)
    list(decoding)
    assert decoding.run.output.token_ids == plain(engine, max_new_tokens=12).output.token_ids


def test_a_draft_that_is_not_there_and_a_plain_run_are_refused():
    engine = tiny_engine()
    with pytest.raises(SettingsError, match="No draft model was loaded"):
        engine.stream(PROMPT, draft="ngram").swap("model")
    with pytest.raises(SettingsError, match="begun as plain decoding"):
        engine.stream(PROMPT, draft="none").swap("ngram")


def test_adaptive_gamma_keeps_its_draft():
    engine = tiny_engine(draft_seed=1)
    decoding = engine.stream(PROMPT, draft="ngram", adaptive=True)
    with pytest.raises(SettingsError, match="fixed gamma"):
        decoding.swap("model")


@pytest.mark.parametrize("draft", SPECULATIVE)
def test_a_change_to_the_same_draft_before_the_first_step_is_none(draft):
    engine, options = tiny_engine(draft_seed=1), {"max_new_tokens": 12, "ignore_eos": True}
    decoding = engine.stream(PROMPT, draft=draft, **options)
    decoding.swap(draft)
    assert not any("draft changed" in (step.note or "") for step in decoding)
    assert decoding.run.output == engine.generate(PROMPT, draft=draft, **options).output


def test_a_draft_that_is_no_text_is_refused():
    with pytest.raises(SettingsError, match="Unknown draft type"):
        tiny_engine().stream(PROMPT).swap(["ngram"])
