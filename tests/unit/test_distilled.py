"""The distilled draft model: its forward is that of training on every path, and a named draft model comes first."""

import pytest
import torch
import torch.nn.functional as F

from specviz.drafters import OwnContext
from specviz.drafters.distilled import distilled
from specviz.drafters.limited import OUTSIDE
from specviz.drafters.shapes import ModelShape
from specviz.engine.engine import Engine
from specviz.engine.fast import FastModel
from specviz.engine.graphs import GraphModel
from specviz.engine.model import LanguageModel
from specviz.engine.weights import read_weights
from specviz.lab.table import random_heads, random_weights
from specviz.settings import Settings
from specviz.train.features import Batch
from specviz.train.model import DraftModel
from tests.tiny import VOCAB_SIZE, tiny_model, tiny_tokenizer
from tests.unit.checks import check_counts

SHAPE = ModelShape(32, 4, 2, 8, 64, 2, (1, 2))
VOCABULARY = torch.arange(0, 300, 3)
IDS = [5, 7, 9, 30, 41, 12, 60, 33]
DRAFTS = ("model", "tree", "tree-dynamic", "pool", "hybrid")


def target_on(path: str, precision: str = "float32") -> LanguageModel:
    model = tiny_model("llama")
    if path == "transformers":
        return LanguageModel(model, "tiny", VOCAB_SIZE)
    kind = GraphModel if path == "static" else FastModel
    return kind(read_weights(model, precision), model.config, "tiny", VOCAB_SIZE, precision)


def engine_on(target: LanguageModel, draft: LanguageModel | None = None, eagle: bool = False) -> Engine:
    heads = random_heads(target, 32, (1, 2)) if eagle else {}
    model = distilled(target, random_weights(SHAPE), SHAPE, VOCABULARY, "a distilled model")
    return Engine(target, tiny_tokenizer(), draft, heads={**heads, "model": model})


@pytest.mark.parametrize("path", ["transformers", "fast", "static"])
@torch.inference_mode()
def test_the_forward_is_that_of_training_with_nothing_outside_the_vocabulary(path):
    target = target_on(path)
    weights = {name: weight.float() for name, weight in random_weights(SHAPE).items()}
    learner = DraftModel(SHAPE, target.embedding, target.head_rows(VOCABULARY)).requires_grad_(False)
    learner.load_state_dict(weights)
    ids = torch.tensor([IDS])
    ((_, output),) = learner.outputs(Batch(ids, None, ids.bool(), ids.bool(), ids, ids), 1)
    model = distilled(target, weights, SHAPE, VOCABULARY)
    model.clear(20)
    cache = model.open(20)
    cache.prefill(IDS[:3])
    logits = cache.forward(IDS[3:])
    torch.testing.assert_close(
        logits[:, VOCABULARY], F.linear(learner.final(output[0, 3:]), learner.head), rtol=1e-4, atol=1e-4
    )
    outside = torch.ones(VOCAB_SIZE, dtype=torch.bool)
    outside[VOCABULARY] = False
    assert bool((logits[:, outside] == OUTSIDE).all())
    assert type(model) is type(target)
    assert model.embedding.data_ptr() == target.embedding.data_ptr()  # nothing of the target is kept twice
    assert model.params == sum(weight.numel() for weight in weights.values())


@pytest.mark.parametrize("path", ["transformers", "fast", "static"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_draft_type_that_wants_a_model_runs_with_it(draft, path):
    engine = engine_on(target_on(path))
    expected = engine.generate(IDS, draft="none", max_new_tokens=16, ignore_eos=True).output
    run = engine.generate(IDS, draft=draft, gamma=3, candidates=3, max_new_tokens=16, ignore_eos=True)
    assert run.output == expected
    assert "a distilled model" in run.draft.name
    check_counts(run)
    warm = engine.generate(
        IDS, draft=draft, gamma=3, candidates=3, temperature=1.0, frequency_penalty=0.5, max_new_tokens=16
    )
    check_counts(warm)


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
def test_beside_a_target_in_few_bits_it_is_in_few_bits_too(precision):
    target = target_on("fast", precision)
    engine = engine_on(target)
    assert engine.drafting_model.precision == ("int8" if precision == "bfloat16" else precision)
    check_counts(engine.generate(IDS, draft="model", temperature=1.0, max_new_tokens=12, ignore_eos=True))


def test_a_named_draft_model_comes_first_and_hybrid_takes_the_best_there_is():
    target, named = target_on("transformers"), LanguageModel(tiny_model("llama", seed=1), "named", VOCAB_SIZE)
    settings = Settings.of(draft="hybrid", candidates=4)

    def names(engine: Engine) -> tuple[str, str, list[str]]:
        pool = engine.drafter("pool", settings)
        return (
            engine.drafter("model", settings).name,
            engine.drafter("hybrid", settings).name,
            [member.type for member in pool.members],
        )

    assert names(engine_on(target, named, eagle=True)) == (
        "named", "prompt lookup, else named", ["ngram", "model", "eagle", "ngram-smoothed"],
    )  # fmt: skip
    assert names(engine_on(target, eagle=True)) == (
        "a distilled model", "prompt lookup, else a random eagle head", ["ngram", "eagle", "ngram-smoothed", "model"],
    )  # fmt: skip
    assert names(engine_on(target)) == (
        "a distilled model", "prompt lookup, else a distilled model",
        ["ngram", "ngram-smoothed", "model", "ngram-smoothed"],
    )  # fmt: skip
    context = engine_on(target, named).drafter("tree", settings)._context
    assert isinstance(context, OwnContext)
    assert context.model is named


def test_without_one_the_sentence_is_that_of_the_pair():
    engine = Engine(target_on("transformers"), tiny_tokenizer(), draft_unavailable="It has no sibling.")
    assert engine.drafts()["model"] == "It has no sibling."
    assert engine.drafts()["tree"] is None  # the first layers draft


def test_a_warning_is_said_once_whichever_type_drafts_with_it():
    engine = engine_on(target_on("transformers"))
    engine.heads["model"].warning = "for other weights"
    for draft in DRAFTS:
        run = engine.generate(IDS, draft=draft, gamma=2, candidates=3, max_new_tokens=12, ignore_eos=True)
        assert ["for other weights" in (step.note or "") for step in run.steps] == [True] + [False] * (
            len(run.steps) - 1
        )
