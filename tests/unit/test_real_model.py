"""The bundled model, in float32: every draft type writes what plain decoding writes, and traces are whole."""

import pytest

from specviz.engine.model import LanguageModel
from specviz.trace import Run

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
    options = {"temperature": 0.0, "max_new_tokens": 64}
    plain = real_engine.generate(prompt, draft="none", **options)
    for draft in ("ngram", "ngram-smoothed"):
        run = real_engine.generate(prompt, draft=draft, gamma=4, **options)
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
    drafts = [{"draft": draft} for draft in ("layer_skip", "hybrid", "tree", "tree-dynamic", "pool")]
    for run in real_engine.generate_batch([PROMPTS[15]] * len(drafts), drafts, **options):
        assert run.output == plain.output


def test_coupled_runs_write_what_coupled_plain_decoding_writes(real_engine):
    options = {"temperature": 0.8, "top_p": 0.95, "seed": 3, "verify": "coupled", "max_new_tokens": 16}
    plain = real_engine.generate(PROMPTS[12], draft="none", **options)
    for draft in ("ngram", "ngram-smoothed", "pool"):
        assert real_engine.generate(PROMPTS[12], draft=draft, **options).output == plain.output


def test_the_model_as_its_own_draft_is_accepted_whole(real_engine):
    target = real_engine.target
    real_engine.draft_model = LanguageModel(target._model, target.name, target.vocab_size)
    try:
        run = real_engine.generate("Explain rain.", draft="model", gamma=5, max_new_tokens=60, ignore_eos=True)
    finally:
        real_engine.draft_model = None
    assert run.summary.acceptance_rate.value == 1
    assert all(step.accepted == 5 for step in run.steps)
