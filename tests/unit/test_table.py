"""The table model stands behind the same surface as a language model: trees, rollback, early exit, batches."""

import pytest
import torch

from specviz.drafters import Start
from specviz.drafters.model import SharedContext
from specviz.engine.cache import ROOT, Pass
from specviz.lab.table import TableModel, table_engine
from tests.unit.checks import PAIRS, check_counts

IDS = [1, 2, 0, 3, 1]


def opened(seed=0, **options):
    model = TableModel.random(5, seed, **options)
    return model, model.open(20)


def test_logits_depend_on_the_last_two_ids():
    model, cache = opened()
    rows = cache.forward(IDS)
    assert torch.equal(rows, torch.stack([model.logits[a, b] for a, b in zip([0, *IDS], IDS, strict=False)]))


def test_a_trees_rows_are_those_of_its_paths():
    model, cache = opened()
    cache.prefill(IDS[:3])
    # 3 behind the chain; 1 and 4 behind it; 2 behind the 4; another root 0 with 0 behind it.
    ids, parents = [3, 1, 4, 2, 0, 0], [ROOT, 0, 0, 2, ROOT, 4]
    rows = [*cache.forward(ids[:3], parents[:3]), *cache.forward(ids[3:], parents[3:])]
    assert cache.length == 9
    for i in range(6):
        path, at = [], i
        while at != ROOT:
            path, at = [ids[at], *path], parents[at]
        cache_alone = model.open(20)
        cache_alone.prefill(IDS[:3])
        assert torch.equal(rows[i], cache_alone.forward(path)[-1])
    cache.keep([0, 2, 3])
    assert (cache.ids, cache.base, cache.links) == ([*IDS[:3], 3, 4, 2], 6, [])
    cache.rollback(4)
    assert torch.equal(cache.forward([1])[0], model.logits[3, 1])


def test_several_texts_run_together():
    model, a = opened()
    b = model.open(20)
    a.prefill([1, 2])
    rows = model.run([Pass(a, [3, 4]), Pass(b, [2])])
    assert [len(r) for r in rows] == [2, 1]
    assert torch.equal(rows[0][0], model.logits[2, 3])
    assert torch.equal(rows[1][0], model.logits[0, 2])


def test_the_early_exit_reads_the_same_text_and_disturbs_nothing():
    model, cache = opened()
    cache.prefill(IDS[:-1])
    shared = SharedContext(model.exit(1))
    shared.begin(Start(IDS, 20, cache))
    view, pending = shared.behind(IDS)
    assert pending == [1]
    assert not torch.equal(view.forward(pending)[0], model.logits[3, 1])
    assert cache.length == 4
    assert torch.equal(cache.forward([1])[0], model.logits[3, 1])


def test_random_tables_repeat_and_keep_their_precision():
    for dtype in (torch.float32, torch.float64):
        a, b = TableModel.random(4, 3, dtype=dtype), TableModel.random(4, 3, dtype=dtype)
        assert torch.equal(a.logits, b.logits)
        assert a.logits.dtype == a.dtype == dtype
    assert not torch.equal(TableModel.random(4, 4).logits, a.logits)


@pytest.mark.parametrize(("draft", "rule"), PAIRS)
def test_every_draft_type_and_rule_runs_on_tables(draft, rule):
    engine = table_engine(TableModel.random(5, 0), TableModel.random(5, 1))
    options = {"draft": draft, "verify": rule, "gamma": 3, "candidates": 3, "temperature": 0.9, "max_new_tokens": 30}
    run = engine.generate([1, 2, 0, 1, 2], **options)
    check_counts(run)
    assert any(step.gamma for step in run.steps)
    batch = engine.generate_batch([[1, 2, 0, 1, 2], [3]], **options)
    assert batch[0].output.token_ids == run.output.token_ids
