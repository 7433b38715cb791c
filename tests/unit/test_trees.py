"""Token trees: how proposals are put together, which shapes are drawn, and that a node's logits are its path's."""

from collections import Counter

import pytest
import torch

from specviz.drafters import Ask, DynamicTree, OwnContext, PoolDrafter, Proposal, Start, StaticTree
from specviz.drafters.protocol import drive
from specviz.drafters.tree import RANK_PRIORS, cumulated, path_to, static_shape
from specviz.engine.cache import ROOT, Pass
from specviz.engine.model import LanguageModel
from specviz.engine.noise import UniformNoise
from specviz.engine.sampling import Warp
from specviz.errors import SettingsError
from specviz.settings import TREES, Settings
from tests.conftest import tiny_engine
from tests.tiny import ARCHITECTURES, VOCAB_SIZE, tiny_model
from tests.unit.checks import PROMPT, check_counts, plain

READ_TREES = [name for name in ARCHITECTURES if name != "gpt_neo"]
SAMPLED, GREEDY = Warp(Settings.of(temperature=1), 0), Warp(Settings.of(temperature=0), 0)
CONTEXT = [5, 6, 7, 8]
Q = torch.tensor([0.25, 0.5, 0.25])


def tree_drafter(kind, candidates=2, **options):
    lm = LanguageModel(tiny_model("llama", **options), "draft", VOCAB_SIZE)
    lm.clear(100)
    drafter = kind(OwnContext(lm), torch.device("cpu"), candidates)
    drafter.begin(Start(CONTEXT, 100))
    return drafter


def propose(drafter, gamma=4, warp=SAMPLED, seed=0, min_confidence=0.0, context=CONTEXT):
    with torch.inference_mode():
        return drive(drafter.propose(Ask(context, gamma, warp, UniformNoise(seed), min_confidence)))


# Proposals.


def test_an_equal_draw_is_one_node_with_two_draws_and_two_sources():
    proposal = Proposal()
    assert proposal.add(4, Q, ROOT, source="a", confidence=0.5) == 0
    assert proposal.add(4, Q, 0, source="a") == 1  # the same id elsewhere in the tree is another node
    assert proposal.add(4, None, ROOT, source="b", confidence=0.9) == 0
    assert proposal.add(4, None, ROOT, source="b") == 0
    assert (proposal.ids, proposal.parents) == ([4, 4], [ROOT, 0])
    assert [draw.node for draw in proposal.draws] == [0, 1, 0, 0]
    assert proposal.source == ["a + b", "a"]
    assert proposal.confidence[0] == 0.5
    assert proposal.q == [Q, Q]  # of each node's first draw
    assert [draw.q for draw in proposal.children()[ROOT]] == [Q, None, None]
    assert not proposal.is_chain


def test_a_chain_is_the_tree_in_which_every_node_has_one_child():
    proposal, node = Proposal(), ROOT
    assert proposal.is_chain
    for token in (3, 1, 3):
        node = proposal.add(token, None, node)
    assert proposal.is_chain
    assert (proposal.paths(), proposal.depths()) == ([[3], [3, 1], [3, 1, 3]], [0, 1, 2])
    proposal.add(2, None, 0)
    assert not proposal.is_chain
    assert proposal.paths()[3] == path_to(proposal, 3) == [3, 2]
    twice = Proposal()
    twice.add(3, None, ROOT)
    twice.add(3, None, ROOT)
    assert not twice.is_chain  # one node, two trials


def test_merging_keeps_every_draw_behind_its_own_path():
    a, b = Proposal(note="one"), Proposal(note="two")
    a.add(2, None, a.add(1, None, ROOT, source="x"), source="x")
    b.add(3, Q, b.add(1, Q, ROOT, source="y", confidence=0.5), source="y")
    b.add(2, Q, 0, source="y")
    a.merge(b)
    assert [(token, parent) for token, parent in zip(a.ids, a.parents, strict=True)] == [(1, -1), (2, 0), (3, 0)]
    assert a.source == ["x + y", "x + y", "y"]
    assert [(draw.node, draw.q is None) for draw in a.children()[ROOT]] == [(0, True), (0, False)]
    assert [(draw.node, draw.q is None) for draw in a.children()[0]] == [(1, True), (2, False), (1, False)]
    assert a.note == "one; two"


# Shapes.


@pytest.mark.parametrize("candidates", [1, 2, 3, 4])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_static_shape_spends_its_budget_on_the_likeliest_places(depth, candidates):
    shape = static_shape(depth, candidates)
    places = [(*place, rank) for place, count in shape.items() for rank in range(count)]
    full = sum(candidates**level for level in range(1, depth + 1))
    assert len(places) == min(depth * candidates, full)
    assert all(len(place) <= depth for place in places)
    assert {place[:-1] for place in places} <= {(), *places}  # hangs together

    def value(place):
        return torch.tensor([RANK_PRIORS[rank] for rank in place]).double().prod()

    beside = [(*place, rank) for place in ((), *places) if len(place) < depth for rank in range(candidates)]
    left = [value(place) for place in beside if place not in places]
    assert not left or min(map(value, places)) >= max(left) - 1e-12


def test_a_static_trees_shape_is_that_shape():
    proposal = propose(tree_drafter(StaticTree, 3))
    by_place = Counter(len(path) for path in proposal.paths())
    shape = static_shape(4, 3)
    assert by_place == Counter(len(place) + 1 for place, count in shape.items() for _ in range(count))
    assert propose(tree_drafter(StaticTree, 1)).is_chain


def test_a_static_tree_draws_without_replacement_and_keeps_the_order_drawn():
    model, orders = tiny_model("llama", std=0.1), set()
    for seed in range(8):
        proposal = propose(tree_drafter(StaticTree, 4, std=0.1), seed=seed)
        assert len(proposal.draws) == len(proposal.ids) == 16
        for parent, draws in proposal.children().items():
            ids = torch.tensor([[*CONTEXT, *path_to(proposal, parent)]])
            left = model(input_ids=ids).logits[0, -1].softmax(-1)
            for draw in draws:  # q is renormalised over what was not drawn before
                torch.testing.assert_close(draw.q, left / left.sum(), rtol=1e-3, atol=1e-6)
                assert draw.q[proposal.ids[draw.node]] > 0
                left[proposal.ids[draw.node]] = 0
        roots = [float(proposal.confidence[draw.node]) for draw in proposal.children()[ROOT]]
        orders.add(roots == sorted(roots, reverse=True))
    assert False in orders  # not sorted: sorting bends the law


def test_without_replacement_the_second_child_comes_as_often_as_it_should():
    engine = tiny_engine(draft_seed=1)
    drafter = engine.drafter("tree", Settings.of(draft="tree", temperature=1.0, top_k=3))
    warp = Warp(Settings.of(temperature=1.0, top_k=3), 0)
    engine.claim(20)
    drafter.begin(Start(CONTEXT, 20))
    pairs = Counter()
    for seed in range(400):
        proposal = propose(drafter, 1, warp, seed)
        pairs[tuple(proposal.ids)] += 1
        q = proposal.draws[0].q
    for (a, b), count in pairs.items():
        chance = float(q[a] * q[b] / (1 - q[a]))
        assert abs(count / 400 - chance) < 4 * (chance * (1 - chance) / 400) ** 0.5 + 0.01


def test_where_fewer_tokens_are_left_than_children_there_are_fewer_children():
    warp = Warp(Settings.of(temperature=1, top_k=2), 0)
    proposal = propose(tree_drafter(StaticTree, 4), 3, warp)
    assert max(len(draws) for draws in proposal.children().values()) == 2


def test_a_greedy_static_tree_has_the_likeliest_children_one_hot():
    proposal = propose(tree_drafter(StaticTree, 3), warp=GREEDY)
    assert all(draw.q is None for draw in proposal.draws)
    model = tiny_model("llama")
    for parent, draws in proposal.children().items():
        logits = model(input_ids=torch.tensor([[*CONTEXT, *path_to(proposal, parent)]])).logits[0, -1]
        assert [proposal.ids[draw.node] for draw in draws] == logits.topk(len(draws)).indices.tolist()


@pytest.mark.parametrize("candidates", [1, 2, 4])
@pytest.mark.parametrize("gamma", [1, 3, 6])
def test_a_dynamic_tree_hangs_together_holds_its_budget_and_keeps_the_best(candidates, gamma):
    proposal = propose(tree_drafter(DynamicTree, candidates), gamma)
    assert len(proposal.ids) <= candidates * gamma
    assert max(proposal.depths()) < gamma
    assert all(parent < node for node, parent in enumerate(proposal.parents))
    assert all(draw.q is None for draw in proposal.draws)
    values = cumulated(proposal)
    model = tiny_model("llama")
    for node, parent in enumerate(proposal.parents):
        probs = model(input_ids=torch.tensor([[*CONTEXT, *path_to(proposal, parent)]])).logits[0, -1].softmax(-1)
        assert proposal.confidence[node] == pytest.approx(float(probs[proposal.ids[node]]), rel=1e-3)
        assert parent == ROOT or values[node] <= values[parent]
        siblings = [n for n, p in enumerate(proposal.parents) if p == parent]
        assert [proposal.ids[n] for n in siblings] == probs.topk(len(siblings)).indices.tolist()


def test_a_dynamic_tree_goes_where_the_draft_is_sure():
    # Chains come from a sure draft, bushes from an unsure one.
    sure, unsure = (propose(tree_drafter(DynamicTree, 3, std=std), 5) for std in (1.0, 0.02))
    assert max(sure.depths()) > max(unsure.depths())


@pytest.mark.parametrize("kind", [StaticTree, DynamicTree])
@pytest.mark.parametrize("warp", [SAMPLED, GREEDY])
def test_an_unsure_node_is_not_expanded_and_not_withdrawn(kind, warp):
    whole, stopped = (propose(tree_drafter(kind, 3), warp=warp, min_confidence=c) for c in (0.0, 0.5))
    first = [token for token, parent in zip(whole.ids, whole.parents, strict=True) if parent == ROOT]
    assert [t for t, parent in zip(stopped.ids, stopped.parents, strict=True) if parent == ROOT][: len(first)] == first
    for parent in set(stopped.parents) - {ROOT}:
        assert stopped.confidence[parent] >= 0.5
    assert any(confidence < 0.5 for confidence in stopped.confidence)


def test_a_full_draft_context_bounds_the_depth():
    drafter = tree_drafter(StaticTree, 1, max_positions=6)
    proposal = propose(drafter, 8)
    assert max(proposal.depths()) + 1 == 3  # positions 3, 4, 5 are fed, what stands at 6 is only said
    assert "context of 6 tokens is full" in proposal.note
    assert propose(drafter, 8, context=list(range(3, 12))).ids == []


# Logits.


@pytest.mark.parametrize("architecture", READ_TREES)
@torch.inference_mode()
def test_a_nodes_logits_are_those_of_its_path_run_as_a_chain(architecture):
    lm = LanguageModel(tiny_model(architecture), architecture, VOCAB_SIZE)
    ids, parents = [9, 20, 21, 30, 31, 22, 40], [ROOT, 0, 0, 1, 1, 0, 4]
    for length in (0, 1, 30):
        prompt = list(range(100, 100 + length))
        lm.clear(60, 2)
        cache, other = lm.open(60), lm.open(60)
        cache.prefill(prompt)
        other.prefill(prompt[:7])
        rows = list(cache.forward(ids[:4], parents[:4]))  # in two passes, the second beside another text
        more, beside = lm.run([Pass(cache, ids[4:], parents[4:]), Pass(other, [9, 5, 6], [ROOT, 0, 0])])
        rows += list(more)
        for i in range(len(ids)):
            path, at = [], i
            while at != ROOT:
                path, at = [ids[at], *path], parents[at]
            chain = lm._model(input_ids=torch.tensor([[*prompt, *path]])).logits[0, -1]
            torch.testing.assert_close(rows[i], chain, rtol=1e-4, atol=1e-4)
        chain = lm._model(input_ids=torch.tensor([[*prompt[:7], 9, 6]])).logits[0, -1]
        torch.testing.assert_close(beside[2], chain, rtol=1e-4, atol=1e-4)
        cache.keep([0, 1, 4, 6])
        chain = lm._model(input_ids=torch.tensor([[*prompt, 9, 20, 31, 40, 3]])).logits[0, -1]
        torch.testing.assert_close(cache.forward([3])[0], chain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("architecture", READ_TREES)
@pytest.mark.parametrize("draft", TREES)
def test_every_node_of_a_run_has_the_p_of_its_own_path_under_penalties(architecture, draft):
    engine = tiny_engine(architecture, draft_seed=1, std=0.25)
    given = {"repetition_penalty": 1.4, "frequency_penalty": 0.5, "temperature": 0.9, "top_k": 40}
    run = engine.generate(PROMPT, draft=draft, gamma=3, candidates=4, max_new_tokens=12, seed=4, **given)
    check_counts(run)
    warp = Warp(Settings.of(**given), len(run.prompt.token_ids))
    context = list(run.prompt.token_ids)
    for step in run.steps:
        paths = []
        for token in step.tokens:
            paths.append([] if token.parent == -1 else [*paths[token.parent], step.tokens[token.parent].id])
            logits = engine.target._model(input_ids=torch.tensor([[*context, *paths[-1]]])).logits[0, -1:]
            p = warp(logits, context, [paths[-1]])[0]
            assert token.p == pytest.approx(float(p[token.id]), rel=1e-3, abs=1e-5)
        context += [token.id for token in step.emitted]
    assert max(step.gamma for step in run.steps) > 4


@pytest.mark.parametrize("draft", TREES)
def test_a_model_with_local_attention_refuses_trees_by_name_with_the_reason(draft):
    engine = tiny_engine("gpt_neo", draft_seed=1)
    sentence = "gpt_neo has layers of local attention, which count rows, not positions on a branch"
    assert sentence in engine.drafts()[draft]
    with pytest.raises(SettingsError, match=sentence):
        engine.stream(PROMPT, draft=draft)
    cache = engine.target.open(20)
    with pytest.raises(SettingsError, match=sentence):
        cache.forward([5, 6], [ROOT, ROOT])


def test_a_draft_model_that_cannot_read_trees_may_still_draft_chains_of_a_pool():
    engine = tiny_engine("llama", draft_seed=1)
    engine.draft_model = LanguageModel(tiny_model("gpt_neo"), "neo", VOCAB_SIZE)
    assert "Trees cannot be drafted: neo has layers of local" in engine.drafts()["tree"]
    assert engine.drafts()["pool"] is None
    run = engine.generate(PROMPT, draft="pool", candidates=4, max_new_tokens=12)
    assert run.output.token_ids == plain(engine, max_new_tokens=12).output.token_ids


# Pools.


def test_a_pools_tree_names_every_source_and_merges_what_is_equal():
    engine = tiny_engine(draft_seed=1)
    engine.use_head("eagle", "It was eaten.")
    run = engine.generate([5, 6, 7, 5, 6, 7, 5, 6], draft="pool", candidates=4, temperature=0.5, max_new_tokens=24)
    check_counts(run)
    sources = " ".join(token.source for step in run.steps for token in step.tokens if token.source)
    for name in ("ngram ", "model", "model (no. 2)", "ngram-smoothed order", " + "):
        assert name in sources


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_pool_of_equals_is_one_chain_with_every_draw(temperature):
    class Same:
        type, name, params, warning = "same", "same", 1, None

        def begin(self, start):
            pass

        def width(self, gamma):
            return gamma

        def propose(self, ask):
            chain, node = Proposal(note="tired"), ROOT
            for token in (1, 2)[: ask.gamma]:
                node = chain.add(token, Q, node, source="same")
            return chain
            yield

    pool = PoolDrafter([Same(), Same()])
    merged = propose(pool, 2)
    assert (merged.ids, merged.parents) == ([1, 2], [ROOT, 0])
    assert [draw.node for draw in merged.draws] == [0, 1, 0, 1]
    assert merged.source == ["same + same (no. 2)"] * 2
    assert merged.note is None
    assert propose(pool, 0).note == "tired; tired"
    assert (pool.width(3), pool.params, pool.name) == (6, 2, "same + same")


@pytest.mark.parametrize("draft", TREES)
def test_one_run_after_another_step_is_no_different_when_branches_were_kept(draft):
    """Steps that keep a branch off the first path move rows of the cache; what comes next must not notice."""
    engine = tiny_engine(draft_seed=0)
    run = engine.generate(PROMPT, draft=draft, gamma=4, candidates=4, max_new_tokens=60, ignore_eos=True)
    paths = [[i for i, token in enumerate(step.tokens) if token.fate == "accepted"] for step in run.steps]
    moved = [path for path in paths if path != list(range(len(path)))]
    assert run.output.token_ids == plain(engine, max_new_tokens=60, ignore_eos=True).output.token_ids
    assert moved
