"""The result of a race in sentences, also when speculation loses. Held by tests/unit/test_race.py."""

from __future__ import annotations

from collections.abc import Sequence

from specviz.lab.race.document import Divergence, Lane, Spread
from specviz.trace import Run

#: Rounds and gap below which no winner is called.
ROUNDS_ENOUGH, DEAD_HEAT = 3, 0.02


def fastest(lanes: Sequence[Lane]) -> tuple[str | None, Spread]:
    """(key of the lane that is faster than every other in all rounds, None when it is too close to call or the rounds
    are too few; the rate of the lane with the best median over that of the next)."""
    first, second, *others = sorted(lanes, key=lambda lane: lane.tokens_per_second.median, reverse=True)
    lead = _over(first, second)
    ahead = all(_over(first, other).low > 1 + DEAD_HEAT for other in (second, *others))
    return (first.key if ahead and len(first.runs) >= ROUNDS_ENOUGH else None), lead


def _over(lane: Lane, other: Lane) -> Spread:
    """How many times as fast, round by round."""
    pairs = zip(lane.runs, other.runs, strict=True)
    return Spread.of([a.summary.tokens_per_second / b.summary.tokens_per_second for a, b in pairs])


def verdict(lanes: Sequence[Lane], winner: str | None, lead: Spread) -> str:
    """Who won, in words; with one draft the verdict of its lane says it all."""
    drafts = lanes[1:]
    return drafts[0].verdict if len(drafts) == 1 else _of_several(lanes, winner, lead)


def _of_several(lanes: Sequence[Lane], winner: str | None, lead: Spread) -> str:
    first, second, *_ = sorted(lanes, key=lambda lane: lane.tokens_per_second.median, reverse=True)
    rounds = len(first.runs)
    if rounds < ROUNDS_ENOUGH:
        return f"{_few(rounds)} {first.name} was the fastest of {len(lanes)} lanes; that is too few to call a winner."
    if winner is None:
        said = (
            f"Too close to call between {first.name} and {second.name}: the first runs at {lead.median:.2f} times the "
            f"speed of the second ({_span(lead, rounds)})."
        )
        slower = [lane for lane in lanes[1:] if lane.speedup.high < 1 - DEAD_HEAT]
        return f"{said} {_losers(slower)}".strip()
    if first is lanes[0]:
        return (
            f"Speculation loses: no draft is as fast as plain decoding. The best, {second.name}, runs at "
            f"{second.speedup.median:.2f} times its speed ({_span(second.speedup, rounds)})."
        )
    said = (
        f"Speculation wins: {first.name} is the fastest at {first.speedup.median:.2f} times the speed of plain "
        f"decoding ({_span(first.speedup, rounds)})"
    )
    if second is not lanes[0]:
        said += f" and {lead.median:.2f} times that of {second.name} ({_span(lead, rounds)})"
    slower = [lane for lane in lanes[1:] if lane.speedup.high < 1 - DEAD_HEAT]
    return f"{said}. {_losers(slower)}".strip()


def _losers(lanes: Sequence[Lane]) -> str:
    if not lanes:
        return ""
    names = " and ".join(lane.name for lane in lanes)
    return f"Slower than plain decoding: {names}."


def lane_verdict(lane: Lane, plain: Run) -> str:
    """How one draft did against plain decoding, and which of its two factors decided.

    Args:
        plain: the round of plain decoding that is shown.
    """
    draft, speedup, rounds = lane.runs[lane.shown], lane.speedup, len(lane.runs)
    speed = f"{speedup.median:.2f} times the speed of plain decoding"
    span = _span(speedup, rounds)
    if rounds < ROUNDS_ENOUGH:
        opening = f"{_few(rounds)} {lane.name} ran at {speed}; that is too few to call a winner."
    elif speedup.low > 1 + DEAD_HEAT:
        opening = f"Speculation wins: {lane.name} runs at {speed} ({span})."
    elif speedup.high < 1 - DEAD_HEAT:
        opening = f"Speculation loses: {lane.name} runs at {speed} ({span})."
    else:
        opening = f"Too close to call: {lane.name} runs at {speed} ({span})."
    cost = _seconds_per_step(draft) / _seconds_per_step(plain)
    gain = draft.summary.tokens_per_step
    sentences = [opening, f"A step gives {gain:.2f} tokens and takes {cost:.2f} times as long as a plain one."]
    if lane.same_output:
        sentences.append("Both wrote the same text.")
    if draft.settings["ignore_eos"]:
        sentences.append("The end of the answer was ignored, to force equal lengths.")
    return " ".join(sentences)


def _few(rounds: int) -> str:
    return "In this one round" if rounds == 1 else f"In these {rounds} rounds"


def _span(spread: Spread, rounds: int) -> str:
    return f"{spread.low:.2f} to {spread.high:.2f} over {rounds} rounds"


def explain_divergence(difference: Divergence) -> str:
    """`Divergence.sentence`: where the texts part and why that is no fault of speculation, when it is not."""
    texts = " against ".join("the end" if text is None else repr(text) for text in difference.texts)
    where = (
        f"The texts part at token {difference.index + 1} ({texts}), where the target's two best logits are "
        f"{difference.margin:.3f} apart in {difference.precision}"
    )
    if difference.precision == "float32":
        return f"{where}."
    reason = "a pass over several tokens rounds differently from one over a single token"
    return f"{where}: {reason}. In float32 the ids agree."


def _seconds_per_step(run: Run) -> float:
    return sum(step.t_end - step.t_start for step in run.steps) / len(run.steps)
