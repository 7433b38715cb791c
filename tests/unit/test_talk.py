"""The sequence of talk mode: the one that ships is sound, and a broken file is told in one sentence."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr
import pytest

from specviz.errors import SettingsError
from specviz.ui.controls import create_controls
from specviz.ui.talk import FATES, KEYS, SCENES_MAX, SEQUENCE, SHOWS, read_scenes, scene_spec

GOOD = {"title": "A", "show": "run"}


@pytest.fixture(scope="module")
def spec() -> dict[str, dict[str, Any]]:
    with gr.Blocks():
        return scene_spec(create_controls())


def test_the_sequence_that_ships_tells_the_story(spec):
    scenes = read_scenes(SEQUENCE, spec)
    assert [scene["show"] for scene in scenes] == [
        "title", "run", "figures", "scope", "race", "why", "title", "title",
    ]  # fmt: skip
    assert all(scene["note"] for scene in scenes)
    assert all(set(scene) == set(KEYS) for scene in scenes)


def test_all_that_a_scene_may_hold(spec, tmp_path):
    settings = {"draft": "eagle-tree", "candidates": 3, "temperature": 0.5, "chat": False, "seed": 7, "rounds": 2}
    words = {"title": "Ünicode <b>", "text": "b", "prompt": "c\n", "note": "d"}
    scene = {**words, "show": "run", "settings": settings, "live": True}
    shows = [{"title": show, "show": show} for show in SHOWS]
    fates = [{"title": fate, "show": "scope", "token": fate} for fate in FATES]
    file = tmp_path / "talk.json"
    file.write_text(json.dumps([scene, *shows, *fates], ensure_ascii=False), encoding="utf-8")
    first, *others = read_scenes(file, spec)
    assert first == {**scene, "token": None}
    assert others[0] == dict.fromkeys(KEYS) | shows[0]
    assert len(others) == len(SHOWS) + len(FATES)


BROKEN = {
    "scene 1 is a list: write it": [[]],
    "scene 2 is the text 'x'": [GOOD, "x"],
    "must be a list of 1 to 99 scenes": [],
    "must be a list of": {"scenes": [GOOD]},
    f"1 to {SCENES_MAX} scenes in": [GOOD] * (SCENES_MAX + 1),
    "scene 1 has an unknown key 'promt': did you mean 'prompt'?": [GOOD | {"promt": "x"}],
    "unknown key 'zzz': there are title, text, show": [GOOD | {"zzz": 1}],
    "scene 1 has no title": [{"show": "run"}],
    "scene 2 has no show": [GOOD, {"title": "x"}],
    "scene 1: title must be a text, not the number 3": [{"title": 3, "show": "run"}],
    "title must be a text, not an empty one": [{"title": "", "show": "run"}],
    "title has 81 characters and 80 fit": [{"title": "x" * 81, "show": "run"}],
    "note must be a text, not null": [GOOD | {"note": None}],
    "show must be one of title, run, figures, scope, race, why, not 'rum'": [{"title": "x", "show": "rum"}],
    "show must be one of title, run, figures, scope, race, why, not a list": [{"title": "x", "show": ["run"]}],
    "token belongs to show scope, not to run": [GOOD | {"token": "rejected"}],
    "token must be one of accepted,": [{"title": "x", "show": "scope", "token": "discarded"}],
    "live must be true or false, not the number 1": [GOOD | {"live": 1}],
    "show why is neither": [{"title": "x", "show": "why", "live": True}],
    "scene 1: settings must be an object in { }, not a list": [GOOD | {"settings": []}],
    "settings has an unknown setting 'gama': did you mean 'gamma'?": [GOOD | {"settings": {"gama": 4}}],
    "unknown setting 'dtype'": [GOOD | {"settings": {"dtype": "int4"}}],
    "settings: gamma must be a whole number from 1 to 16, not 17": [GOOD | {"settings": {"gamma": 17}}],
    "gamma must be a whole number from 1 to 16, not 4.5": [GOOD | {"settings": {"gamma": 4.5}}],
    "gamma must be a whole number from 1 to 16, not true": [GOOD | {"settings": {"gamma": True}}],
    "gamma must be a whole number from 1 to 16, not the text '4'": [GOOD | {"settings": {"gamma": "4"}}],
    "temperature must be a number from 0 to 2, not nan": [GOOD | {"settings": {"temperature": float("nan")}}],
    "seed must be a whole number from 0 to 9007199254740991, not -1": [GOOD | {"settings": {"seed": -1}}],
    "rounds must be a whole number from 1 to 9, not 10": [GOOD | {"settings": {"rounds": 10}}],
    "draft must be one of none, ngram,": [GOOD | {"settings": {"draft": "magic"}}],
    "adaptive must be true or false": [GOOD | {"settings": {"adaptive": 1}}],
    "Rule 'block' verifies a chain": [GOOD | {"settings": {"verify": "block", "draft": "tree"}}],
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_sequence_is_told_in_one_sentence(spec, tmp_path, sentence):
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(BROKEN[sentence]), encoding="utf-8")
    with pytest.raises(SettingsError) as told:
        read_scenes(file, spec)
    words = str(told.value)
    assert words.startswith(f"The talk {file}")
    assert sentence in words
    assert "\n" not in words


def test_a_file_that_cannot_be_read_is_told(spec, tmp_path):
    with pytest.raises(SettingsError, match=r"Cannot read the talk .*none\.json: No such file"):
        read_scenes(tmp_path / "none.json", spec)
    for content, words in ((b"\xff", "not UTF-8 text"), (b"[", "not JSON"), (b"[" * 100_000, "not JSON")):
        file = tmp_path / "talk.json"
        file.write_bytes(content)
        with pytest.raises(SettingsError, match=words):
            read_scenes(file, spec)
