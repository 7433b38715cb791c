"""The loop, on the situations that broke published engines: same ids as plain decoding, and counts that reconcile."""

import time

import pytest
import torch

from specviz.engine.engine import Engine
from specviz.engine.model import LanguageModel
from specviz.engine.text import REPLACEMENT
from specviz.errors import NumericsError, SettingsError, SpecvizError
from specviz.lab.table import TableModel, table_engine
from specviz.settings import TREES
from tests.conftest import tiny_engine
from tests.tiny import ARCHITECTURES, VOCAB_SIZE, tiny_model, tiny_tokenizer
from tests.unit.checks import (
    PAIRS,
    PROMPT,
    SPECULATIVE,
    check_counts,
    comparable,
    cycle,
    numbered,
    plain,
)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("draft", SPECULATIVE)
def test_greedy_ids_are_those_of_plain_decoding(architecture, draft):
    engine = tiny_engine(architecture, draft_seed=1)
    if architecture == "gpt_neo" and draft in TREES:
        with pytest.raises(SettingsError, match="Trees cannot be verified: gpt_neo has layers of local attention"):
            engine.stream(PROMPT, draft=draft)
        return
    for length in (1, 200):
        expected = plain(engine, numbered(length), max_new_tokens=20).output.token_ids
        run = engine.generate(numbered(length), draft=draft, gamma=4, max_new_tokens=20)
        assert run.output.token_ids == expected
        check_counts(run)


@pytest.mark.parametrize(("draft", "rule"), PAIRS)
def test_counts_reconcile_at_temperature_one_and_under_every_rule(draft, rule):
    engine = tiny_engine(draft_seed=1, std=0.2)  # flatter: more is accepted
    for seed in range(2):
        options = {"temperature": 1.0, "top_k": 3, "seed": seed, "max_new_tokens": 16}
        run = engine.generate(PROMPT, draft=draft, verify=rule, gamma=4, candidates=3, **options)
        check_counts(run)
        assert any(token.fate == "rejected" for step in run.steps for token in step.tokens)


@pytest.mark.parametrize(("draft", "rule"), PAIRS)
def test_greedy_ids_are_the_same_under_every_rule(draft, rule):
    engine = tiny_engine(draft_seed=1)
    run = engine.generate(PROMPT, draft=draft, verify=rule, gamma=3, max_new_tokens=12)
    assert run.output.token_ids == plain(engine, max_new_tokens=12).output.token_ids
    check_counts(run)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_plain_decoding_is_what_the_model_says_without_a_cache(architecture):
    engine = tiny_engine(architecture)
    ids = engine.encode(PROMPT, chat=False)
    model = tiny_model(architecture)
    for token in plain(engine, max_new_tokens=20, ignore_eos=True).output.token_ids:
        assert token == int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
        ids.append(token)


def test_draft_equal_to_target_is_accepted_whole_in_every_step():
    engine = tiny_engine("llama", draft_seed=0, max_positions=640)
    engine.draft_model.max_positions = 640
    opened = []
    real = engine.draft_model.open
    engine.draft_model.open = lambda capacity: opened.append(real(capacity)) or opened[-1]
    decoding = engine.stream(PROMPT, draft="model", gamma=5, max_new_tokens=500, ignore_eos=True)
    for step in decoding:
        (cache,) = opened
        # One short of the context as the step found it and of what it drafted: the last drafted token is not fed.
        assert cache.length == step.cache_before + step.gamma
        if decoding.run.output.finish_reason is None:
            assert step.accepted == step.gamma == 5
    assert len(decoding.run.output.token_ids) == 500
    assert decoding.run.summary.acceptance_rate.value == 1


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


@pytest.mark.parametrize("stop", ["ca", "bcab"])
def test_a_stop_text_inside_an_accepted_block_or_over_two_steps(stop):
    engine = table_engine(cycle())
    for gamma in range(1, 8):
        run = engine.generate([0, 1, 2, 0, 1, 2, 0], draft="ngram", gamma=gamma, stop=stop)
        assert run.output.text.endswith(stop)
        assert run.output.text.count(stop) == 1
        assert run.output.finish_reason == "stop"
        assert run.output.token_ids == plain(engine, [0, 1, 2, 0, 1, 2, 0], stop=stop).output.token_ids
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
    long = engine.generate(PROMPT, max_new_tokens=14, **options).output.token_ids
    for limit in (1, 2, 7):
        assert engine.generate(PROMPT, max_new_tokens=limit, **options).output.token_ids == long[:limit]


@pytest.mark.parametrize("draft", SPECULATIVE)
def test_the_context_limit_is_never_passed(draft):
    engine = tiny_engine("gpt2", max_positions=64, draft_seed=1)  # which has a table of positions: one more is an error
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


@pytest.mark.parametrize(("target_padding", "draft_padding"), [(12, 0), (0, 12), (5, 9)])
def test_vocabularies_padded_differently(target_padding, draft_padding):
    draft = LanguageModel(tiny_model("llama", seed=1, vocab_padding=draft_padding), "draft", VOCAB_SIZE - 40)
    target = LanguageModel(tiny_model("llama", vocab_padding=target_padding), "target", VOCAB_SIZE - 40)
    engine = Engine(target, tiny_tokenizer(), draft)
    for draft in ("model", "tree", "pool"):
        options = {"max_new_tokens": 16, "ignore_eos": True}
        run = engine.generate([5, 6, 7], draft=draft, temperature=1.5, **options)
        assert all(token.id < VOCAB_SIZE - 40 for step in run.steps for token in step.tokens)
        run = engine.generate([5, 6, 7], draft=draft, **options)
        assert all(token.id < VOCAB_SIZE - 40 for step in run.steps for token in step.tokens)
        assert run.output.token_ids == plain(engine, [5, 6, 7], **options).output.token_ids


@pytest.mark.parametrize("draft", SPECULATIVE)
def test_penalties_see_the_tokens_before_each_drafted_position(draft):
    engine = tiny_engine(draft_seed=0)
    options = {"max_new_tokens": 24, "repetition_penalty": 1.3, "frequency_penalty": 0.4, "ignore_eos": True}
    run = engine.generate(PROMPT, draft=draft, gamma=4, candidates=3, **options)
    assert run.output.token_ids == plain(engine, **options).output.token_ids
    assert run.output.token_ids != plain(engine, max_new_tokens=24, ignore_eos=True).output.token_ids
    if draft in ("model", "tree", "tree-dynamic"):  # the same model under the same penalties: nothing can be refused
        assert all(step.accepted >= (4 if draft == "model" else 1) for step in run.steps[:-1])
        assert run.summary.acceptance_rate.value > (0.6 if draft != "model" else 1 - 1e-9)


@pytest.mark.parametrize("draft", SPECULATIVE)
def test_a_run_knows_nothing_of_the_one_before(draft):
    engine = tiny_engine(draft_seed=1)
    options = {"draft": draft, "gamma": 4, "temperature": 1.0, "seed": 3, "max_new_tokens": 14}
    first = engine.generate(PROMPT, **options)
    engine.generate("something else entirely " * 4, draft="pool", gamma=8, max_new_tokens=8)
    engine.generate(PROMPT, **{**options, "gamma": 2})
    assert comparable(engine.generate(PROMPT, **options)) == comparable(first)


@pytest.mark.parametrize("draft", ["none", *SPECULATIVE])
@pytest.mark.parametrize(("temperature", "rule"), [(0.0, "rejection"), (0.9, "rejection"), (0.9, "coupled")])
def test_tracing_changes_no_id(draft, temperature, rule):
    engine = tiny_engine(draft_seed=1)
    options = {"draft": draft, "temperature": temperature, "verify": rule, "seed": 42, "max_new_tokens": 9}
    ids = [
        engine.generate(PROMPT, trace=t, top=k, **options).output.token_ids
        for t, k in ((True, 8), (True, 0), (False, 0))
    ]
    assert ids[0] == ids[1] == ids[2]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("draft", ["model", "tree"])
def test_the_best_tokens_are_those_of_the_models_without_a_cache(draft, temperature):
    """`top_p`, `top_q` and `confidence`, against forward passes over the whole path."""
    engine = tiny_engine(draft_seed=1)
    run = engine.generate(PROMPT, draft=draft, gamma=3, temperature=temperature, seed=2, max_new_tokens=16, top=8)
    context = list(run.prompt.token_ids)
    for step in run.steps:
        paths: list[list[int]] = []  # the ids before each token
        untried = {}
        for i, token in enumerate(step.tokens):
            above = token.parent
            paths.append([] if above == -1 else [*paths[above], step.tokens[above].id])
            ids = torch.tensor([[*context, *paths[i]]])
            p, q = (m._model(input_ids=ids).logits[0, -1] for m in (engine.target, engine.draft_model))
            check_rows(token.top_p, p, temperature)
            if i == step.gamma:
                continue
            # Raw rows of one-hot proposals are not listed; siblings are drawn without replacement.
            if token.top_q is not None and untried.setdefault(above, i) == i:
                check_rows(token.top_q, q, temperature)
            softmax = q.softmax(-1)
            assert token.confidence == pytest.approx(float(softmax[token.id]), rel=1e-3)
            if temperature:
                assert token.p == pytest.approx(float((p / temperature).softmax(-1)[token.id]), rel=1e-3, abs=1e-6)
        context += [token.id for token in step.emitted]


def check_rows(rows, logits, temperature):
    assert rows[0][0] == int(logits.argmax())
    raw = logits.softmax(-1)
    warped = (logits / temperature).softmax(-1) if temperature else (raw == raw.max()).float()
    for token, _, prob, raw_prob in rows:
        assert raw_prob == pytest.approx(float(raw[token]), rel=1e-3)
        assert prob == pytest.approx(float(warped[token]), rel=1e-3)


def test_times_belong_to_what_took_them(monkeypatch):
    """Slow parts, made slow on purpose, appear where they happened and nowhere else; prefill is apart."""
    engine = tiny_engine(draft_seed=1)

    def slow(model, name, seconds):
        real = getattr(model, name)
        monkeypatch.setattr(model, name, lambda *args: time.sleep(seconds) or real(*args))

    slow(engine.target, "prefill", 0.05)
    slow(engine.draft_model, "prefill", 0.03)
    slow(engine.target, "run", 0.02)
    slow(engine.draft_model, "run", 0.01)
    run = engine.generate(PROMPT, draft="model", gamma=2, max_new_tokens=4, ignore_eos=True)
    assert run.prefill.target_s >= 0.05
    assert run.prefill.draft_s >= 0.03
    assert run.steps[0].t_start < 0.05
    for step in run.steps:
        assert step.draft_s >= 0.02
        assert step.verify_s >= 0.02
        assert step.host_s < 0.02


def test_another_seed_gives_another_text():
    engine = tiny_engine()
    runs = {tuple(plain(engine, temperature=1.0, seed=seed, max_new_tokens=10).output.token_ids) for seed in range(5)}
    assert len(runs) == 5


@pytest.mark.parametrize("draft", SPECULATIVE)
def test_emoji_and_cjk_are_never_shown_broken(draft):
    engine = tiny_engine(draft_seed=1)
    for seed in range(3):
        run = engine.generate("👩‍🚀 日本語 é", draft=draft, temperature=1.5, seed=seed, max_new_tokens=16, stop=["zz"])
        check_counts(run)
        assert run.output.text == engine.text(run.output.token_ids)
        shown = "".join(token.text for step in run.steps for token in step.tokens)
        assert shown.count(REPLACEMENT) == 0 or REPLACEMENT in run.output.text


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


def test_acceptance_is_exactly_one_and_exactly_zero():
    always = table_engine(cycle()).generate([0, 1, 2, 0, 1, 2, 0], draft="ngram", max_new_tokens=40)
    assert always.summary.acceptance_rate.value == 1
    flip = TableModel(cycle().logits.roll(1, -1))  # never what the text did before
    never = Engine(flip, table_engine(flip).tokenizer, cycle()).generate([0, 1, 2], draft="model", max_new_tokens=40)
    assert never.summary.acceptance_rate.value == 0


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
