"""Passes of fixed shapes: the eager fast path's logits and ids, on a CPU; with a GPU also as captured graphs."""

import pytest
import torch

import specviz
from specviz.drafters.protocol import Proposal
from specviz.engine.cache import ROOT, Pass
from specviz.engine.clock import in_one_copy, on_host
from specviz.engine.engine import Engine
from specviz.engine.graphs import ROWS, GraphModel
from specviz.engine.model import LanguageModel
from specviz.engine.weights import read_weights
from specviz.errors import NumericsError, SettingsError
from specviz.lab.table import random_heads
from specviz.settings import DRAFTS, RULES, TREES
from tests.conftest import _tokenizer
from tests.tiny import VOCAB_SIZE, tiny_folder, tiny_model
from tests.unit.checks import PROMPT, check_counts

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
IDS = list(range(3, 90))


def graphed(device: str = "cpu", **options) -> GraphModel:
    model = tiny_model("llama", **options).to(device)
    return GraphModel(read_weights(model, "float32"), model.config, "llama", VOCAB_SIZE, "float32")


def fresh(ids, **options):
    return tiny_model("llama", **options)(input_ids=torch.tensor([ids])).logits[0, :, :VOCAB_SIZE]


def close(logits, expected):
    torch.testing.assert_close(logits.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@torch.inference_mode()
def test_padded_passes_give_the_logits_of_a_fresh_one(device):
    model = graphed(device, layers=3)
    model.clear(16)
    cache = model.open(16)  # too small: it grows, and what was captured is forgotten
    rows = [cache.forward(IDS[:1]), cache.forward(IDS[1:8]), cache.forward(IDS[8:60]), cache.forward(IDS[60:])]
    close(torch.cat(rows), fresh(IDS, layers=3))
    cache.rollback(40)
    cache.forward([250, 251, 252])
    cache.rollback(40)
    close(cache.forward(IDS[40:49]), fresh(IDS, layers=3)[40:49])
    close(cache.forward(torch.tensor(IDS[49:51], device=device)), fresh(IDS, layers=3)[49:51])


@pytest.mark.parametrize("device", DEVICES)
@torch.inference_mode()
def test_trees_are_read_as_their_paths_also_behind_what_was_kept(device):
    model = graphed(device)
    model.clear(300)
    cache = model.open(300)
    cache.prefill(IDS[:20])
    tree = cache.forward([50, 51, 52, 53], [ROOT, 0, ROOT, 2])
    deeper = cache.forward([54, 55], [1, 3])
    for row, path in enumerate(([50], [50, 51], [52], [52, 53])):
        close(tree[row], fresh(IDS[:20] + path)[-1])
    close(deeper[1], fresh([*IDS[:20], 52, 53, 55])[-1])
    cache.keep([2, 3])
    close(cache.forward([56]), fresh([*IDS[:20], 52, 53, 56])[-1:])


@torch.inference_mode()
def test_few_shapes_occur_and_none_depends_on_where_a_pass_stands():
    model = graphed()
    model.clear(100)
    cache = model.open(100)
    for size in [1, 1, 2, 7, 8, 1, 33]:
        cache.forward(IDS[:size])
        cache.rollback(cache.base - size + 1)
    assert sorted(model._frames) == [(1, 256, False), (2, 256, False), (8, 256, False)]
    assert ROWS[-1] == 32


@torch.inference_mode()
def test_several_texts_run_eagerly_beside_it():
    model = graphed()
    model.clear(40, 2)
    first, second = model.open(40), model.open(40)
    first.prefill(IDS[:10])
    one, other = model.run([Pass(first, [50]), Pass(second, [60, 61])])
    close(one, fresh([*IDS[:10], 50])[-1:])
    close(other, fresh([60, 61]))
    close(second.forward([62]), fresh([60, 61, 62])[-1:])


@pytest.mark.parametrize("draft", DRAFTS)
def test_every_draft_type_gives_the_ids_of_transformers(draft):
    reference = Engine(LanguageModel(tiny_model("llama"), "reference", VOCAB_SIZE), _tokenizer())
    expected = reference.generate(PROMPT, draft="none", max_new_tokens=30, ignore_eos=True).output.token_ids
    target = graphed()
    engine = Engine(target, _tokenizer(), graphed(seed=1), heads=random_heads(target, 32, (1, 2)))
    if reason := engine.drafts()[draft]:
        pytest.xfail(reason)
    for rule in RULES:
        if rule != "block" or draft not in TREES:
            run = engine.generate(PROMPT, draft=draft, verify=rule, max_new_tokens=30, ignore_eos=True)
            assert run.output.token_ids == expected
            check_counts(run)
    assert run.device.path == "static"


def test_a_draft_is_read_once_and_only_when_it_is_whole():
    """On a GPU each reading waits for the device: drafted ids go from pass to pass as tensors."""
    engine = Engine(graphed(), _tokenizer(), graphed(seed=1))
    seen = []
    run = engine.draft_model.run
    engine.draft_model.run = lambda passes: seen.extend(one.ids for one in passes) or run(passes)
    options = {"draft": "model", "gamma": 4, "temperature": 0.9, "max_new_tokens": 12, "ignore_eos": True}
    free = engine.generate(PROMPT, **options)
    assert {type(ids) for ids in seen} == {list, torch.Tensor}
    assert sum(isinstance(ids, list) for ids in seen) == len([step for step in free.steps if step.gamma])
    # What must look at each token reads each, and writes the same text.
    again = engine.generate(PROMPT, **options, min_confidence=1e-9)
    assert again.output.token_ids == free.output.token_ids


def test_damaged_draft_logits_are_an_error_also_when_read_late():
    engine = Engine(graphed(), _tokenizer(), graphed(seed=1))
    engine.draft_model._last_norm[0] = float("nan")
    with pytest.raises(NumericsError, match="not finite"):
        engine.generate(PROMPT, draft="model", temperature=0.7)


@pytest.mark.parametrize("device", DEVICES)
def test_one_copy_brings_all_that_a_step_looks_at(device):
    q, logits = torch.rand(5).softmax(0), torch.randn(2, 5)
    proposal = Proposal()
    raw = torch.rand(5)
    proposal.add(3, q.to(device), ROOT, confidence=0.5, source="model", raw_q=raw.to(device))
    proposal.add(4, proposal.draws[0].q, ROOT, confidence=0.1)
    proposal.add(1, None, 0, source="ngram")
    host, p, moved = in_one_copy(logits.to(device), logits.softmax(-1).to(device), proposal)
    torch.testing.assert_close((host, p), (logits, logits.softmax(-1)))
    torch.testing.assert_close(torch.stack([draw.q for draw in moved.draws[:2]]), torch.stack([q, q]))
    torch.testing.assert_close(moved.raw_q[0], raw)
    assert (moved.draws[2].q, moved.raw_q[1:]) == (None, [None, None])
    assert [draw.node for draw in moved.draws] == [0, 1, 2]
    names = ("ids", "parents", "confidence", "source", "note")
    assert [getattr(moved, name) for name in names] == [getattr(proposal, name) for name in names]
    assert (on_host(host, p, proposal)[2] is proposal) == (device == "cpu")


def test_the_path_is_chosen_by_name_and_refused_with_a_sentence(tmp_path):
    folder = tiny_folder(tmp_path / "llama", "llama")
    assert specviz.load(target=str(folder), dtype="float32", device="cpu", path="static").device.path == "static"
    other = tiny_folder(tmp_path / "gpt2", "gpt2")
    with pytest.raises(SettingsError, match="cannot run in passes of fixed shapes: gpt2"):
        specviz.load(target=str(other), dtype="float32", device="cpu", path="static")
