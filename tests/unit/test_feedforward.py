"""The feed-forward draft: its pass is that of training, and it sees the last few tokens and nothing else."""

import torch
import torch.nn.functional as F

from specviz.drafters import Ask, FeedForwardDrafter, FeedForwardModel, Start
from specviz.drafters.feedforward import NoMemory
from specviz.drafters.protocol import drive
from specviz.drafters.shapes import FeedForwardShape
from specviz.engine.cache import Pass
from specviz.engine.model import LanguageModel
from specviz.engine.noise import UniformNoise
from specviz.engine.sampling import Warp
from specviz.settings import Settings
from specviz.train.features import Batch
from specviz.train.feedforward import FeedForward
from tests.tiny import VOCAB_SIZE, tiny_model

SHAPE = FeedForwardShape(32, 4, 48, (1, 2))
IDS = [5, 7, 9, 30, 41, 12, 60, 33]
VOCABULARY = torch.arange(0, 300, 3)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def made() -> tuple[FeedForward, FeedForwardModel]:
    torch.manual_seed(0)
    target = LanguageModel(tiny_model("llama"), "tiny", VOCAB_SIZE)
    learner = FeedForward(SHAPE, target.embedding, target.head_rows(VOCABULARY)).requires_grad_(False)
    return learner, FeedForwardModel(target, learner.state_dict(), SHAPE, VOCABULARY)


def trained(learner: FeedForward, ids: list[int]) -> torch.Tensor:
    """(len(ids), draft vocabulary) logits behind each of `ids`."""
    tensor = torch.tensor([ids])
    batch = Batch(tensor, None, tensor.bool(), tensor.bool(), tensor, tensor)
    ((ahead, output),) = learner.outputs(batch, 1)
    assert ahead == 0
    return F.linear(learner.final(output[0]), learner.head)


@torch.inference_mode()
def test_the_pass_is_that_of_training_also_where_the_text_begins():
    learner, model = made()
    expected = trained(learner, IDS)
    passes = [Pass(NoMemory(model), IDS[max(0, end - 4) : end]) for end in range(1, len(IDS) + 1)]
    rows = model.run(passes)
    torch.testing.assert_close(torch.cat(rows), expected, **CLOSE)
    torch.testing.assert_close(model.run(passes[:1])[0], expected[:1], **CLOSE)


@torch.inference_mode()
def test_it_drafts_from_the_last_tokens_its_own_included():
    learner, model = made()
    warp = Warp(Settings.of(temperature=1.0), 2)
    found = []
    for context in (IDS, [99, 98, *IDS[-4:]], [*IDS[-3:]]):
        drafter = FeedForwardDrafter(model)
        drafter.begin(Start(context, 40))
        one = drive(drafter.propose(Ask(context, 5, warp, UniformNoise(0))))
        logits = trained(learner, [*context, *one.ids])[len(context) - 1 : -1]
        for q, row in zip(one.q, logits, strict=True):
            torch.testing.assert_close(q[VOCABULARY], row.softmax(-1), **CLOSE)
            assert q.count_nonzero() == len(VOCABULARY)
        found.append(one)
    assert found[0].confidence[0] == found[1].confidence[0]  # what stands before the window is not seen
    assert found[0].confidence[0] != found[2].confidence[0]
