"""The training pipeline: what is counted, that it learns, and that it goes on where it was."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from specviz.drafters.shapes import EagleShape
from specviz.errors import SettingsError
from specviz.train.chats import Chats, batches, documents, frequent
from specviz.train.features import Batch, Features, Reader
from specviz.train.job import LEARNERS, new_learner, shape_for
from specviz.train.learner import OVERLAP_WEIGHT, HeadLoss
from specviz.train.loop import LONGEST_STEP, Plan, Progress, Stopwatch, Training, rate_at
from specviz.train.model import DraftModel
from specviz.train.muon import orthogonalised
from tests.tiny import ARCHITECTURES, VOCAB_SIZE, tiny_model
from tests.unit.selfchats import chat, chats

SHAPE = EagleShape(32, 4, 2, 8, 48, (1, 2))


def test_chats_are_read_as_they_were_written(tmp_path):
    made = chats(3)
    made.save(tmp_path / "c.npz")
    again = Chats.load(tmp_path / "c.npz", 300)
    assert [one.tolist() for one in again.ids] == [one.tolist() for one in made.ids]
    assert (again.answer_start, again.tokens) == (made.answer_start, made.tokens)
    with pytest.raises(SettingsError, match="written by another model"):
        Chats.load(tmp_path / "c.npz", 20)
    for bad in (tmp_path / "none.npz", tmp_path / "bad.npz"):
        (tmp_path / "bad.npz").write_text("no")
        with pytest.raises(SettingsError, match="holds no chats"):
            Chats.load(bad)


def test_a_document_asks_about_everything_behind_the_opening():
    (one,) = documents(Chats([np.array(chat(30, 31, 0))], [10]), [0], None)
    assert one.answer.tolist() == [False] * 9 + [True] * 3 + [False]
    two, _ = documents(chats(2), [0], None)
    asked = [i for i, flag in enumerate(two.asked) if flag]
    assert asked == list(range(4, len(two.ids) - 1))  # 9 9 0 7 8 is what every chat begins with


def test_chats_follow_one_another_behind_the_templates_later_opening():
    made = chats(40)
    grouped = documents(made, [0], 0)
    assert sum(len(d.ids) for d in grouped) == sum(map(len, made.ids)) - 3 * (40 - len(grouped))
    long = max(grouped, key=lambda d: len(d.ids))
    text = long.ids.tolist()
    assert text[:5] == [9, 9, 0, 7, 8]
    assert text.count(9) == 2
    later = [i for i in range(5, len(text) - 1) if text[i : i + 2] == [7, 8] and text[i - 1] == 0]
    assert later
    assert not any(long.asked[i - 1] for i in later)  # the template's own tokens are not asked about
    assert sum(int(d.answer.sum()) for d in grouped) == made.tokens


def test_the_frequent_tokens_are_sorted_and_hold_the_end_of_turn():
    made = Chats([np.array([1, 1, 1, 2, 2, 3])], [0])
    assert frequent(made, 3, 10, [9]).tolist() == [1, 2, 9]
    assert frequent(made, 6, 10, [9]).tolist() == [0, 1, 2, 3, 4, 9]


def test_batches_hold_every_document_once_and_keep_to_their_size():
    lengths = [5, 50, 7, 30, 30, 100, 3]
    found = batches(lengths, 100, np.random.default_rng(0))
    assert sorted(number for batch in found for number in batch) == list(range(7))
    assert all(len(batch) * max(lengths[n] for n in batch) <= 100 for batch in found)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_features_are_the_targets_and_kept_on_disk(architecture, tmp_path):
    model, vocabulary = tiny_model(architecture), torch.arange(0, 300, 2)
    reader = Reader(model, (1, 2), vocabulary, VOCAB_SIZE)
    docs = documents(chats(6), [0], None)
    held = Features(reader, docs, tmp_path)
    batch = held.batch([4, 1])
    size = len(docs[4].ids)
    out = model(input_ids=torch.tensor(docs[4].ids)[None], output_hidden_states=True, use_cache=False)
    torch.testing.assert_close(batch.features[0, :size, :32].float(), out.hidden_states[1][0], rtol=0.02, atol=0.02)
    p = out.logits[0].softmax(-1)[:, vocabulary].sort(descending=True)
    torch.testing.assert_close(batch.p[0, :size], p.values[:, :64], rtol=0.01, atol=1e-3)
    assert batch.answer[0, :size].sum() == size - 10
    again = Features(reader, docs, tmp_path)  # as another process would
    assert (again.known, again.has(4), again.has(0)) == (2, True, False)
    again.reader = None
    torch.testing.assert_close(again.batch([4, 1]).features, batch.features)
    bare = Features(reader, docs, tmp_path, hidden=False).batch([4, 1])  # for a draft that reads no hidden states
    assert bare.features is None
    torch.testing.assert_close(bare.p, batch.p)


def test_the_loss_has_the_gradient_it_says():
    torch.manual_seed(0)
    rows, head = torch.randn(5, 8, requires_grad=True), torch.randn(12, 8)
    p = torch.rand(5, 12).softmax(-1)
    best = p.topk(4)
    loss, overlap, agreement = HeadLoss.apply(rows, head, best.indices, best.values)
    loss.backward()
    mine, rows.grad = rows.grad, None
    q = F.linear(rows, head).softmax(-1).gather(1, best.indices)
    shared = torch.minimum(q, best.values).sum(-1)
    plain = -(best.values * q.log()).sum(-1).mean() - OVERLAP_WEIGHT * shared.log().mean()
    plain.backward()
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(mine, rows.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(overlap, shared.mean())
    assert 0 <= agreement <= 1


def learner_of(kind: str, vocabulary: int = 64):
    model = tiny_model("llama")
    return new_learner(kind, shape_for(kind, model.config), model, torch.arange(vocabulary))


def batch_of(ids: torch.Tensor, vocabulary: int = 64) -> Batch:
    shape = (*ids.shape, 4)
    flags = torch.ones_like(ids, dtype=torch.bool)
    p = torch.full(shape, 0.2)
    return Batch(ids, torch.randn(*ids.shape, 64), flags, flags, torch.randint(vocabulary, shape), p)


@pytest.mark.parametrize("kind", LEARNERS)
def test_no_place_looks_ahead(kind):
    """What stands behind a place, beyond the tokens it was given, changes nothing of what it says."""
    torch.manual_seed(0)
    learner = learner_of(kind)
    for weight in learner.parameters():
        weight.data.normal_(std=0.3)
    batch = batch_of(torch.randint(300, (1, 12)))
    before = [(ahead, output.clone()) for ahead, output in learner.outputs(batch, learner.positions)]
    batch.ids[0, 9:] = 5
    batch.features[0, 9:] = 1.0
    reads_ids = kind != "medusa"
    for (ahead, one), (_, other) in zip(before, learner.outputs(batch, learner.positions), strict=True):
        untouched = 9 - (ahead if reads_ids else 0)
        torch.testing.assert_close(one[0, :untouched], other[0, :untouched])
        assert not torch.allclose(one[0, -1], other[0, -1])


def test_a_draft_model_begins_as_the_targets_own_layers():
    """With as many layers as the target has, it is the target."""
    model = tiny_model("llama", layers=2)
    learner = learner_of("model", 300)
    ids = torch.randint(300, (2, 9))
    ((ahead, output),) = learner.outputs(batch_of(ids), 1)
    logits = F.linear(learner.final(output.flatten(0, 1)), learner.head)
    assert ahead == 0
    torch.testing.assert_close(logits, model(input_ids=ids).logits.flatten(0, 1), rtol=1e-4, atol=1e-4)
    other = DraftModel(shape_for("model", tiny_model("gpt2").config), learner.embedding, learner.head)
    assert not other.begin_as(tiny_model("gpt2"))
    assert not other.begin_as(tiny_model("qwen2"))  # its q, k and v have biases


def test_medusa_heads_begin_as_the_targets_own_next_token():
    model, ids = tiny_model("llama"), torch.randint(300, (1, 9))
    learner, batch = learner_of("medusa", 300), batch_of(ids)
    states = model(input_ids=ids, output_hidden_states=True)
    caught = []
    hook = model.model.layers[-1].register_forward_hook(lambda _, __, out: caught.append(out))
    model(input_ids=ids)
    hook.remove()
    batch.features = torch.cat([states.hidden_states[1], caught[0] if torch.is_tensor(caught[0]) else caught[0][0]], -1)
    for _, output in learner.outputs(batch, 2):
        assert F.linear(output, learner.head)[0].argmax(-1).tolist() == states.logits[0].argmax(-1).tolist()


def test_a_step_in_which_the_process_was_stopped_hardly_counts(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("specviz.train.loop.time.monotonic", lambda: clock[0])
    watch, counted = Stopwatch(), []
    for took in [1.0] * 12 + [3600.0, 1.0]:
        clock[0] += took
        counted.append(watch.lap())
    assert counted == [1.0] * 12 + [LONGEST_STEP, 1.0]


def test_an_orthogonalised_matrix_has_singular_values_near_one():
    torch.manual_seed(0)
    for size in ((16, 40), (40, 16)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(size)).float())
        assert 0.4 < values.min() < values.max() < 1.4


def test_the_rate_warms_up_stays_and_falls():
    plan = Plan(tokens=1000, rate=1.0)
    assert rate_at(plan, Progress(step=0, tokens=0)) < 0.1
    assert rate_at(plan, Progress(step=100, tokens=500)) == 1.0
    assert 0.4 < rate_at(plan, Progress(step=100, tokens=800)) < 0.6
    assert rate_at(plan, Progress(step=100, tokens=1000)) < 0.02
    assert Progress(seconds=30).used(Plan(minutes=1)) == 0.5


def training(folder, plan: Plan, kind: str = "eagle", **options) -> Training:
    torch.manual_seed(0)
    model, vocabulary = tiny_model("llama"), torch.arange(0, 64)
    made = chats(30)
    docs = documents(made, [0], 0)
    return Training(
        learner_of(kind),
        Features(Reader(model, (1, 2), vocabulary), docs, None),
        Features(Reader(model, (1, 2), vocabulary, VOCAB_SIZE), documents(chats(5, 1), [0], None), None),
        plan, folder, options.get("report", lambda _: None), options.get("show"),
    )  # fmt: skip


def test_it_learns_and_goes_on_where_it_was(tmp_path):
    plan = Plan(tokens=15_000, batch=300, every=1e9, rate=1e-2)
    whole = training(tmp_path / "a", plan)
    whole.checkpoint("first.pt")
    whole.run()
    first, last = whole.progress.curve[0], whole.progress.curve[-1]
    assert last["overlap"][0] > 2 * first["overlap"][0]
    assert last["rows"][0] > 0
    assert len(last["overlap"]) == 4
    half = training(tmp_path / "b", Plan(tokens=4000, batch=300, every=1e9))
    half.run()
    later = training(tmp_path / "b", plan)
    assert later.resume()
    assert later.progress.step == half.progress.step > 0
    for name, weight in later.learner.state_dict().items():
        torch.testing.assert_close(weight, half.learner.state_dict()[name])
    assert later.run().tokens >= 15_000
    assert not training(tmp_path / "c", plan).resume()


def test_reading_ahead_learns_the_same_things(tmp_path):
    lines = []
    ahead = training(tmp_path, Plan(tokens=6000, batch=300, every=1e-9, rate=1e-2, ahead=True), report=lines.append)
    ahead.run()
    assert ahead.progress.curve[-1]["overlap"][0] > ahead.progress.curve[0]["overlap"][0] + 0.02
    assert (tmp_path / "stable.pt").exists()  # from before the rate fell
    assert any(line.startswith("checkpoint") for line in lines)


@pytest.mark.parametrize("kind", ["medusa", "feedforward", "model"])
def test_every_kind_learns_in_the_same_loop(kind, tmp_path):
    shown = []
    plan = Plan(tokens=6000, batch=300, every=1e9, rate=1e-2)
    one = training(tmp_path, plan, kind, show=lambda share, words: shown.append((share, words)))
    for weight in one.learner.parameters():  # a model as deep as its target would begin as the target
        weight.data.normal_(std=0.2) if weight.dim() == 2 else weight.data.fill_(1.0)
    one.checkpoint("first.pt")
    one.run()
    first, last = one.progress.curve[0]["overlap"], one.progress.curve[-1]["overlap"]
    assert last[0] > 1.1 * first[0]
    assert len(last) == one.learner.measured
    assert [share for share, _ in shown] == sorted(share for share, _ in shown)
    assert "overlap" in shown[-1][1]


@pytest.mark.parametrize("kind", LEARNERS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_draft_has_a_shape_for_every_architecture(architecture, kind):
    model = tiny_model(architecture, layers=6)
    shape = shape_for(kind, model.config)
    assert (shape.hidden, shape.taps) == (32, (2, 4, 6))
    learner = new_learner(kind, shape, model, torch.arange(64))
    sizes = {name: tuple(weight.shape) for name, weight in learner.state_dict().items()}
    assert sizes == shape.sizes()
    batch = batch_of(torch.randint(300, (2, 9)))
    batch.features = torch.randn(2, 9, 96)
    loss, figures = learner.judged(batch, learner.positions)
    loss.backward()
    assert len(figures.overlap) == learner.positions
    learned = [name for name, weight in learner.named_parameters() if weight.grad is None]
    assert not learned
    assert {name for name, rows in learner.parts().items() if sum(rows) == sizes[name][0]} == set(learner.parts())
