"""A peer as oracle: the library's own greedy, assisted and prompt-lookup generation write the ids that ours writes."""

import pytest
import torch

from tests.conftest import tiny_engine
from tests.tiny import tiny_model

TOKENS = 16
WORDS = ["the", "target", "checks", "what", "a", "draft", "proposes", "and", "says", "which", "token", "comes", "next"]
PROMPTS = [" ".join(WORDS[(7 * i + j * j) % len(WORDS)] for j in range(2 + i % 9)) for i in range(15)] + [
    "a b c a b c a b",
    "one two one two one two one",
    "日本の首都は 👩‍🚀",
    "the draft the draft the draft",
    "x",
]


@pytest.fixture(scope="module")
def engine():
    return tiny_engine(draft_seed=1, std=0.25)


@pytest.fixture(scope="module")
def models():
    return tiny_model("llama", std=0.25), tiny_model("llama", seed=1, std=0.25)


def written(model, ids, **options) -> list[int]:
    """What transformers writes behind `ids`."""
    given = {"do_sample": False, "max_new_tokens": TOKENS, "pad_token_id": 0, "attention_mask": torch.ones(1, len(ids))}
    return model.generate(torch.tensor([ids]), **given, **options)[0, len(ids) :].tolist()


def test_there_are_twenty_prompts():
    assert len(set(PROMPTS)) == 20


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_ids_are_those_of_transformers_own_speculative_decoding(engine, models, prompt):
    target, draft = models
    ids = engine.encode(prompt, chat=False)
    expected = written(target, ids)
    assert written(target, ids, assistant_model=draft) == expected
    assert written(target, ids, prompt_lookup_num_tokens=3) == expected
    for own in ("none", "ngram", "model"):
        run = engine.generate(prompt, draft=own, gamma=4, max_new_tokens=TOKENS)
        assert run.output.token_ids == expected
