"""Who races: plain decoding and one to three drafts, each with gamma, candidates and adaptive of its own where given.

What cannot race is refused before a model is touched. Held by tests/unit/test_race.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specviz.errors import SettingsError
from specviz.settings import TITLES, Settings

ROUNDS_MAX = 20
DRAFTS_MAX = 3
PLAIN = "none"
#: What a lane may have of its own, with how a sentence says it.
OWN = {"gamma": "gamma {}", "candidates": "{} candidates", "adaptive": "adaptive"}

#: A draft type, "TYPE:gamma=8,candidates=3,adaptive", or a mapping with `draft` and the same names.
DraftSpec = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entrant:
    """`own` are the settings in which this lane differs from the others, its draft type included."""

    key: str
    name: str
    detail: str
    settings: Settings
    own: dict[str, Any]


def entrants(rounds: Any, drafts: Any, options: Mapping[str, Any]) -> list[Entrant]:
    """Plain decoding first, then the drafts in the order given.

    Args:
        options: settings that all lanes share.

    Raises:
        SettingsError: bad settings, or nothing to race against.
    """
    if not isinstance(rounds, int) or isinstance(rounds, bool) or not 1 <= rounds <= ROUNDS_MAX:
        raise SettingsError(f"rounds must be a whole number from 1 to {ROUNDS_MAX}, not {rounds!r}.")
    if "draft" in options:
        raise SettingsError("A race takes its drafts as a list, `drafts`, and not as `draft`.")
    if isinstance(drafts, (str, Mapping)) or not isinstance(drafts, Sequence):
        raise SettingsError(f"drafts must be a list of draft types, not {drafts!r}.")
    if not drafts:
        raise SettingsError("A race needs a draft beside plain decoding: name at least one.")
    if len(drafts) > DRAFTS_MAX:
        raise SettingsError(f"A race has at most {DRAFTS_MAX} drafts beside plain decoding, not {len(drafts)}.")
    found = [_entrant({"draft": PLAIN}, options), *(_entrant(parse(draft), options) for draft in drafts)]
    for number, lane in enumerate(found):
        if number and lane.settings.draft == PLAIN:
            raise SettingsError("A race needs a draft: 'none' is plain decoding, which has a lane of its own anyway.")
        if lane.key in (other.key for other in found[:number]):
            raise SettingsError(f"Two lanes are the same ({lane.key}): give them different settings.")
    return found


def parse(draft: DraftSpec) -> dict[str, Any]:
    """What a lane has of its own, from either way of writing it.

    Raises:
        SettingsError: a name that a lane cannot have for itself.
    """
    if isinstance(draft, Mapping):
        own = dict(draft)
    elif isinstance(draft, str):
        kind, _, rest = draft.partition(":")
        own = {"draft": kind.strip()}
        for part in rest.split(",") if rest else ():
            name, equals, value = (piece.strip() for piece in part.partition("="))
            own[name] = _number(value) if equals else True
    else:
        raise SettingsError(f"A lane is a draft type or a mapping, not {draft!r}.")
    if unknown := own.keys() - {"draft", *OWN}:
        names = ", ".join(sorted(map(str, unknown)))
        raise SettingsError(f"A lane has only its draft, {', '.join(OWN)} for itself, not {names}.")
    if "draft" not in own:
        raise SettingsError(f"This lane names no draft: {draft!r}.")
    return own


def _number(text: str) -> Any:
    """What is no number goes on as text, for `Settings` to refuse in its own sentence."""
    return int(text) if text.isdecimal() else {"true": True, "false": False}.get(text.lower(), text)


def _entrant(own: dict[str, Any], options: Mapping[str, Any]) -> Entrant:
    settings = Settings.of(**{**options, **own})
    given = [name for name in OWN if name in own]
    written = ",".join(name if own[name] is True else f"{name}={own[name]}" for name in given)
    words = [OWN[name].format(own[name]) for name in given if own[name] is not False]
    if own.get("adaptive") is False:
        words.append("fixed gamma")
    detail, title = ", ".join(words), TITLES[settings.draft]
    return Entrant(
        key=f"{settings.draft}:{written}" if written else settings.draft,
        name=f"{title} ({detail})" if detail else title,
        detail=detail,
        settings=settings,
        own=own,
    )


def orders(names: Sequence[str], rounds: int) -> list[list[str]]:
    """Who runs when, round by round: a Latin square, so that in as many rounds as there are lanes every lane stands
    once in every place, and with an even number of lanes each comes once behind every other (Williams 1949, balanced
    for carry-over; with an odd number in twice as many rounds)."""
    count = len(names)
    first = [0, *(place for step in range(1, count // 2 + 1) for place in (step, count - step))][:count]
    found = []
    for number in range(rounds):
        row = [names[(place + number) % count] for place in first]
        found.append(row[::-1] if count % 2 and (number // count) % 2 else row)
    return found
