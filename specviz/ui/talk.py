"""Talk mode: a prepared sequence of scenes that the page's own views are led through, large and one at a time.

A sequence is data and runs nothing: it is checked whole before the page starts, so that nothing is found out on a
stage. Held by tests/unit/test_talk.py and tests/browser/test_talk.py.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from specviz.errors import SettingsError
from specviz.settings import TREES, Settings
from specviz.ui.ask import Ask
from specviz.ui.components import TalkView
from specviz.ui.controls import Controls
from specviz.ui.jobs import QUIET
from specviz.ui.recorded import ASSETS
from specviz.ui.share import link_spec

SEQUENCE = ASSETS / "talk.json"
#: What a scene shows: words alone; the tokens of the run as they come; its three figures; the microscope on one token,
#: beat by beat; the lanes of the race; its verdict and why.
SHOWS = ("title", "run", "figures", "scope", "race", "why")
#: Tokens that the microscope can be put on: the first of this fate that has a text to be seen.
FATES = ("accepted", "rejected", "resampled", "bonus", "sampled")
TEXTS = {"title": 80, "text": 320, "note": 2000, "prompt": 8000}  # at most so many characters
KEYS = ("title", "text", "show", "token", "prompt", "settings", "live", "note")
SCENES_MAX = 99


@dataclass
class Talk:
    """The view, and which controls a scene sets: `parts` in the order of `given`."""

    view: TalkView
    parts: list[gr.components.Component]


def create_talk(ask: Ask, controls: Controls, file: str | Path | None = None) -> Talk:
    """The view, created in the current gradio context.

    Args:
        file: a sequence other than `SEQUENCE`.

    Raises:
        SettingsError: the file cannot be read or is not a sequence; one sentence with file, scene and fault.
    """
    spec = scene_spec(controls)
    scenes = read_scenes(Path(file).expanduser() if file else SEQUENCE, spec)
    defaults = {name: kind["default"] for name, kind in spec.items()}
    value = json.dumps({"scenes": scenes, "defaults": defaults})
    parts = [ask.prompt, *(getattr(controls, name) for name in spec)]
    return Talk(TalkView(value, elem_id="sv-talk-view"), parts)


def wire_talk(talk: Talk, read: gr.events.Dependency) -> None:
    """In the browser alone: `read`, which fills the page from its address, comes first; then each scene sets the
    controls, and what it starts is started once they are set."""
    ready = "while (!window.specviz?.talk) await new Promise(done => setTimeout(done, 20));"
    read.then(None, None, None, js=f"async () => {{ {ready} window.specviz.talk.ready(); }}", **QUIET)
    talk.view.fill(
        None, talk.parts, talk.parts, js="(...now) => window.specviz.talk.fill(now)", trigger_mode="multiple", **QUIET
    ).then(None, None, None, js="() => { window.specviz.talk.filled(); }", **QUIET)


def scene_spec(controls: Controls) -> dict[str, dict[str, Any]]:
    """The settings that a scene may name, as in `link_spec`: those of a link, and the rounds of a race."""
    rounds = controls.rounds
    kind = {"default": rounds.value, "kind": "whole", "low": rounds.minimum, "high": rounds.maximum}
    return {**link_spec(controls), "rounds": kind}


def read_scenes(file: Path, spec: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The scenes of a sequence as the view takes them: every key there, those left out as null.

    Raises:
        SettingsError: see `create_talk`.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"Cannot read the talk {file}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"Cannot read the talk {file}: it is not UTF-8 text (byte {error.start}).") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"Cannot read the talk {file}: it is not JSON ({error}).") from error
    if not isinstance(data, list) or not 1 <= len(data) <= SCENES_MAX:
        raise SettingsError(f"The talk {file} must be a list of 1 to {SCENES_MAX} scenes in [ ].")
    return [_scene(scene, f"The talk {file}, scene {number}", spec) for number, scene in enumerate(data, 1)]


def _scene(scene: Any, where: str, spec: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if not isinstance(scene, dict):
        raise SettingsError(f"{where} is {_kind(scene)}: write it as an object in {{ }} with a title and a show.")
    _known(scene, KEYS, where, "key")
    for name, most in TEXTS.items():
        if name in scene:
            _text(scene[name], f"{where}: {name}", most)
    for name in ("title", "show"):
        if name not in scene:
            raise SettingsError(f"{where} has no {name}: every scene needs a title and a show.")
    _choice(scene["show"], SHOWS, f"{where}: show")
    if "token" in scene:
        if scene["show"] != "scope":
            raise SettingsError(f"{where}: token belongs to show scope, not to {scene['show']}: leave it out.")
        _choice(scene["token"], FATES, f"{where}: token")
    _live(scene, where)
    if "settings" in scene:
        _settings(scene["settings"], f"{where}: settings", spec)
    return dict.fromkeys(KEYS) | scene


def _live(scene: dict[str, Any], where: str) -> None:
    live = scene.get("live", False)
    if not isinstance(live, bool):
        raise SettingsError(f"{where}: live must be true or false, not {_kind(live)}.")
    if live and scene["show"] not in ("run", "race"):
        raise SettingsError(f"{where}: live starts a run or a race, and show {scene['show']} is neither: leave it out.")


def _settings(given: Any, where: str, spec: dict[str, dict[str, Any]]) -> None:
    if not isinstance(given, dict):
        raise SettingsError(f"{where} must be an object in {{ }}, not {_kind(given)}.")
    _known(given, tuple(spec), where, "setting")
    for name, value in given.items():
        _setting(value, f"{where}: {name}", **spec[name])
    # As a link has it: a rule that cannot judge the draft would stand on the page as a choice that is off.
    named = {name: given.get(name, spec[name]["default"]) for name in ("draft", "verify")}
    if named["verify"] == "block" and named["draft"] in TREES:
        try:
            Settings.of(**named)
        except SettingsError as error:
            raise SettingsError(f"{where}: {error}") from error


def _setting(
    value: Any,
    where: str,
    kind: str,
    default: Any,
    choices: list[str] | None = None,
    low: float = 0,
    high: float = 0,
) -> None:
    if kind == "choice":
        _choice(value, tuple(choices or ()), where)
    elif kind == "flag":
        if not isinstance(value, bool):
            raise SettingsError(f"{where} must be true or false, not {_kind(value)}.")
    else:
        what = "whole number" if kind == "whole" else "number"
        fits = isinstance(value, int if kind == "whole" else int | float) and not isinstance(value, bool)
        # NaN fails both comparisons.
        if not fits or not (value >= low and value <= high):
            shown = value if isinstance(value, int | float) and not isinstance(value, bool) else _kind(value)
            raise SettingsError(f"{where} must be a {what} from {low:g} to {high:.16g}, not {shown}.")


def _known(given: dict[str, Any], names: tuple[str, ...], where: str, what: str) -> None:
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}."
            raise SettingsError(f"{where} has an unknown {what} {_short(name)}: {hint}")


def _text(value: Any, where: str, most: int) -> None:
    if not isinstance(value, str) or not value.strip():
        raise SettingsError(f"{where} must be a text, not {'an empty one' if value == '' else _kind(value)}.")
    if len(value) > most:
        raise SettingsError(f"{where} has {len(value)} characters and {most} fit: make it shorter.")


def _choice(value: Any, choices: tuple[str, ...], where: str) -> None:
    if not isinstance(value, str) or value not in choices:
        shown = _short(value) if isinstance(value, str) else _kind(value)
        raise SettingsError(f"{where} must be one of {', '.join(choices)}, not {shown}.")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _kind(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {_short(value)}" if value.strip() else "an empty text"
    return {list: "a list", dict: "an object"}.get(type(value), f"the number {value}")
