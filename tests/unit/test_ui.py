"""The page's Python: feeds, figures, recordings, settings and the bookkeeping of pages; no browser, no model."""

from __future__ import annotations

import dataclasses
import json
import re
import types
from collections.abc import Iterator

import gradio as gr
import pytest

from specviz import trace
from specviz.errors import SettingsError
from specviz.lab.proof import prove
from specviz.lab.race import Race
from specviz.lab.race import race as lab_race
from specviz.settings import DRAFTS, RULES, TREES, Settings
from specviz.summary import summarise
from specviz.ui import plots, recorded
from specviz.ui.components import STATIC
from specviz.ui.controls import Controls, create_controls, race_options, values
from specviz.ui.feed import Feed, run_events
from specviz.ui.jobs import stream
from specviz.ui.pages import Pages
from specviz.ui.proof import with_figures
from specviz.ui.words import NEEDS, draft_words, rule_words
from tests.conftest import tiny_engine

SUMMARY = {
    "by_position": [
        {
            "position": 1,
            "proposed": 9,
            "tested": 8,
            "accepted": 6,
            "rate": 0.75,
            "low": 0.4,
            "high": 0.93,
            "reach_rate": 0.67,
        },
        {
            "position": 2,
            "proposed": 9,
            "tested": 0,
            "accepted": 0,
            "rate": None,
            "low": None,
            "high": None,
            "reach_rate": 0.0,
        },
    ]
}


def make_run(text: str = "a") -> trace.Run:
    token = trace.Token(position=3, id=1, text=text, fate="sampled", parent=-1, p=0.5)
    step = trace.Step(0, 0.0, 0.5, 0.0, 0.4, 0.1, 0, "none", 2, 3, None, [token])
    return trace.Run(
        id="r",
        created_at="2026-01-02T03:04:05Z",
        app_version="0",
        device=trace.Device("CPU", "cpu", "float32", 1, "transformers"),
        target=trace.Target("tiny", 1),
        draft=trace.Draft("none"),
        settings=Settings().to_dict(),
        prompt=trace.Prompt("hi", [1, 2, 3]),
        steps=[step],
        output=trace.Output([1], text, "length"),
    )


@pytest.mark.parametrize("text", ["a\nb", "\u2028", "\u0000", "</script>", "{{7*7}}", "\u202e", "\U0001f389"])
def test_feed_only_grows_and_holds_one_event_a_line(text):
    feed = Feed(7)
    before = feed.text
    after = feed.add(*run_events(make_run(text).to_dict()))
    assert after.startswith(before)
    lines = [json.loads(line) for line in after.split("\n")[:-1]]
    assert lines[0] == {"type": "page", "number": 7, "recorded": False}
    assert [line["type"] for line in lines[1:]] == ["run", "step", "end"]
    assert lines[2]["step"]["tokens"][0]["text"] == text
    assert after.isascii()


def test_feed_refuses_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        Feed(1).add({"type": "step", "p": float("nan")})


def test_step_figure_has_the_four_traces_the_browser_appends_to():
    figure = plots.acceptance_per_step()
    assert [trace["name"] for trace in figure["data"]] == ["accepted", "rejected", "discarded", "rate so far"]
    assert all(list(trace["x"]) == [] for trace in figure["data"])
    json.dumps(figure)


def test_position_figure_shows_the_summary_s_own_numbers():
    points, reach = plots.acceptance_by_position(SUMMARY)["data"]
    assert points["x"] == [1]
    assert points["y"] == [0.75]
    assert points["error_y"]["array"] == pytest.approx([0.18])
    assert points["error_y"]["arrayminus"] == pytest.approx([0.35])
    assert points["customdata"] == [[6, 8]]
    assert reach["y"] == [0.67]


def test_position_figure_says_when_there_is_nothing():
    figure = plots.acceptance_by_position({"by_position": []})
    assert "No draft token" in figure["layout"]["annotations"][0]["text"]


def test_figures_leave_the_theme_to_the_page():
    proof = prove(samples=500).to_dict()
    made = (
        plots.acceptance_per_step(),
        plots.acceptance_by_position(SUMMARY),
        plots.distances(proof),
        plots.law(proof),
    )
    for figure in made:
        assert "template" not in figure["layout"]
        assert figure["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"
        assert "color" not in figure["layout"]["font"]


def test_recorded_run_and_its_figures_come_first(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(make_run().to_json(), encoding="utf-8")
    lines = [json.loads(line) for line in recorded.run_feed(path).splitlines()]
    assert lines[0]["recorded"] is True
    assert [line["type"] for line in lines[1:]] == ["figure", "run", "step", "end", "figure", "figure"]


@pytest.mark.parametrize("content", [None, "{", '{"schema": "other/1"}', "[]"])
def test_a_bad_recording_leaves_the_pane_empty(tmp_path, content):
    path = tmp_path / "file.json"
    if content is not None:
        path.write_text(content)
    assert [json.loads(line)["type"] for line in recorded.run_feed(path).splitlines()] == ["page", "figure"]
    assert [json.loads(line)["type"] for line in recorded.race_feed(path).splitlines()] == ["page"]


def test_recorded_race_keeps_the_shown_run_alone(tmp_path):
    path = tmp_path / "race.json"
    race = lab_race(tiny_engine(), "the draft", rounds=3, max_new_tokens=6)
    path.write_text(race.to_json())
    shown = Race.from_dict(json.loads(recorded.race_feed(path).splitlines()[1])["race"])
    assert [lane.runs for lane in shown.lanes] == [[lane.runs[lane.shown]] for lane in race.lanes]


def test_recordings_that_ship_are_real_and_whole():
    run = trace.Run.from_json((recorded.ASSETS / "recorded" / "run.json").read_text())
    race = Race.from_json((recorded.ASSETS / "recorded" / "race.json").read_text())
    assert run.output.finish_reason in ("eos", "length")
    assert run.summary == summarise(run.steps)
    assert [lane.draft for lane in race.lanes] == ["none", "hybrid"]
    assert race.lanes[1].why is not None
    assert race.rounds >= 3


def test_presets_can_be_run():
    presets = recorded.prompts()
    assert len(presets) >= 2
    for preset in presets:
        assert set(preset) == {"title", "prompt", "draft", "gamma", "temperature", "note"}
        assert all(preset[name].strip() for name in ("title", "prompt", "note"))
        Settings.of(**{name: preset[name] for name in ("draft", "gamma", "temperature")})


def test_the_scripts_name_every_draft_as_the_page_does():
    text = (STATIC / "base.js").read_text(encoding="utf-8")
    names = text[text.index("sv.DRAFT_NAMES = {") :].partition("{")[2].partition("}")[0]
    found = dict(re.findall(r'"?([\w-]+)"?: "([^"]+)"', names))
    assert found == {word["value"]: word["name"] for word in json.loads(draft_words())}


def test_controls_give_settings_that_hold():
    default = Settings()
    order = [field.name for field in dataclasses.fields(Controls)]
    assert {name for name in order if not hasattr(default, name)} == {"dtype", "rounds", "also"}
    given = {name: getattr(default, name, None) for name in order}
    given |= {"chat": True, "dtype": "auto", "rounds": 3, "also": ["pool"]}
    settings, dtype, race = values(tuple(given[name] for name in order))
    assert (dtype, race) == ("auto", {"rounds": 3, "also": ["pool"]})
    assert race_options(settings, race)["drafts"] == [default.draft, "pool"]
    assert race_options(settings | {"draft": "pool"}, race)["drafts"] == ["pool"]
    assert race_options(settings | {"draft": "none"}, race)["drafts"] == ["pool"]
    assert race_options(settings | {"draft": "none"}, race | {"also": None})["drafts"] == ["none"]
    assert Settings.of(**settings) == default
    settings, _, _ = values(tuple((given | {"chat": False})[name] for name in order))
    assert settings["chat"] is False


def test_every_draft_type_and_rule_has_its_words():
    drafts, rules = json.loads(draft_words()), json.loads(rule_words())
    assert [word["value"] for word in drafts] == list(DRAFTS)
    assert [word["value"] for word in rules] == list(RULES)
    assert all(word["name"] and word["sentence"].endswith(".") for word in drafts + rules)


def test_the_page_refuses_what_the_settings_refuse():
    """Each clash that the pickers know is refused by Settings, and none is missing."""
    clashes = {(word["value"], rule) for word in json.loads(draft_words()) if word["clash"] for rule in ["block"]}
    (block,) = [word for word in json.loads(rule_words()) if word["clash"]]
    assert clashes == {(draft, block["value"]) for draft in block["clash"]["values"]}
    refused = set()
    for draft in DRAFTS:
        for rule in RULES:
            try:
                Settings.of(draft=draft, verify=rule)
            except SettingsError:
                refused.add((draft, rule))
    assert clashes == refused


def test_controls_that_do_nothing_are_known():
    assert set(NEEDS["sv-gamma"]["types"]) == set(DRAFTS) - {"none"}
    assert NEEDS["sv-candidates"]["types"] == TREES
    assert not {name for need in NEEDS.values() for names in need.values() for name in names} - set(DRAFTS)


@pytest.fixture(scope="module")
def proofs():
    """The real thing and a mistake, as the page gets them."""
    return {name: prove(samples=500, mistake=name).to_dict() for name in (None, "softmax-residual")}


def test_distances_show_the_proof_s_own_numbers(proofs):
    for proof in proofs.values():
        figure = plots.distances(proof)
        assert [trace["x"] for trace in figure["data"]] == [[proof["tv_exact"]], [proof["tv"]]]
        band, middle = figure["layout"]["shapes"]
        assert (band["x0"], band["x1"], middle["x0"]) == tuple(
            proof["floor"][name] for name in ("low", "high", "median")
        )
        assert figure["layout"]["xaxis"]["range"][1] > max(proof["tv"], proof["tv_exact"])


def test_distances_leave_out_what_cannot_be_enumerated(proofs):
    (sampled,) = plots.distances(proofs[None] | {"tv_exact": None})["data"]
    assert sampled["name"] == "sampled"


def test_law_shows_the_likeliest_texts_and_those_it_excludes(proofs):
    bars, marks = plots.law(proofs[None])["data"]
    shown = proofs[None]["cells"][: plots.CELLS_MOST]
    assert list(bars["x"]) == [cell["text"] for cell in shown]
    assert list(bars["y"]) == [cell["expected"] for cell in shown]
    assert list(marks["y"]) == [cell["observed"] for cell in shown]
    bars, _, excluded = plots.law(proofs["softmax-residual"])["data"]
    expected = {cell["text"]: cell["expected"] for cell in proofs["softmax-residual"]["cells"]}
    assert all(expected[text] == 0 for text in excluded["x"])
    assert len(bars["x"]) + len(excluded["x"]) == plots.CELLS_MOST


def test_a_proof_brings_its_figures(proofs):
    lines = with_figures({"type": "proof", "proof": proofs[None]})
    assert [line.get("name", line["type"]) for line in lines] == ["proof", "distance", "law"]
    assert "cells" not in lines[0]["proof"]
    assert with_figures({"type": "proof_progress", "done": 0, "of": 1}) == [
        {"type": "proof_progress", "done": 0, "of": 1}
    ]


class FakeSession:
    def __init__(self) -> None:
        self.stops = 0
        self.drafts: list[str] | None = None

    def run(self, prompt: str, **settings) -> Iterator:
        self.drafts = []
        return iter([])

    def swap(self, draft: str) -> bool:
        if self.drafts is not None:
            self.drafts.append(draft)
        return self.drafts is not None

    def stop(self) -> None:
        self.stops += 1


class FakeHost:
    def session(self) -> FakeSession:
        return FakeSession()


class Events:
    """An iterator that knows whether it was begun and closed."""

    def __init__(self, batches: list) -> None:
        self.closed = False
        self._batches = iter(batches)

    def __iter__(self) -> Iterator:
        return self._batches

    def close(self) -> None:
        self.closed = True


def test_pages_are_told_apart_and_forgotten():
    pages = Pages(FakeHost())
    one = pages.of("one")
    assert pages.of("one") is one
    assert pages.of("two") is not one
    pages.close("one")
    assert one.session.stops == 1
    assert len(pages) == 1
    pages.close("one")


def test_closing_a_job_closes_its_events():
    page = Pages(FakeHost()).of("one")
    events = Events([[{"type": "run"}], [{"type": "end"}]])
    job = page.batches(page.next_number(), events)
    next(job)
    job.close()
    assert events.closed


def test_a_stop_before_the_job_has_begun_still_stops_it():
    page = Pages(FakeHost()).of("one")
    number = page.next_number()
    page.stop()
    events = Events([[{"type": "run"}]])
    assert list(page.batches(number, events)) == [[{"type": "stopped"}]]
    assert events.closed


def test_a_stop_while_the_job_begins_reaches_the_session():
    page = Pages(FakeHost()).of("one")
    number = page.next_number()
    job = page.batches(number, Events([[{"type": "run"}], [{"type": "step"}], [{"type": "end"}]]))
    next(job)
    page.stop()
    page.session.stops = 0
    list(job)
    assert page.session.stops == 1


def test_a_stop_of_an_old_run_does_not_stop_the_next():
    page = Pages(FakeHost()).of("one")
    page.next_number()
    page.stop()
    page.session.stops = 0
    assert len(list(page.batches(page.next_number(), Events([[{"type": "end"}]])))) == 1
    assert page.session.stops == 0


def test_an_older_choice_of_draft_never_wins():
    page = Pages(FakeHost()).of("one")
    page.begin_run(0, "hi")
    page.swap(2, "tree")
    page.swap(1, "ngram")
    assert page.session.drafts == ["tree"]


@pytest.mark.parametrize(("picks", "seen"), [(2, ["tree"]), (3, [])])
def test_a_choice_that_overtakes_its_run_is_not_lost(picks, seen):
    """Choice 3 reaches the server before the run; whether the run was sent before or after it, `picks` says."""
    page = Pages(FakeHost()).of("one")
    page.swap(3, "tree")
    page.begin_run(picks, "hi")
    assert page.session.drafts == seen


@pytest.mark.parametrize("seed", [2**53, 1e23])
def test_a_seed_that_the_browser_has_rounded_is_refused_in_its_view(seed):
    """Where the browser may have changed it nothing runs; the view says what to do, and the page is free again."""
    given = Settings().to_dict() | {"dtype": "auto", "rounds": 3, "also": [], "chat": True, "seed": seed}
    pages = Pages(FakeHost())
    begin = lambda _: values(tuple(given[name] for name in Controls.__dataclass_fields__))  # noqa: E731
    updates = list(stream(pages, types.SimpleNamespace(session_hash="one"), begin))
    _, error = (json.loads(line) for line in updates[-1][0].splitlines())
    assert error["type"] == "error"
    assert "rounds whole numbers above 9007199254740991" in error["message"]
    assert not pages.of("one").busy


def test_half_a_seed_is_refused_and_not_rounded():
    with gr.Blocks():
        seed = create_controls().seed
    with pytest.raises(SettingsError, match="seed must be a whole number"):
        Settings.of(seed=seed.preprocess(1.5))
    assert Settings.of(seed=seed.preprocess(2**53 - 1)).seed == 2**53 - 1


def test_a_page_is_busy_until_its_last_job_has_ended():
    """A run that takes over from another: the end of the first is not the end of all."""
    page = Pages(FakeHost()).of("one")
    first, second = page.next_number(), page.next_number()
    page.ended(first)
    assert page.busy
    page.ended(second)
    page.ended(second)
    assert not page.busy
