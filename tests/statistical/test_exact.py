"""Losslessness, exactly: with every draw and acceptance enumerated, what rules and drafters write has the target's law.

The whole matrix of draft types, rules, temperatures and truncations, against a law worked out by the book.
"""

from __future__ import annotations

import functools

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specviz.drafters.distilled import distilled
from specviz.drafters.shapes import ModelShape
from specviz.engine.engine import Engine
from specviz.engine.model import LanguageModel
from specviz.engine.verify import accepts, rejection
from specviz.lab.exact import output_law, target_law, total_variation
from specviz.lab.mistakes import MISTAKES
from specviz.lab.proof import EXACT, PROMPT, check, make_engine
from specviz.lab.table import LetterTokenizer, TableModel, random_heads, random_weights, table_engine
from specviz.settings import DRAFTS, RULES, TREES, Settings
from tests.statistical import book

LENGTH = 3
TRUNCATIONS = {
    "none": {},
    "top-k": {"top_k": 2},
    "top-p": {"top_p": 0.8},
    "both": {"top_k": 3, "top_p": 0.7},
}
PAIRS = [(draft, rule) for rule in RULES for draft in DRAFTS if rule != "block" or draft not in TREES]


@functools.cache
def tables(vocabulary: int):
    return table_engine(*(TableModel.random(vocabulary, seed, 1.5, torch.float64) for seed in (1, 2)))


def difference(draft: str, rule: str, vocabulary: int = 4, length: int = LENGTH, gamma: int = 2, **warp) -> float:
    engine, prompt = tables(vocabulary), [1, 2, 0, 1, 2]
    gamma = {} if draft == "none" else {"gamma": gamma}
    own = output_law(engine, Settings.of(draft=draft, verify=rule, **gamma, **warp), prompt, length)
    settings = {name: value for name, value in warp.items() if name != "candidates"}
    return total_variation(own, book.law(engine.target, prompt, length, **settings))


@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 1.5])
@pytest.mark.parametrize(("draft", "rule"), PAIRS)
def test_the_law_is_the_targets(draft, rule, temperature, truncation):
    size = {"vocabulary": 3, "length": 3} if draft in TREES else {"vocabulary": 4, "length": 4}
    assert difference(draft, rule, temperature=temperature, **size, **TRUNCATIONS[truncation]) < EXACT


@pytest.mark.parametrize(("draft", "rule"), PAIRS)
def test_the_law_is_the_targets_under_penalties_bias_and_min_p(draft, rule):
    warp = {"repetition_penalty": 1.4, "frequency_penalty": 0.5, "logit_bias": {1: 0.7}, "min_p": 0.1}
    assert difference(draft, rule, 3, temperature=0.9, **warp) < EXACT


@pytest.mark.parametrize("rule", ["rejection", "coupled"])
@pytest.mark.parametrize(
    ("draft", "candidates"), [("pool", 1), ("pool", 3), ("tree", 1), ("tree", 3), ("tree-dynamic", 3)]
)
def test_more_candidates_keep_the_law(draft, rule, candidates):
    assert difference(draft, rule, 3, 3, 1 if candidates == 3 else 2, temperature=1.0, candidates=candidates) < EXACT


@pytest.mark.parametrize(("draft", "rule"), PAIRS)
def test_stopping_a_draft_by_confidence_keeps_the_law(draft, rule):
    assert difference(draft, rule, 3, temperature=1.0, min_confidence=0.5) < EXACT


#: Draft types that draft with something trained, where no draft model was named.
TRAINED = ("eagle", "eagle-tree", "medusa", "feedforward", "model", "hybrid", "tree", "tree-dynamic", "pool")


@functools.cache
def llama_with_heads():
    """A real transformer, heads that read its hidden states and a distilled model, all random, in float64."""
    config = LlamaConfig(
        vocab_size=4, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, initializer_range=0.5, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    target = LanguageModel(LlamaForCausalLM(config).double().eval().requires_grad_(False), "llama", 4)
    shape = ModelShape(16, 2, 1, 8, 16, 1, (1, 2))
    model = distilled(target, random_weights(shape), shape, torch.arange(3))
    return Engine(target, LetterTokenizer(), heads={**random_heads(target, 16, (1, 2)), "model": model})


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("draft", "rule"), [pair for pair in PAIRS if pair[0] in TRAINED])
def test_trained_drafts_beside_a_transformer_keep_its_law(draft, rule, temperature):
    engine, prompt = llama_with_heads(), [1, 2, 0]
    engine.claim(16)
    gamma = 1 if draft in ("tree", "pool") else 2  # trees that draw have many branches
    settings = Settings.of(draft=draft, verify=rule, gamma=gamma, temperature=temperature, top_p=0.95)
    own = output_law(engine, settings, prompt, gamma + 1)
    assert len(own) > (1 if temperature else 0)
    assert total_variation(own, target_law(engine, settings, prompt, gamma + 1)) < EXACT


def test_the_engines_own_warp_gives_the_law_of_the_book():
    engine, warp = tables(4), {"temperature": 0.7, "top_k": 3, "top_p": 0.9}
    own = target_law(engine, Settings.of(**warp), [1, 2, 0], 3)
    assert total_variation(own, book.law(engine.target, [1, 2, 0], 3, **warp)) < EXACT


@pytest.mark.parametrize("name", [name for name in MISTAKES if name != "reseed"])
def test_every_mistake_bends_the_exact_law_in_every_combination_it_is_offered_for(name):
    for draft in MISTAKES[name].drafts:
        for rule in MISTAKES[name].rules:
            if rule == "block" and draft in TREES:
                continue
            settings, engine = check(draft, rule, name), make_engine(name, torch.float64)
            bent = total_variation(output_law(engine, settings, PROMPT, 3), target_law(engine, settings, PROMPT, 3))
            assert bent > 0.01, (draft, rule)


def test_the_strict_test_stays_exact_where_u_is_forced_to_zero_at_p_zero():
    engine, settings = make_engine(None, torch.float64), check("model", "rejection", None)
    strict = functools.partial(rejection, accepts=lambda p, q, u: accepts(p, q, u if p else 5e-324))
    engine.rules["rejection"] = strict
    assert total_variation(output_law(engine, settings, PROMPT, 4), target_law(engine, settings, PROMPT, 4)) < EXACT
