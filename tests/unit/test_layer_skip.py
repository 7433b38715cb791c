"""The target's first layers draft for all of it, in the target's own memory: no second cache, no second weights."""

import gc

import pytest
import torch

from specviz.engine.cache import Store
from specviz.errors import ModelError, SettingsError
from tests.conftest import tiny_engine
from tests.tiny import ARCHITECTURES, tiny_model
from tests.unit.checks import PROMPT, check_counts, numbered, plain


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("layers", [1, 3])
def test_ids_are_those_of_plain_decoding(architecture, layers):
    engine = tiny_engine(architecture, layers=4)
    for length in (1, 60):
        options = {"max_new_tokens": 16, "ignore_eos": True}
        run = engine.generate(numbered(length), draft="layer_skip", exit_layer=layers, **options)
        assert run.output.token_ids == plain(engine, numbered(length), **options).output.token_ids
        check_counts(run)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_drafts_are_what_the_first_layers_say(architecture):
    engine = tiny_engine(architecture, layers=4, std=0.2)
    run = engine.generate(PROMPT, draft="layer_skip", gamma=3, max_new_tokens=12, temperature=1.0)
    assert run.draft.name == f"the first 2 of the 4 layers of {architecture}"
    context = list(run.prompt.token_ids)
    shallow = engine.target.exit(2)._model
    for step in run.steps:
        drafted = [token.id for token in step.tokens[: step.gamma]]
        probs = shallow(input_ids=torch.tensor([[*context, *drafted]])).logits[0].softmax(-1)
        for i, token in enumerate(step.tokens[: step.gamma]):
            assert token.q == pytest.approx(float(probs[len(context) - 1 + i, token.id]), rel=1e-3)
        context += [token.id for token in step.emitted]


def test_an_exit_that_says_what_the_target_says_is_accepted_whole():
    engine = tiny_engine("llama", layers=3)
    for layer in engine.target._model.model.layers[1:]:  # the others add nothing
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    run = engine.generate(PROMPT, draft="layer_skip", exit_layer=1, gamma=5, max_new_tokens=60, ignore_eos=True)
    assert run.summary.acceptance_rate.value == 1
    assert all(step.accepted == 5 for step in run.steps[:-1])


def test_there_is_no_second_cache_and_there_are_no_second_weights():
    def stores():
        gc.collect()
        return sum(type(thing) is Store for thing in gc.get_objects())

    before = stores()
    engine = tiny_engine("llama", layers=4)
    assert stores() == before + 1
    for draft in ("layer_skip", "tree", "pool"):
        engine.generate(PROMPT, draft=draft, max_new_tokens=12)
    assert stores() == before + 1
    exit_ = engine.target.exit(2)
    assert exit_.store is engine.target.store
    assert all(a is b for a, b in zip(exit_._memory.layers, engine.target._memory.layers, strict=False))
    assert engine.target.store.slots == 1
    assert len(exit_._memory.layers) == 2
    weights = {tensor.data_ptr() for tensor in engine.target._model.parameters()}
    assert {tensor.data_ptr() for tensor in exit_._model.parameters()} < weights
    assert engine.target.params == sum(tensor.numel() for tensor in tiny_model("llama", layers=4).parameters())


def test_the_context_is_read_by_the_target_and_never_again(monkeypatch):
    engine = tiny_engine("llama", layers=4)
    exit_, rows = engine.target.exit(2), []
    real = exit_.run
    monkeypatch.setattr(exit_, "run", lambda passes: rows.extend(len(one.ids) for one in passes) or real(passes))
    run = engine.generate(numbered(60), draft="layer_skip", gamma=3, max_new_tokens=20, ignore_eos=True)
    assert set(rows) == {1}
    assert len(rows) == sum(step.gamma for step in run.steps)


@pytest.mark.parametrize("draft", ["tree", "tree-dynamic", "pool"])
def test_trees_and_chains_take_turns_in_the_shared_memory(draft):
    """Without a draft model trees are drafted with the target's memory too."""
    engine = tiny_engine("llama", layers=3, std=0.3)
    expected = plain(engine, max_new_tokens=40, ignore_eos=True).output.token_ids
    options = {"gamma": 4, "candidates": 3, "exit_layer": 2, "max_new_tokens": 40, "ignore_eos": True}
    decoding = engine.stream(PROMPT, draft=draft, **options)
    for i, _ in enumerate(decoding):
        decoding.swap("layer_skip" if i % 2 == 0 else draft)
    assert decoding.run.output.token_ids == expected
    check_counts(decoding.run)
    assert engine.generate(PROMPT, draft=draft, **options).output.token_ids == expected
    pair = engine.generate_batch([PROMPT, "another"], draft=draft, **options)
    assert pair[0].output.token_ids == expected


def test_a_model_of_one_layer_has_nothing_to_skip_and_an_exit_beyond_the_model_is_refused():
    engine = tiny_engine("llama", layers=1)
    for draft in ("layer_skip", "tree"):
        assert "has a single layer: there is nothing to skip" in engine.drafts()[draft]
        with pytest.raises(SettingsError, match="single layer"):
            engine.stream(PROMPT, draft=draft)
    with pytest.raises(SettingsError, match="exit_layer must be from 1 to 1"):
        tiny_engine("llama").stream(PROMPT, draft="layer_skip", exit_layer=2)


def test_a_model_whose_layers_are_not_found_cannot_skip_them(monkeypatch):
    monkeypatch.setattr("specviz.engine.model._first_layers", _not_found)
    drafts = tiny_engine().drafts()
    assert "layers of llama are not found" in drafts["layer_skip"]
    assert "layers of llama are not found" in drafts["tree"]
    assert drafts["ngram"] is None


def _not_found(model, layers, name):
    raise ModelError(f"The layers of {name} are not found: draft type layer_skip cannot be used with it.")
