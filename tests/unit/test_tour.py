"""The tour's words: eight stops, each with something to try, and nothing said that the page does not hold."""

from __future__ import annotations

import json
import re

import pytest

from specviz.settings import GAMMA_MAX, GAMMA_MIN
from specviz.ui import recorded, tour
from specviz.ui.components import STATIC, Fold

STATICS = "".join(path.read_text() for path in STATIC.glob("*.html")) + Fold.template


def test_eight_stops_each_ending_in_something_to_try():
    stops = json.loads(tour.stops_json())
    assert [stop["title"] for stop in stops] == [stop.title for stop in tour.STOPS]
    assert len(stops) == 8
    assert stops[0]["title"].startswith("Why is decoding slow")
    assert stops[-1]["title"].startswith("When does it lose")
    for stop in stops:
        assert stop["to_try"].strip()
        assert stop["shows"]
        sentences = re.findall(r"[.?!](?=\s|$)", " ".join(stop["words"]))
        assert 2 <= len(sentences) <= 5, stop["title"]
        assert len(" ".join(stop["words"])) < 400, stop["title"]


def test_what_needs_no_model_is_shown_at_every_stop_but_one():
    """Where the model is missing only the stop on gamma has nothing to press."""
    without = [stop.title for stop in tour.STOPS if all(show.needs in ("run", "race") for show in stop.shows)]
    assert without == ["Gamma: how many to draft?"]


def test_the_hard_prompt_is_a_preset_of_long_random_drafts():
    (preset,) = [preset for preset in recorded.prompts() if preset["title"] == tour.HARD_PRESET]
    assert preset["gamma"] >= 8
    assert preset["temperature"] >= 1
    assert "loses" in preset["note"]


def test_gammas_can_be_set():
    assert GAMMA_MIN <= tour.SMALL_GAMMA < tour.LARGE_GAMMA <= GAMMA_MAX


@pytest.mark.parametrize("stop", tour.STOPS, ids=lambda stop: stop.title)
def test_the_controls_named_are_on_the_page(stop):
    """Words on buttons and classes outlined are those of the page's own templates."""
    for selector in {where for part in (stop, *stop.shows) for where in part.at}:
        for name in re.findall(r"\.(sv-[\w-]+)", selector):
            assert name in STATICS + "sv-proof-panel", selector
    for words in re.findall(r"verify|close up", stop.to_try):
        assert words in STATICS
