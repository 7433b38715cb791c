"""The loop, on the situations that broke published engines: same ids as plain decoding, and counts that reconcile."""

import time

import pytest
import torch

from specviz.engine.engine import Engine
from specviz.engine.model import LanguageModel
from specviz.engine.text import REPLACEMENT
from specviz.errors import SettingsError
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
        expected = plain(engine, numbered(length), max_new_tokens=14).output.token_ids
        run = engine.generate(numbered(length), draft=draft, gamma=4, max_new_tokens=14)
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
    options = {"draft": draft, "gamma": 4, "temperature": 1.0, "seed": 3, "max_new_tokens": 10}
    first = engine.generate(PROMPT, **options)
    engine.generate("something else entirely " * 4, draft="pool", gamma=8, max_new_tokens=8)
    engine.generate(PROMPT, **{**options, "gamma": 2})
    assert comparable(engine.generate(PROMPT, **options)) == comparable(first)


@pytest.mark.parametrize("draft", ["none", *SPECULATIVE])
@pytest.mark.parametrize(("temperature", "rule"), [(0.0, "rejection"), (0.9, "rejection"), (0.9, "coupled")])
def test_tracing_changes_no_id(draft, temperature, rule):
    engine = tiny_engine(draft_seed=1)
    options = {"draft": draft, "temperature": temperature, "verify": rule, "seed": 42, "max_new_tokens": 6}
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


def test_acceptance_is_exactly_one_and_exactly_zero():
    always = table_engine(cycle()).generate([0, 1, 2, 0, 1, 2, 0], draft="ngram", max_new_tokens=40)
    assert always.summary.acceptance_rate.value == 1
    flip = TableModel(cycle().logits.roll(1, -1))  # never what the text did before
    never = Engine(flip, table_engine(flip).tokenizer, cycle()).generate([0, 1, 2], draft="model", max_new_tokens=40)
    assert never.summary.acceptance_rate.value == 0
