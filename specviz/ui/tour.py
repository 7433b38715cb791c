"""The tour: eight short stops from "why is decoding slow?" to "when does it lose?", as data for static/tour.js.

All its words stand here. Every stop works on the recorded run and race, so before any model has loaded; what needs the
model says so. Held by tests/unit/test_tour.py and tests/browser/test_tour.py.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

#: The preset that the last stop takes: free prose, long drafts made of word statistics.
HARD_PRESET = "Tell a story"
SMALL_GAMMA, LARGE_GAMMA = 1, 8


@dataclass(frozen=True, slots=True)
class Show:
    """A button of a stop, which drives the page's own controls.

    Args:
        label: what stands on it.
        act: the function of static/tour.js that it calls, with `given`.
        at: CSS selectors; the first one visible is outlined and brought into view afterwards.
        needs: the button of the page that it presses: off for as long as that one is.
    """

    label: str
    act: str
    at: tuple[str, ...]
    given: str | int | None = None
    needs: Literal["run", "race", "prove"] | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop of the tour.

    Args:
        words: sentences, one paragraph each.
        to_try: ends the stop: something to do by oneself.
        at: CSS selectors of what it speaks about, as in `Show`.
        still: the sentence said in addition where motion is reduced, or None.
    """

    title: str
    words: tuple[str, ...]
    shows: tuple[Show, ...]
    to_try: str
    at: tuple[str, ...]
    still: str | None = None


_SCOPE = (".sv-scope", ".sv-run .sv-stream")
_STRIPS = (".sv-race .sv-strips", ".sv-race")
_STREAM = (".sv-run .sv-stream",)

STOPS = (
    Stop(
        "Why is decoding slow?",
        (
            "To write one token (a word or a piece of one) a language model makes one pass: all its weights are read "
            "for that single token.",
            "Plain decoding is nothing but such passes. In the race its lane is a row of them, one token each.",
        ),
        (Show("Show me", "race_slowly", _STRIPS),),
        "Drag the race's bar slowly: each verify block of the plain lane adds one token.",
        _STRIPS,
    ),
    Stop(
        "The draft proposes",
        (
            "A draft is anything cheap that guesses the next tokens: a small model, a few layers, or a copy of what "
            "stood in the text before.",
            "In each step it proposes up to gamma tokens. Until the target has read them they stand in a dashed "
            "outline.",
        ),
        (Show("Show me", "run_slowly", _STREAM),),
        "Pause the run and use the two step buttons beside Pause: each press is one step.",
        _STREAM,
        "Your device asks for less motion: drafts come with their verdict, without outlines.",
    ),
    Stop(
        "One pass checks them all",
        (
            "The target reads all proposed tokens at once. That often costs little more than reading one, because "
            "the weights are read once either way.",
            "What one pass gave stands between two thin strokes.",
        ),
        (Show("Show me", "kept_step", _SCOPE),),
        "Click a token in another step, then 2 Verify: it says what that pass read and how long it took.",
        _STREAM,
    ),
    Stop(
        "Why was this token rejected?",
        (
            "p is the target's probability of the token, q the draft's. The usual rule keeps it with chance "
            "min(1, p/q): a random number u from 0 to 1 is drawn, and the token stays if u is below that.",
            "At temperature 0 that comes down to this: it stays only if it is the target's most likely token.",
        ),
        (Show("Show me", "rejected_token", _SCOPE),),
        "Click another token that is struck through and read 1 Draft, 2 Verify and 3 Decide.",
        _STREAM,
    ),
    Stop(
        "What is written instead?",
        (
            "The target draws a token of its own, from the residual: what is left of p once q is taken away. So the "
            "text is as likely as if the target had written alone.",
            "The Proof pane works that out for every possible text; it needs no model.",
        ),
        (
            Show("Show me", "resampled_token", _SCOPE),
            Show("Prove it", "prove", (".sv-proof-panel",), needs="prove"),
        ),
        "In the Proof pane choose a mistake and press Prove it: the verdict becomes Not lossless.",
        _SCOPE,
    ),
    Stop(
        "Gamma: how many to draft?",
        (
            "Gamma is the number of tokens that a step drafts. More can be won with a larger one, and more is thrown "
            "away when the draft is wrong.",
            "A step gives at most gamma + 1 tokens.",
        ),
        (
            Show(f"Run with {SMALL_GAMMA}", "run_with_gamma", (".sv-run .sv-figures",), SMALL_GAMMA, "run"),
            Show(f"Run with {LARGE_GAMMA}", "run_with_gamma", (".sv-run .sv-figures",), LARGE_GAMMA, "run"),
        ),
        f"Compare the tokens per target pass of both: with gamma {SMALL_GAMMA} they cannot be above {SMALL_GAMMA + 1}.",
        ("#sv-gamma", ".sv-fold"),
    ),
    Stop(
        "Is it faster? The race",
        (
            "Only a clock can say. Each lane runs alone on the device; the speed-up is the median of the rounds, "
            "and its range says how sure that is.",
            "“Why?” explains it by four numbers: α, the chance that a draft token is accepted, and c, v and h: what "
            "drafting, checking and the host's work take.",
        ),
        (
            Show("Play the race", "race_play", _STRIPS),
            Show("Why?", "look", (".sv-race .sv-whys",)),
        ),
        "Read the range under the speed-up: is all of it above 1×? Then press Race for your own prompt.",
        (".sv-race .sv-verdict", ".sv-race"),
    ),
    Stop(
        "When does it lose?",
        (
            "When the draft is often refused, when it costs nearly as much as the target, or when the pass that "
            "checks gets slow with many tokens. Free prose with long drafts is such a case.",
            "Adaptive chooses gamma step by step and drafts nothing where that does not pay.",
        ),
        (
            Show("Hard prompt", "preset", ("#sv-prompt",), HARD_PRESET),
            Show("Race it", "race", (".sv-race",), needs="race"),
        ),
        "If the draft loses, tick Adaptive and race again: how much of the loss is left?",
        ("#sv-adaptive", ".sv-fold"),
    ),
)


def stops_json() -> str:
    """`STOPS` as the value of a TourView."""
    return json.dumps([asdict(stop) for stop in STOPS])
