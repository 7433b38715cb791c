"""From the runs of a race to its result: rates, speed-ups, where texts part, why, and who won.

Held by tests/unit/test_race.py.
"""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Mapping, Sequence

import torch

from specviz.engine.engine import Engine
from specviz.engine.sampling import Warp
from specviz.lab.race import words
from specviz.lab.race.document import Divergence, Lane, Race, Spread
from specviz.lab.race.entrants import OWN, Entrant
from specviz.lab.why import explain
from specviz.settings import Settings
from specviz.trace import Run

#: Tokens shown in front of a first difference and behind it.
BEFORE, AFTER = 12, 16


def judge(
    engine: Engine,
    entrants: Sequence[Entrant],
    order: list[list[str]],
    runs: Mapping[str, list[Run]],
    warmup_tokens: int,
) -> Race:
    """The `Race` of these runs; `runs` has those of every lane by its key, one a round."""
    plain, *_ = entrants
    ratios = {lane.key: ratio(runs[lane.key], runs[plain.key]) for lane in entrants}
    shown = shown_round(list(ratios.values()))
    lanes = []
    for entrant in entrants:
        own = runs[entrant.key]
        lane = Lane(
            key=entrant.key,
            name=entrant.name,
            detail=entrant.detail,
            draft=entrant.settings.draft,
            tokens_per_second=Spread.of([run.summary.tokens_per_second for run in own]),
            prefill_s=Spread.of([run.prefill.target_s + run.prefill.draft_s for run in own]),
            runs=own,
            shown=shown,
        )
        if entrant is not plain:
            _set_against(engine, lane, entrant.settings, runs[plain.key], Spread.of(ratios[entrant.key]))
        lanes.append(lane)
    winner, lead = words.fastest(lanes)
    shared = lanes[-1].runs[0].settings
    return Race(
        created_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        rounds=len(order),
        warmup_tokens=warmup_tokens,
        order=order,
        settings={name: value for name, value in shared.items() if name not in ("draft", *OWN)},
        lanes=lanes,
        winner=winner,
        lead=lead,
        verdict=words.verdict(lanes, winner, lead),
    )


def ratio(runs: Sequence[Run], others: Sequence[Run]) -> list[float]:
    """How many times as fast, round by round."""
    pairs = zip(runs, others, strict=True)
    return [run.summary.tokens_per_second / other.summary.tokens_per_second for run, other in pairs]


def shown_round(ratios: Sequence[Sequence[float]]) -> int:
    """The round in which the lanes' speed-ups are nearest to their medians, all together."""
    medians = [statistics.median(lane) for lane in ratios]

    def apart(number: int) -> float:
        return sum(abs(math.log(lane[number] / median)) for lane, median in zip(ratios, medians, strict=True))

    return min(range(len(ratios[0])), key=apart)


def _set_against(engine: Engine, lane: Lane, settings: Settings, plain: Sequence[Run], speedup: Spread) -> None:
    """Fills in what a draft's lane has beside plain decoding."""
    lane.speedup = speedup
    if settings.temperature == 0 or settings.top_k == 1:
        pairs = zip(plain, lane.runs, strict=True)
        differences = (first_divergence(engine, settings, *pair) for pair in pairs)
        lane.first_divergence = next((found for found in differences if found is not None), None)
        lane.same_output = lane.first_divergence is None
    lane.verdict = words.lane_verdict(lane, plain[lane.shown])
    width = engine.drafter(settings.draft, settings).width
    lane.why = explain(lane.runs, plain, lane.shown, speedup.median, width)


def first_divergence(engine: Engine, settings: Settings, a: Run, b: Run) -> Divergence | None:
    """Where the outputs of two runs on one prompt part, None when they are equal."""
    first, second = a.output.token_ids, b.output.token_ids
    if first == second:
        return None
    index = next(
        (i for i, (x, y) in enumerate(zip(first, second, strict=False)) if x != y), min(len(first), len(second))
    )
    ids = [run[index] if index < len(run) else None for run in (first, second)]
    context = [*a.prompt.token_ids, *first[:index]]
    texts = [[token.text for step in run.steps for token in step.emitted] for run in (a, b)]
    found = Divergence(
        index=index,
        position=len(context),
        ids=ids,
        texts=[None if token is None else engine.text([token]) for token in ids],
        before="".join(texts[0][max(0, index - BEFORE) : index]),
        after=["".join(text[index : index + AFTER]) for text in texts],
        margin=top2_margin(engine, settings, len(a.prompt.token_ids), context),
        precision=a.device.dtype,
    )
    found.sentence = words.explain_divergence(found)
    return found


@torch.inference_mode()
def top2_margin(engine: Engine, settings: Settings, prompt_length: int, context: Sequence[int]) -> float:
    """Gap between the two best logits that decide the token behind `context`."""
    target = engine.target
    engine.claim(len(context))
    cache = target.open(len(context))
    cache.prefill(context[:-1])
    best = Warp(settings, prompt_length).adjust(cache.forward(context[-1:]), context, [()])[0].topk(2).values
    return float(best[0] - best[1])
