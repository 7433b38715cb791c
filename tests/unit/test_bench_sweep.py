"""The page's sweep: small, bounded, stopped without losing what is whole."""

import pytest

from specviz.errors import SettingsError
from specviz.lab.bench.document import Bench
from specviz.lab.bench.runner import BenchCancelled, BenchProgress
from specviz.lab.bench.sweep import stream_sweep
from specviz.lab.prompts import first_of_each, read_prompts
from tests.conftest import tiny_engine
from tests.unit.checks import PROMPT

OPTIONS = {"max_new_tokens": 6, "ignore_eos": True}


@pytest.fixture(scope="module")
def engine():
    return tiny_engine(max_positions=512)


def test_a_sweep_measures_every_combination_and_shows_figures_without_results(engine):
    *progress, bench = stream_sweep(
        engine, PROMPT, drafts=["ngram", "pool"], gammas=[1, 2], candidates=[1, 2], **OPTIONS
    )
    assert all(isinstance(item, BenchProgress) for item in progress)
    names = [lane.name for lane in bench.lanes]
    assert len(names) == 1 + 2 + 4
    assert [row.lane for row in bench.summary.lanes] == names
    assert (bench.results, bench.readings) == ([], [])
    assert {item.lane for item in progress if item.rate} == {*names}
    assert bench.prompts[0].category == "your prompt"


def test_the_own_set_is_one_prompt_of_each_category(engine, monkeypatch):
    short = first_of_each(read_prompts(), 1)[:2]
    monkeypatch.setattr("specviz.lab.bench.sweep.read_prompts", lambda: [*short, *short[:1]])
    *_, bench = stream_sweep(engine, "", own_set=True, **OPTIONS)
    assert [prompt.id for prompt in bench.prompts] == [prompt.id for prompt in short]


def test_a_stopped_sweep_keeps_the_prompts_that_were_done(engine, monkeypatch):
    monkeypatch.setattr("specviz.lab.bench.sweep.read_prompts", lambda: first_of_each(read_prompts(), 1)[:2])
    stop = []
    seen = []
    for item in stream_sweep(engine, "", own_set=True, cancelled=lambda: bool(stop), **OPTIONS):
        seen.append(item)
        if isinstance(item, BenchProgress) and item.prompt == 2:
            stop.append(True)
    assert isinstance(seen[-1], Bench)
    assert (seen[-1].done, len(seen[-1].prompts)) == (1, 2)
    with pytest.raises(BenchCancelled):
        list(stream_sweep(engine, PROMPT, cancelled=lambda: True, **OPTIONS))


def test_a_sweep_that_is_too_large_or_empty_is_refused(engine):
    gammas = list(range(1, 18))
    with pytest.raises(SettingsError, match="would be 483 runs"):
        list(stream_sweep(engine, "", own_set=True, drafts=["pool"], gammas=gammas, candidates=[1, 2, 3, 4]))
    with pytest.raises(SettingsError, match="Choose a draft type"):
        list(stream_sweep(engine, PROMPT, drafts=[]))
