"""What the engine refuses before anything runs, what it makes of a prompt, and what importing it costs."""

import re
import subprocess
import sys

import pytest

from specviz.engine.engine import Engine
from specviz.engine.model import LanguageModel
from specviz.errors import SettingsError
from specviz.settings import DRAFTS
from tests.conftest import tiny_engine
from tests.tiny import VOCAB_SIZE, tiny_model, tiny_tokenizer


@pytest.mark.parametrize("prompt", ["", "  \n", []])
def test_an_empty_prompt_is_refused(prompt):
    with pytest.raises(SettingsError, match="prompt is empty"):
        tiny_engine().stream(prompt)


@pytest.mark.parametrize(
    ("prompt", "options", "sentence"),
    [
        ("x" * 4000, {}, "tokens long and llama reads at most 256"),
        ([5, 300], {}, "holds 300, which is not a token id"),
        (["a"], {}, "holds 'a'"),
        (7, {}, "must be a text or a list"),
        (b"bytes", {}, "must be a text or a list"),
        ("half \ud83d", {}, "half of a character"),
        ("hi", {"draft": "model"}, "No draft model was loaded"),
        ("hi", {"chat": True}, "has no chat template"),
        ("hi", {"eos_token_id": 300}, "300 is not a token id"),
        ("hi", {"top": 9}, "top must be a whole number from 0 to 8"),
    ],
)
def test_what_cannot_run_is_refused_at_once(prompt, options, sentence):
    with pytest.raises(SettingsError, match=sentence):
        tiny_engine().stream(prompt, **options)


def test_a_text_with_a_token_that_the_model_lacks_is_refused():
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<<<extra>>>"])
    engine = Engine(LanguageModel(tiny_model("llama"), "llama", VOCAB_SIZE), tokenizer)
    with pytest.raises(SettingsError, match="holds 300, which is not a token id"):
        engine.stream("say <<<extra>>> now")


def test_the_chat_template_is_used_when_there_is_one_unless_switched_off():
    target = LanguageModel(tiny_model("llama"), "llama", VOCAB_SIZE)
    engine = Engine(target, tiny_tokenizer(chat=True))
    with_template, without = engine.stream("hi").run, engine.stream("hi", chat=False).run
    assert "assistant" in engine.tokenizer.decode(with_template.prompt.token_ids)
    assert with_template.settings["chat"] is True
    assert engine.tokenizer.decode(without.prompt.token_ids) == "hi"


def test_every_draft_type_can_be_used_or_says_why_not():
    with_model, without = tiny_engine(draft_seed=1).drafts(), tiny_engine().drafts()
    assert set(with_model) == set(without) == set(DRAFTS)
    assert set(with_model.values()) == {None}
    assert without.pop("model") == "No draft model was loaded: name one with draft_model."
    assert set(without.values()) == {None}  # the target's own layers draft instead
    why = Engine(LanguageModel(tiny_model("llama"), "llama", VOCAB_SIZE), tiny_tokenizer(), None, "It was not found.")
    assert why.drafts()["model"] == "It was not found."


@pytest.mark.parametrize("draft", DRAFTS)
def test_what_is_available_runs_and_the_rest_is_refused_with_the_same_sentence(draft):
    for engine in (tiny_engine(), tiny_engine("gpt_neo", draft_seed=1), tiny_engine("llama", layers=1)):
        reason = engine.drafts()[draft]
        if reason is None:
            assert len(engine.generate("hi", draft=draft, max_new_tokens=5, ignore_eos=True).output.token_ids) == 5
        else:
            with pytest.raises(SettingsError, match=re.escape(f"Draft type {draft!r} cannot be used: {reason}")):
                engine.stream("hi", draft=draft)


def test_memory_can_be_claimed_from_anywhere():
    engine = tiny_engine(draft_seed=1)
    is_current = engine.claim(10)
    engine.generate("hi", draft="model", max_new_tokens=3)
    assert not is_current()
    assert engine.claim(400, 3)()


def test_importing_the_package_imports_neither_gradio_nor_torch():
    code = "import specviz, sys; print([m for m in ('gradio', 'torch', 'plotly') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
