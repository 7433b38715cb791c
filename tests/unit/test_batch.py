"""Several prompts side by side: each gets what it would get alone, and passes really run together."""

import pytest

from specviz.errors import NumericsError, SettingsError, SpecvizError
from specviz.settings import Settings
from specviz.trace import Calibration
from tests.conftest import tiny_engine
from tests.unit.checks import PAIRS, PROMPT, SPECULATIVE, check_counts, comparable, numbered

COSTS = Calibration(c=0.2, v=[1 + 0.02 * i for i in range(65)], h=0.05, h0=0.02, unit_s=0.001)
PROMPTS = [PROMPT, [7], numbered(90), "a b a b a b a", numbered(33)]


def alone(engine, prompt, settings, **options):
    own = settings.given() if isinstance(settings, Settings) else settings
    return engine.generate(prompt, **{**options, **own})


def check_batch(engine, prompts, settings, **options):
    runs = engine.generate_batch(prompts, settings, **options)
    assert len(runs) == len(prompts)
    for run, prompt, own in zip(runs, prompts, settings, strict=True):
        single = alone(engine, prompt, own, **options)
        assert run.output == single.output
        assert_same_trace(run, single)
        check_counts(run)
    return runs


def assert_same_trace(a, b):
    """Equal but for times; probabilities to float32's rounding, for sums run in another order in a batch."""
    a, b = comparable(a), comparable(b)
    assert (a.prompt, a.settings, a.draft, a.target, a.output) == (b.prompt, b.settings, b.draft, b.target, b.output)
    for mine, its in zip(a.steps, b.steps, strict=True):
        names = ("index", "gamma", "draft", "cache_before", "cache_after")
        assert [getattr(mine, name) for name in names] == [getattr(its, name) for name in names]
        for x, y in zip(mine.tokens, its.tokens, strict=True):
            names = ("position", "id", "text", "fate", "parent", "u", "source")
            assert [getattr(x, name) for name in names] == [getattr(y, name) for name in names]
            for name in ("p", "q", "accept_prob", "overlap", "confidence"):
                value = getattr(y, name)
                expected = None if value is None else pytest.approx(value, rel=1e-3, abs=1e-5)
                assert getattr(x, name) == expected


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2", "gpt_neo"])
def test_mixed_drafts_rules_gammas_seeds_and_temperatures(architecture):
    engine = tiny_engine(architecture, draft_seed=1, std=0.25)
    mixed = [
        {"draft": "model", "gamma": 5, "temperature": 1.0, "seed": 1},
        Settings.of(draft="ngram-smoothed", verify="block", gamma=2, temperature=0.8, seed=2, max_new_tokens=20),
        {"draft": "none", "temperature": 0.0, "max_new_tokens": 7},
        {"draft": "hybrid", "verify": "coupled", "gamma": 7, "temperature": 1.3, "seed": 4},
        Settings.of(draft="layer_skip", temperature=0.7, top_p=0.8, repetition_penalty=1.2, max_new_tokens=1),
    ]
    check_batch(engine, PROMPTS, mixed, max_new_tokens=16)


@pytest.mark.parametrize(("draft", "rule"), PAIRS)
def test_every_draft_and_rule(draft, rule):
    engine = tiny_engine(draft_seed=1, std=0.25)
    own = [{"gamma": gamma, "seed": gamma, "temperature": t} for gamma, t in ((1, 1.0), (3, 0.0), (4, 0.7))]
    check_batch(engine, PROMPTS[:3], own, draft=draft, verify=rule, candidates=4, max_new_tokens=12)


def test_trees_chains_and_plain_steps_side_by_side():
    engine = tiny_engine(draft_seed=1, std=0.25)
    own = [{"draft": draft, "temperature": 1.0, "seed": i} for i, draft in enumerate(["none", *SPECULATIVE])]
    check_batch(
        engine, [PROMPT, *[numbered(5 * i + 1) for i in range(len(SPECULATIVE))]], own, gamma=3, max_new_tokens=12
    )


def test_trees_drafted_by_the_targets_own_layers():
    engine = tiny_engine(layers=3, std=0.25)
    own = [
        {"draft": draft, "seed": i} for i, draft in enumerate(("tree", "pool", "layer_skip", "tree-dynamic", "none"))
    ]
    check_batch(engine, PROMPTS, own, temperature=1.0, gamma=3, candidates=3, max_new_tokens=12)


def test_runs_that_end_early_leave_the_others_alone():
    engine = tiny_engine(draft_seed=1)
    greedy = engine.generate(PROMPT, draft="none", max_new_tokens=30, ignore_eos=True)
    eos = next(t for i, t in enumerate(greedy.output.token_ids) if i > 4 and t not in greedy.output.token_ids[:i])
    text = greedy.output.text[6:9]
    own = [{"eos_token_id": eos}, {"max_new_tokens": 1}, {"stop": text}, {}, {"max_new_tokens": 300}]
    prompts = [PROMPT, PROMPT, PROMPT, [9, 8, 7], numbered(240)]
    options = {"draft": "model", "gamma": 4, "max_new_tokens": 30, "ignore_eos": False}
    runs = check_batch(engine, prompts, own, **options)
    reasons = [run.output.finish_reason for run in runs]
    assert reasons[:3] == ["eos", "length", "stop"]
    assert reasons[4] in ("context", "eos")
    assert len(runs[1].output.token_ids) == 1
    for run in runs[:1]:
        assert run.output.token_ids[-1] == eos


def test_adaptive_gamma_beside_fixed():
    engine = tiny_engine(draft_seed=1, std=0.15)
    own = [{"adaptive": True, "gamma": 8}, {"gamma": 2}, {"adaptive": True, "min_confidence": 0.1}]
    runs = check_batch(engine, PROMPTS[:3], own, draft="model", temperature=1.0, calibration=COSTS, max_new_tokens=20)
    assert runs[0].calibration == COSTS


def test_one_prompt_none_and_no_settings():
    engine = tiny_engine()
    assert engine.generate_batch([]) == []
    (run,) = engine.generate_batch([PROMPT], max_new_tokens=9, trace=False)
    assert run.output == engine.generate(PROMPT, max_new_tokens=9).output
    assert run.steps[0].tokens[-1].p is None
    runs = engine.generate_batch([PROMPT, PROMPT], [{"draft": "none"}, {}], draft="ngram", max_new_tokens=9)
    assert [run.draft.type for run in runs] == ["none", "ngram"]
    # Fields of a Settings hold all of them; a mapping leaves the others to the options.
    runs = engine.generate_batch([PROMPT, PROMPT], [Settings.of(max_new_tokens=3), {}], max_new_tokens=5)
    assert [len(run.output.token_ids) for run in runs] == [3, 5]


@pytest.mark.parametrize(
    ("prompts", "settings", "sentence"),
    [
        ([PROMPT, ""], [], "Prompt 2 of 2: The prompt is empty"),
        ([[5], [900]], [], "Prompt 2 of 2: The prompt holds 900"),
        ([[5], [6], [7]], [{}, {"gamma": 99}, {}], "Prompt 2 of 3: gamma must be"),
        ([[5], [6]], [{}, {"draft": "model"}], "Prompt 2 of 2: Draft type 'model' cannot be used: No draft model"),
        ([[5], [6]], [{}], "2 prompts and 1 settings: give one for each prompt"),
        ([[5], [6]], [{}, None], "Prompt 2 of 2: its settings must be a Settings or a mapping"),
        ([[5], [6]], [{1: 2}, {}], "Prompt 1 of 2: its settings must be a Settings or a mapping"),
        ([[5]], {"seed": 1}, "settings must be a list with one entry for each prompt, not dict"),
        ("a text", [], "prompts must be a list with one entry for each prompt, not str"),
        (None, [], "prompts must be a list with one entry for each prompt, not NoneType"),
    ],
)
def test_errors_name_the_prompt_at_once(prompts, settings, sentence):
    with pytest.raises(SettingsError, match=sentence):
        tiny_engine().generate_batch(prompts, settings)


def counted(model, monkeypatch):
    """How many texts each pass of `model` reads; prefill apart."""
    model.refuses_trees()  # tries passes of its own
    sizes, real = [], model.run
    monkeypatch.setattr(model, "run", lambda passes: sizes.append(len(passes)) or real(passes))
    return sizes


def test_passes_wanted_at_the_same_time_run_as_one(monkeypatch):
    engine = tiny_engine(draft_seed=0)
    target, draft = counted(engine.target, monkeypatch), counted(engine.draft_model, monkeypatch)
    masked = []
    real = engine.target._masked
    monkeypatch.setattr(engine.target, "_masked", lambda passes: masked.append(len(passes)) or real(passes))
    runs = engine.generate_batch(PROMPTS, draft="model", gamma=3, max_new_tokens=21, ignore_eos=True)
    assert all(len(run.steps) == 6 for run in runs)  # 5 of 4 tokens, and the last one
    assert target == masked == [5] * 6
    assert draft == [5] * 18


def test_trees_run_together_with_chains(monkeypatch):
    engine = tiny_engine(draft_seed=1)
    target = counted(engine.target, monkeypatch)
    runs = engine.generate_batch(PROMPTS[:3], [{"draft": d} for d in ("pool", "none", "ngram")], max_new_tokens=12)
    assert len(target) < sum(len(run.steps) for run in runs) / 1.5
    assert max(target) == 3


def test_a_model_that_cannot_be_masked_reads_its_texts_one_by_one(monkeypatch):
    engine = tiny_engine("gpt_neo")
    monkeypatch.setattr(engine.target, "_masked", lambda passes: pytest.fail("masked pass"))
    sizes = counted(engine.target, monkeypatch)
    runs = engine.generate_batch(PROMPTS[:3], draft="ngram", max_new_tokens=12)
    assert 3 in sizes
    assert 1 in sizes
    monkeypatch.undo()
    for run, prompt in zip(runs, PROMPTS[:3], strict=True):
        assert run.output == engine.generate(prompt, draft="ngram", max_new_tokens=12).output


def test_numbers_that_are_not_finite_end_the_batch_and_the_engine_stays_usable():
    engine = tiny_engine(draft_seed=1)
    expected = [run.output for run in engine.generate_batch(PROMPTS, draft="pool", max_new_tokens=8)]
    calls = [0]

    def damaged(module, args, result):
        calls[0] += 1
        result = result.clone()
        if calls[0] > 8:
            result[-1] = float("nan")  # in one text only
        return result

    hook = engine.target._model.model.layers[0].input_layernorm.register_forward_hook(damaged)
    with pytest.raises(NumericsError, match="not finite"):
        engine.generate_batch(PROMPTS, draft="pool", max_new_tokens=60, ignore_eos=True)
    hook.remove()
    assert [run.output for run in engine.generate_batch(PROMPTS, draft="pool", max_new_tokens=8)] == expected


def test_a_cancelled_batch_ends_every_run_and_leaves_the_engine_usable():
    engine = tiny_engine(draft_seed=1)
    asked = [0]

    def cancelled():
        asked[0] += 1
        return asked[0] > 60

    runs = engine.generate_batch(PROMPTS, draft="tree", max_new_tokens=100, ignore_eos=True, cancelled=cancelled)
    assert {run.output.finish_reason for run in runs} == {"cancelled"}
    for run in runs:
        check_counts(run)
    check_batch(engine, PROMPTS[:2], [{}, {}], draft="tree", max_new_tokens=6)


def test_a_stream_in_progress_is_told_that_a_batch_took_the_engine():
    engine = tiny_engine()
    first = engine.stream(PROMPT, draft="none")
    next(first)
    engine.generate_batch(PROMPTS[:2], max_new_tokens=3)
    with pytest.raises(SpecvizError, match="began another one"):
        next(first)
