"""The bundled model, in float32: every draft type writes what plain decoding writes, and traces are whole."""

import subprocess
import sys

import pytest
import torch

from specviz.trace import Run
from tests.app import ROOT

pytestmark = pytest.mark.real_model

PROMPTS = [
    "What is a prime number?",
    "Write a haiku about rain.",
    "Name three uses of vinegar.",
    "How does a bicycle stay upright?",
    "Translate 'good morning' into French, Spanish and Italian.",
    "Count from one to fifteen in words.",
    "def fibonacci(n):",
    "Give me a recipe for pancakes.",
    "Who wrote Don Quixote, and when?",
    "List the planets and one fact about each.",
    "Explain gravity to a child.",
    "Write a SQL query that counts the rows of the table orders.",
    "Reply with the same sentence ten times: the cat sat on the mat.",
    "What is the difference between TCP and UDP?",
    "Write an email that asks for a day off.",
    "Turn into a list: apples, pears, plums, apples, pears, plums, apples, pears.",
    "日本の首都はどこですか。",
    "Tell me a joke with 👩‍🚀 in it.",
    "Compute 12 * 13 step by step.",
    "Write the HTML of a page with two headings and two paragraphs.",
]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_both_ngram_modes_write_what_plain_decoding_writes(real_engine, prompt):
    """Side by side in one batch, which is quicker than one by one."""
    drafts = [{"draft": draft} for draft in ("none", "ngram", "ngram-smoothed")]
    plain, *runs = real_engine.generate_batch([prompt] * 3, drafts, temperature=0.0, max_new_tokens=64, gamma=4)
    for run in runs:
        assert run.output == plain.output
        assert Run.from_json(run.to_json()) == run


def test_a_chat_ends_with_its_end_of_turn_id_and_no_text_for_it(real_engine):
    run = real_engine.generate("Answer with one word: what is the capital of France?", max_new_tokens=60)
    assert run.output.finish_reason == "eos"
    assert run.steps[-1].emitted[-1].text == ""
    assert run.output.token_ids[-1] in run.settings["eos_token_id"]
    assert run.output.text == real_engine.text(run.output.token_ids)


def test_emoji_and_cjk_come_out_whole(real_engine):
    run = real_engine.generate("Repeat: 👩‍🚀 日本語 é", max_new_tokens=40, top=8)
    assert "".join(token.text for step in run.steps for token in step.emitted) == run.output.text
    shown = "".join(token.text for step in run.steps for token in step.tokens)
    assert "\ufffd" not in shown or "\ufffd" in run.output.text


def test_drafts_that_run_on_the_target_itself_write_what_plain_decoding_writes(real_engine):
    """Side by side in one batch, which is quicker than one by one."""
    options = {"temperature": 0.0, "max_new_tokens": 12, "gamma": 3, "exit_layer": 8}
    plain = real_engine.generate(PROMPTS[15], draft="none", **options)
    drafts = [
        {"draft": draft}
        for draft in (
            "layer_skip", "hybrid", "tree", "tree-dynamic", "pool",
            "model", "eagle", "eagle-tree", "medusa", "feedforward",
        )
    ]  # fmt: skip
    for run in real_engine.generate_batch([PROMPTS[15]] * len(drafts), drafts, **options):
        assert run.output == plain.output


def test_coupled_runs_write_what_coupled_plain_decoding_writes(real_engine):
    options = {"temperature": 0.8, "top_p": 0.95, "seed": 3, "verify": "coupled", "max_new_tokens": 16}
    plain = real_engine.generate(PROMPTS[12], draft="none", **options)
    for draft in ("ngram", "ngram-smoothed", "pool", "eagle"):
        assert real_engine.generate(PROMPTS[12], draft=draft, **options).output == plain.output


def test_the_model_as_its_own_draft_is_accepted_whole(real_engine):
    real_engine.draft_model = real_engine.target.twin()
    try:
        run = real_engine.generate("Explain rain.", draft="model", gamma=5, max_new_tokens=60, ignore_eos=True)
    finally:
        real_engine.draft_model = None
    assert run.summary.acceptance_rate.value == 1
    assert all(step.accepted == 5 for step in run.steps)


def test_the_fast_path_writes_what_transformers_writes(real_engine):
    """float32 to the letter; the model's own 4-bit weights nearly so."""
    import specviz

    reference = specviz.load(dtype="float32", device="cpu", path="transformers")
    options = {"draft": "none", "max_new_tokens": 24}
    assert (real_engine.target.path, reference.target.path) == ("fast-cpu", "transformers")
    expected = reference.generate("Explain what a hash table is.", **options).output.token_ids
    assert real_engine.generate("Explain what a hash table is.", **options).output.token_ids == expected
    int4 = specviz.load(dtype="int4", device="cpu")
    ids = reference.encode("Explain what a hash table is.", chat=True) + expected
    logits = []
    with torch.inference_mode():
        for engine in (reference, int4):
            engine.claim(len(ids))
            logits.append(engine.target.open(len(ids)).forward(ids).float())
    assert (logits[1] - logits[0]).norm() / logits[0].norm() < 0.03
    assert (logits[0].argmax(-1) == logits[1].argmax(-1)).float().mean() > 0.9


#: What a process needs beside weights and cache, once libraries are imported: tokenizer and heads, what the libraries
#: allocate at the first pass, scratch memory of a prefill pass, and logits and distributions. README states it.
BESIDES = 384 * 2**20
MEMORY = """
import os, psutil, torch, specviz, specviz.engine.engine, specviz.drafters
from specviz.zoo.convert import import_libraries
import_libraries()
rss = lambda: psutil.Process().memory_info().rss
before = rss()
engine = specviz.load(dtype="bfloat16", device="cpu")
loaded = rss()
engine.generate(list(range(300, 1800)), draft="eagle", gamma=4, max_new_tokens=40, ignore_eos=True, trace=False)
print(loaded - before, rss() - before, engine.target.weight_bytes, engine.target.store.bytes)
"""


def test_memory_is_weights_and_cache_and_a_bound_that_is_stated():
    ran = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded, run, weights, cache = map(int, ran.stdout.split())
    assert 2**20 * 40 < cache < 2**20 * 60  # bfloat16 keys and values, and the float32 features that the head reads
    assert loaded < weights + BESIDES
    assert run < weights + cache + BESIDES


def test_the_trained_head_fits_and_drafts_better_than_nothing(real_engine):
    assert real_engine.drafts()["eagle"] is None
    assert real_engine.heads["eagle"].warning is None
    options = {"max_new_tokens": 48, "gamma": 3, "candidates": 3}
    for draft, least in (("eagle", 1.3), ("eagle-tree", 1.5)):
        run = real_engine.generate("Explain how rain is made.", draft=draft, **options)
        assert run.summary.tokens_per_step > least
        assert run.output == real_engine.generate("Explain how rain is made.", draft="none", **options).output
