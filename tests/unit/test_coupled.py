"""Coupled runs, whatever drafts: the ids of plain decoding at every temperature, under every warp."""

import pytest

from tests.conftest import tiny_engine
from tests.unit.checks import PROMPT, SPECULATIVE, check_counts

OPTIONS = {"verify": "coupled", "gamma": 4, "candidates": 3, "max_new_tokens": 20, "ignore_eos": True}


@pytest.fixture(scope="module")
def engine():
    return tiny_engine(draft_seed=1, std=0.15)


@pytest.mark.parametrize("draft", SPECULATIVE)
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_ids_are_those_of_plain_decoding_at_every_temperature(engine, draft, temperature):
    texts = set()
    for seed in (0, 1, 42):
        options = {**OPTIONS, "temperature": temperature, "seed": seed}
        run = engine.generate(PROMPT, draft=draft, **options)
        assert run.output.token_ids == engine.generate(PROMPT, draft="none", **options).output.token_ids
        check_counts(run)
        texts.add(run.output.text)
    assert len(texts) == 3


@pytest.mark.parametrize("draft", SPECULATIVE)
def test_ids_are_those_of_plain_decoding_under_every_cut_and_penalty(engine, draft):
    warp = {"top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.3, "frequency_penalty": 0.2}
    options = {**OPTIONS, **warp, "temperature": 0.9, "seed": 5, "logit_bias": {40: 1.0}}
    run = engine.generate(PROMPT, draft=draft, **options)
    assert run.output.token_ids == engine.generate(PROMPT, draft="none", **options).output.token_ids
    assert run.output.token_ids != engine.generate(PROMPT, draft=draft, **{**options, "seed": 6}).output.token_ids


def test_a_draft_equal_to_the_target_always_agrees():
    engine = tiny_engine(draft_seed=0)
    run = engine.generate(PROMPT, draft="model", temperature=1.2, **{**OPTIONS, "max_new_tokens": 60})
    assert run.summary.acceptance_rate.value == 1
    assert all(token.accept_prob == pytest.approx(1, abs=1e-4) for s in run.steps for token in s.tokens[: s.gamma])
