"""Where a run ends and what it survives: end ids, stop texts, lengths, contexts, damaged numbers, cancelling."""

import pytest

from specviz.drafters.heads import NEEDS
from specviz.engine.engine import Engine
from specviz.engine.model import LanguageModel
from specviz.errors import NumericsError, SpecvizError
from specviz.lab.table import table_engine
from tests.conftest import tiny_engine
from tests.tiny import VOCAB_SIZE, tiny_model, tiny_tokenizer
from tests.unit.checks import PAIRS, PROMPT, SPECULATIVE, check_counts, cycle, plain


def test_eos_inside_an_accepted_block_ends_the_output_there():
    engine = table_engine(cycle())
    run = engine.generate([0, 1, 2, 0, 1, 2, 0], draft="ngram", gamma=8, eos_token_id=2, max_new_tokens=50)
    assert run.output.token_ids == [1, 2]
    assert run.output.finish_reason == "eos"
    assert [token.fate for token in run.steps[-1].tokens] == ["accepted"] * 2 + ["trimmed"] * 6
    assert run.summary.acceptance_rate.value == 1
    check_counts(run)


def test_eos_as_the_last_drafted_token_gets_no_bonus():
    run = table_engine(cycle()).generate([0, 1, 2, 0, 1, 2, 0], draft="ngram", gamma=2, eos_token_id=2)
    assert [token.fate for token in run.steps[-1].tokens] == ["accepted", "accepted"]


def test_several_eos_ids_and_ignore_eos():
    engine = table_engine(cycle())
    assert engine.generate([0], draft="none", eos_token_id=[7, 1]).output.token_ids == [1]
    run = engine.generate([0], draft="none", eos_token_id=1, ignore_eos=True, max_new_tokens=5)
    assert (len(run.output.token_ids), run.output.finish_reason) == (5, "length")


@pytest.mark.parametrize(("draft", "rule"), PAIRS)
def test_the_fifth_id_as_eos_ends_the_output_there_for_every_draft(draft, rule):
    engine, prompt = table_engine(cycle(7), cycle(7)), [0, 1, 2, 3, 4, 5, 6] * 2
    eos = plain(engine, prompt, max_new_tokens=5).output.token_ids[4]
    for gamma in (2, 4, 5, 8):  # behind the end of a step, its last token, in the middle of it
        run = engine.generate(prompt, draft=draft, verify=rule, gamma=gamma, eos_token_id=eos, max_new_tokens=50)
        assert (run.output.token_ids, run.output.finish_reason) == ([0, 1, 2, 3, 4], "eos")
        if draft not in NEEDS:  # a random head knows nothing of cycles
            assert run.summary.acceptance_rate.value == 1
        check_counts(run)


@pytest.mark.parametrize(("draft", "rule"), PAIRS)
@pytest.mark.parametrize("stop", ["ca", "bcab"])
def test_a_stop_text_inside_an_accepted_block_or_over_two_steps(draft, rule, stop):
    engine, prompt = table_engine(cycle(), cycle()), [0, 1, 2, 0, 1, 2, 0]
    expected = plain(engine, prompt, stop=stop).output
    for gamma in range(1, 8):
        run = engine.generate(prompt, draft=draft, verify=rule, gamma=gamma, stop=stop)
        assert run.output == expected
        assert run.output.text.endswith(stop)
        assert run.output.text.count(stop) == 1
        assert run.output.finish_reason == "stop"
        check_counts(run)


def test_a_stop_text_in_the_middle_of_a_token_cuts_its_text():
    engine = tiny_engine()
    whole = plain(engine, max_new_tokens=30, ignore_eos=True)
    token = next(t for s in whole.steps for t in s.tokens if len(t.text) >= 2)
    stop = token.text[0]
    run = plain(engine, max_new_tokens=30, ignore_eos=True, stop=[stop])
    assert run.output.text == whole.output.text[: whole.output.text.index(stop) + 1]
    check_counts(run)


@pytest.mark.parametrize("draft", SPECULATIVE)
@pytest.mark.parametrize("rule", ["rejection", "coupled"])
def test_the_length_limit_is_exact(draft, rule):
    engine = tiny_engine(draft_seed=0)
    for limit in range(1, 8):
        run = engine.generate(PROMPT, draft=draft, verify=rule, gamma=5, max_new_tokens=limit, ignore_eos=True)
        assert len(run.output.token_ids) == limit
        assert run.output.finish_reason == "length"
        check_counts(run)


def test_a_model_without_eos_runs_to_the_length_limit():
    engine = Engine(
        LanguageModel(tiny_model("gpt2", eos=False), "gpt2", VOCAB_SIZE), tiny_tokenizer(), eos_token_ids=()
    )
    run = engine.generate([5, 6, 5, 6, 5, 6], draft="ngram", gamma=4, max_new_tokens=40)
    assert (len(run.output.token_ids), run.output.finish_reason) == (40, "length")


@pytest.mark.parametrize(("draft", "rule"), PAIRS)
def test_a_shorter_limit_gives_the_beginning_of_a_longer_run(draft, rule):
    engine = tiny_engine(draft_seed=1)
    options = {"draft": draft, "verify": rule, "gamma": 3, "temperature": 1.0, "seed": 5, "ignore_eos": True}
    long = engine.generate(PROMPT, max_new_tokens=10, **options).output.token_ids
    for limit in (1, 6):
        assert engine.generate(PROMPT, max_new_tokens=limit, **options).output.token_ids == long[:limit]


@pytest.mark.parametrize("draft", SPECULATIVE)
@pytest.mark.parametrize(("architecture", "draft_seed"), [("llama", 0), ("gpt2", 1)])
def test_the_context_limit_is_never_passed(architecture, draft_seed, draft):
    """llama drafts for itself, so whole drafts are accepted at the limit; gpt2 has a table of positions, in which one
    more is an error."""
    engine = tiny_engine(architecture, max_positions=64, draft_seed=draft_seed)
    for length in (54, 61, 62, 63):
        prompt = [(5 * i) % 40 + 3 for i in range(length)]
        run = engine.generate(prompt, draft=draft, gamma=8, candidates=4, ignore_eos=True)
        assert run.output.finish_reason == "context"
        assert len(run.output.token_ids) == 64 - length
        assert max(token.position for step in run.steps for token in step.tokens) < 64
        assert run.output.token_ids == plain(engine, prompt, ignore_eos=True).output.token_ids
        check_counts(run)


@pytest.mark.parametrize("draft", ["model", "tree", "tree-dynamic", "hybrid", "pool"])
@pytest.mark.parametrize("architecture", ["gpt2"])
def test_a_draft_with_a_shorter_context_stops_drafting_and_says_so(architecture, draft):
    draft_model = LanguageModel(tiny_model(architecture, seed=1, max_positions=64), "draft", VOCAB_SIZE)
    engine = Engine(LanguageModel(tiny_model(architecture), "target", VOCAB_SIZE), tiny_tokenizer(), draft_model)
    for length in (80, 64, 63, 57):  # full from the start, or in the middle of the run
        prompt = [(5 * i * i) % 97 + 3 for i in range(length)]
        options = {"max_new_tokens": 14, "ignore_eos": True}
        run = engine.generate(prompt, draft=draft, gamma=4, candidates=3, **options)
        assert run.output.token_ids == plain(engine, prompt, **options).output.token_ids
        check_counts(run)
        behind = [step for step in run.steps if step.cache_before >= 64]
        assert behind
        for step in behind:
            assert not any(token.source and draft in token.source for token in step.tokens)
            assert step.gamma or "context of 64 tokens is full" in step.note
    assert any(step.gamma for step in run.steps)


@pytest.mark.parametrize("draft", ["none", *SPECULATIVE])
def test_nan_logits_raise_and_the_engine_stays_usable(draft):
    """The damage is in the weights' doing, so it is in the cache too; no later run, batch or tree may meet it."""
    engine = tiny_engine(draft_seed=1)
    expected = plain(engine, max_new_tokens=8).output.token_ids
    norm, calls = engine.target._model.model.layers[0].input_layernorm, [0]

    def damaged(module, args, result):
        calls[0] += 1
        return result * float("nan") if calls[0] > 5 else result

    hook = norm.register_forward_hook(damaged)
    decoding = engine.stream(PROMPT, draft=draft, max_new_tokens=60, ignore_eos=True)
    with pytest.raises(NumericsError, match="not finite"):
        list(decoding)
    assert decoding.run.output.finish_reason == "error"
    hook.remove()
    for run in engine.generate_batch([PROMPT, [5, 6, 7], PROMPT], draft="tree", max_new_tokens=8)[::2]:
        assert run.output.token_ids == expected
    assert engine.generate(PROMPT, draft="pool", max_new_tokens=8).output.token_ids == expected
    assert plain(engine, max_new_tokens=8).output.token_ids == expected


def test_nan_logits_of_the_draft_raise_too():
    engine = tiny_engine(draft_seed=1)
    norm = engine.draft_model._model.model.norm
    hook = norm.register_forward_hook(lambda module, args, result: result * float("nan"))
    for draft in ("model", "tree", "tree-dynamic", "pool"):
        with pytest.raises(NumericsError, match="not finite"):
            engine.generate(PROMPT, draft=draft, max_new_tokens=60)
    hook.remove()
    assert engine.generate(PROMPT, draft="tree").output.token_ids == plain(engine).output.token_ids


@pytest.mark.parametrize("draft", ["model", "layer_skip", "tree", "tree-dynamic", "pool"])
def test_cancelled_between_draft_and_verify_leaves_whole_steps_and_a_usable_engine(draft):
    engine = tiny_engine(draft_seed=1)
    asked, questions = [0], {"model": 7, "tree": 7, "tree-dynamic": 7, "layer_skip": 6, "pool": 7}

    def cancelled():
        asked[0] += 1
        return asked[0] > questions[draft]

    run = engine.generate(PROMPT, draft=draft, max_new_tokens=50, cancelled=cancelled)
    assert run.output.finish_reason == "cancelled"
    assert len(run.steps) == 2
    check_counts(run)
    expected = plain(engine, max_new_tokens=10).output.token_ids
    assert engine.generate(PROMPT, draft=draft, max_new_tokens=10).output.token_ids == expected


@pytest.mark.parametrize(("draft", "rule"), PAIRS)
def test_extremes_of_temperature_and_cuts(draft, rule):
    engine = tiny_engine(draft_seed=1)
    options = {"draft": draft, "verify": rule, "max_new_tokens": 4, "ignore_eos": True}
    greedy = plain(engine, max_new_tokens=4, ignore_eos=True).output
    for warp in ({"temperature": 1e-6}, {"temperature": 1.0, "top_p": 0}, {"temperature": 100.0, "top_k": 1}):
        assert engine.generate(PROMPT, **warp, **options).output == greedy
    check_counts(engine.generate(PROMPT, temperature=100.0, top_p=1, **options))


def test_cancelled_while_a_long_prompt_is_read(monkeypatch):
    monkeypatch.setattr("specviz.engine.model.PREFILL_ROWS", 8)
    engine, opened = tiny_engine(), []
    real = engine.target.open
    monkeypatch.setattr(engine.target, "open", lambda capacity: opened.append(real(capacity)) or opened[-1])
    asked = iter([False, False] + [True] * 100)
    run = engine.generate([5, 6, 7] * 30, cancelled=lambda: next(asked))
    assert (run.output.finish_reason, run.steps, opened[0].length) == ("cancelled", [], 16)


def test_closing_the_iterator_ends_the_run():
    decoding = tiny_engine().stream(PROMPT, draft="none")
    next(decoding)
    decoding.close()
    assert decoding.run.output.finish_reason == "cancelled"
    assert decoding.run.summary.steps == 1


def test_a_run_that_lost_its_engine_to_another_says_so():
    engine = tiny_engine()
    first = engine.stream(PROMPT, draft="none")
    next(first)
    engine.generate(PROMPT, max_new_tokens=3)
    with pytest.raises(SpecvizError, match="began another one"):
        next(first)


def test_a_stream_that_never_began_disturbs_no_other():
    engine = tiny_engine()
    expected = plain(engine, max_new_tokens=12).output.token_ids
    never = engine.stream([9] * 6, draft="none")
    current = engine.stream(PROMPT, draft="none", max_new_tokens=12)
    next(current)
    engine.stream([9] * 6, draft="none").close()
    list(current)
    assert current.run.output.token_ids == expected
    never.close()
    assert never.run.output.finish_reason == "cancelled"


def test_a_cancellation_that_is_taken_back_still_holds(monkeypatch):
    monkeypatch.setattr("specviz.engine.model.PREFILL_ROWS", 8)
    asked = iter([False, True] + [False] * 100)
    run = tiny_engine().generate([5, 6, 7] * 30, cancelled=lambda: next(asked))
    assert (run.output.finish_reason, run.steps) == ("cancelled", [])
