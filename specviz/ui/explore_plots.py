"""Figures over several runs at once: the Explore pane's six, and a race's speed-up over gamma.

They read whole runs (`specviz.trace.Run`) and the figures of `specviz.summary`; a run keeps its colour, dash and marker
in all of them. Held by tests/unit/test_explore.py.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from specviz.summary import levels, wilson
from specviz.trace import TESTED, Run
from specviz.ui import plots
from specviz.ui.plots.base import BONUS, DISCARDED, RATE, bar, figure, nothing
from specviz.ui.words import DRAFT_WORDS

#: (colour, dash, marker) of the first, second, ... run; each at 3:1 or more on both backgrounds.
LOOKS = (
    ("#0A7F61", "solid", "circle"),
    ("#6C78E6", "dash", "diamond"),
    ("#C2631B", "dot", "square"),
    ("#B0569B", "dashdot", "triangle-up"),
    ("#7D828C", "longdash", "x"),
    ("#2F80B5", "solid", "star"),
    ("#A87400", "dash", "cross"),
    ("#5A9E3E", "dot", "pentagon"),
)
#: Equal bins of a draft's confidence.
BINS = 10
TITLES = {kind: title for rows in DRAFT_WORDS.values() for kind, title, _ in rows}
RUNS_MAX = len(LOOKS)

#: A name to show, and its run.
Named = tuple[str, Run]


def explore(runs: Sequence[Named]) -> dict[str, dict[str, Any]]:
    """All figures of the pane by name."""
    made = {
        "steps": per_step(runs),
        "position": by_position(runs),
        "passes": tokens_per_pass(runs),
        "calibration": confidence(runs),
        "time": time_breakdown(runs),
        "tokens": tokens_over_time(runs),
    }
    return {name: _with_room(one) for name, one in made.items()}


def _with_room(made: dict[str, Any]) -> dict[str, Any]:
    """The figure with its legend below, where the buttons of the chart do not cover it."""
    layout = made["layout"]
    layout["legend"] = {"orientation": "h", "x": 0, "y": 0, "xanchor": "left", "yanchor": "bottom", "yref": "container"}
    for name, axis in layout.items():
        if name.startswith(("xaxis", "yaxis")):
            axis["automargin"] = True
            axis.setdefault("title", {})["standoff"] = 8
    return made


def per_step(runs: Sequence[Named]) -> dict[str, Any]:
    """Of one run the draft tokens of every step by fate; of several the acceptance rate so far."""
    if len(runs) == 1:
        return _fates(runs[0][1])
    traces = []
    for number, (name, run) in enumerate(runs):
        x, y, held, tested = [], [], 0, 0
        for step in run.steps:
            found = levels(step)
            held, tested = held + sum(level.accepted for level in found), tested + len(found)
            if tested:
                x.append(step.index + 1)
                y.append(held / tested)
        if x:
            traces.append(_line(number, name, x, y, hovertemplate="%{y:.0%}"))
    return figure(
        traces,
        xaxis={"title": {"text": "step"}, "rangemode": "tozero", "tickformat": "d", "showgrid": False},
        yaxis={"title": {"text": "accepted of tested, so far"}, "range": [0, 1.04], "tickformat": ".0%"},
        **_or_nothing(traces, "No draft token was tested in these runs."),
    )


def _fates(run: Run) -> dict[str, Any]:
    """The run view's own figure, filled."""
    made = plots.acceptance_per_step()
    held = tested = 0
    columns: list[list[Any]] = [[], [], [], []]
    for step in run.steps:
        fates = Counter(token.fate for token in step.tokens)
        found = levels(step)
        held, tested = held + sum(level.accepted for level in found), tested + len(found)
        for column, fate in zip(columns, ("accepted", "rejected", "discarded"), strict=False):
            column.append(fates[fate])
        columns[3].append(held / tested if tested else None)
    for trace, column in zip(made["data"], columns, strict=True):
        trace["x"], trace["y"] = [step.index + 1 for step in run.steps], column
    return made


def by_position(runs: Sequence[Named]) -> dict[str, Any]:
    """`plots.acceptance_by_position` of every run, with 95 % Wilson intervals also where the position counts that were
    not reached."""
    drafted = [(number, name, run) for number, (name, run) in enumerate(runs) if run.summary.by_position]
    summaries = [dataclasses.asdict(run.summary) for _, _, run in drafted]
    made = [plots.acceptance_by_position(summary) for summary in summaries]
    if not made:
        return plots.acceptance_by_position({"by_position": []})
    traces = []
    for place, ((number, name, _), summary, figure_of) in enumerate(zip(drafted, summaries, made, strict=True)):
        given, overall = figure_of["data"]
        rows = [row for row in summary["by_position"] if row["rate"] is not None]
        edges = [(row["reach_rate"], *wilson(row["accepted"], row["proposed"])) for row in rows]
        overall["customdata"] = [[row["accepted"], row["proposed"]] for row in rows]
        overall["hovertemplate"] = "%{y:.0%}: %{customdata[0]} of %{customdata[1]}"
        overall["error_y"] = _interval(edges, overall["line"]["color"], thin=True)
        for trace, shift in ((given, -0.03), (overall, 0.03)):
            trace["x"] = [x + shift + (place - (len(made) - 1) / 2) * 0.14 for x in trace["x"]]
            if len(made) > 1:
                colour, _, symbol = LOOKS[number % RUNS_MAX]
                trace["marker"] |= {"color": colour, "symbol": symbol if trace is given else f"{symbol}-open"}
                trace["error_y"] |= {"color": colour}
                trace["name"], trace["showlegend"] = name, trace is given
        if len(made) > 1:
            overall["line"] |= {"color": LOOKS[number % RUNS_MAX][0], "width": 1}
        traces += [given, overall]
    deepest = max(made, key=lambda figure_of: figure_of["layout"]["xaxis"]["range"][1])
    axis = deepest["layout"]["xaxis"]
    del axis["dtick"]
    axis |= {"tickvals": list(range(1, int(axis["range"][1]) + 1)), "range": [axis["range"][0], axis["range"][1]]}
    return {"data": traces, "layout": deepest["layout"] | {"hovermode": "closest"}}


def tokens_per_pass(runs: Sequence[Named]) -> dict[str, Any]:
    """How many tokens the target's passes gave, as a share of all passes."""
    traces = []
    for number, (name, run) in enumerate(runs):
        counts = Counter(len(step.emitted) for step in run.steps)
        x = list(range(1, max(counts, default=1) + 1))
        one = bar(name, LOOKS[number % RUNS_MAX][0], ("", "/", "x", ".", "\\", "+", "-", "|")[number % RUNS_MAX])
        one.update(
            x=x,
            y=[counts[value] / len(run.steps) for value in x],
            customdata=[[counts[value]] for value in x],
            hovertemplate="%{y:.0%} (%{customdata[0]} passes)",
        )
        traces.append(one)
    return figure(
        traces,
        barmode="group",
        bargap=0.25,
        showlegend=len(runs) > 1,
        xaxis={"title": {"text": "tokens from one pass of the target"}, "dtick": 1, "showgrid": False},
        yaxis={"title": {"text": "share of passes"}, "rangemode": "tozero", "tickformat": ".0%", "nticks": 6},
        **_or_nothing(traces, "No run to show."),
    )


def confidence(runs: Sequence[Named]) -> dict[str, Any]:
    """How often draft tokens were accepted that the draft gave such a probability (its own, unwarped), among those
    tested, with 95 % Wilson intervals; below, how many there were. On the diagonal it knows itself."""
    traces: list[Any] = []
    counts: list[Any] = []
    for number, (name, run) in enumerate(runs):
        rows = bins(run)
        if not rows:
            continue
        colour, dash, symbol = LOOKS[number % RUNS_MAX]
        points = go.Scatter(
            name=name,
            x=[row["mean"] for row in rows],
            y=[row["rate"] for row in rows],
            customdata=[[row["accepted"], row["tested"]] for row in rows],
            error_y=_interval([(row["rate"], row["low"], row["high"]) for row in rows], colour),
            mode="lines+markers",
            line={"color": colour, "width": 1.5, "dash": dash},
            marker={"color": colour, "size": 9, "symbol": symbol},
            hovertemplate="sure %{x:.2f}, accepted %{y:.0%}: %{customdata[0]} of %{customdata[1]}",
        )
        below = go.Bar(
            name=f"{name}: tokens",
            x=[(row["bin"] + 0.5) / BINS for row in rows],
            y=[row["tested"] for row in rows],
            yaxis="y2",
            width=0.8 / BINS / max(len(runs), 1),
            offset=(number / max(len(runs), 1) - 0.5) * 0.8 / BINS,
            marker={"color": colour, "opacity": 0.55},
            showlegend=False,
            hovertemplate="%{y} tokens",
        )
        traces.append(points)
        counts.append(below)
    if traces:
        line = {"color": DISCARDED, "width": 1, "dash": "dash"}
        diagonal = go.Scatter(name="as sure as right", x=[0, 1], y=[0, 1], mode="lines", line=line, hoverinfo="skip")
        traces.append(diagonal)
    return figure(
        [*traces, *counts],
        hovermode="closest",
        barmode="overlay",
        xaxis={
            "title": {"text": "the draft's own probability of its token"},
            "range": [-0.02, 1.02],
            "nticks": 6,
            "anchor": "y2",
        },
        yaxis={
            "domain": [0.3, 1],
            "range": [-0.03, 1.05],
            "tickformat": ".0%",
            "nticks": 5,
            "title": {"text": "accepted"},
        },
        yaxis2={
            "domain": [0, 0.18],
            "rangemode": "tozero",
            "nticks": 3,
            "showgrid": False,
            "title": {"text": "tokens"},
        },
        **_or_nothing(traces, "These drafts have no probability of their own: a copy is as sure as another."),
    )


def bins(run: Run) -> list[dict[str, float]]:
    """Tested draft tokens by confidence, in equal bins; empty ones are left out. `mean` is that of their confidence."""
    tested: dict[int, list[tuple[float, bool]]] = {}
    for step in run.steps:
        for token in step.tokens:
            if token.fate in TESTED and token.confidence is not None:
                place = min(int(token.confidence * BINS), BINS - 1)
                tested.setdefault(place, []).append((token.confidence, token.fate == "accepted"))
    rows = []
    for place, found in sorted(tested.items()):
        accepted = sum(kept for _, kept in found)
        low, high = wilson(accepted, len(found))
        mean = sum(sure for sure, _ in found) / len(found)
        rate = accepted / len(found)
        rows.append(
            {
                "bin": place,
                "mean": mean,
                "rate": rate,
                "low": low,
                "high": high,
                "accepted": accepted,
                "tested": len(found),
            }
        )
    return rows


def time_breakdown(runs: Sequence[Named]) -> dict[str, Any]:
    """Of one run every step's time; of several the mean step, side by side."""
    if len(runs) == 1:
        return plots.time_breakdown(runs[0][1].to_dict())
    traces = []
    parts = (("draft", "draft_s", BONUS, "/"), ("verify", "verify_s", RATE, ""), ("host", "host_s", DISCARDED, "x"))
    for label, field, colour, shape in parts:
        one = bar(label, colour, shape)
        means = [sum(getattr(step, field) for step in run.steps) / max(len(run.steps), 1) for _, run in runs]
        one.update(
            orientation="h",
            y=[name for name, _ in runs],
            x=[1000 * mean for mean in means],
            hovertemplate="%{x:.2f} ms",
        )
        traces.append(one)
    return figure(
        traces,
        barmode="stack",
        bargap=0.35,
        hovermode="y unified",
        xaxis={"title": {"text": "milliseconds of a mean step"}, "rangemode": "tozero", "nticks": 6},
        yaxis={"autorange": "reversed", "automargin": True, "showgrid": False},
        **_or_nothing(list(runs), "No run to show."),
    )


def tokens_over_time(runs: Sequence[Named]) -> dict[str, Any]:
    """Tokens written by every moment; prefill is apart, so all start at 0."""
    traces = []
    for number, (name, run) in enumerate(runs):
        x, y = [0.0], [0]
        for step in run.steps:
            x.append(step.t_end)
            y.append(y[-1] + len(step.emitted))
        traces.append(_line(number, name, x, y, line={"shape": "hv"}, hovertemplate="%{y} tokens at %{x:.2f} s"))
    return figure(
        traces,
        hovermode="closest",
        showlegend=len(runs) > 1,
        xaxis={"title": {"text": "seconds"}, "rangemode": "tozero", "nticks": 8},
        yaxis={"title": {"text": "tokens"}, "rangemode": "tozero", "nticks": 6},
        **_or_nothing(traces, "No run to show."),
    )


def speedup_curves(race: dict[str, Any]) -> dict[str, Any] | None:
    """The speed-up that each draft's numbers predict over gamma, with the one that was measured.

    Args:
        race: plain JSON of specviz.race/1.

    Returns:
        None where no lane has a prediction.
    """
    lanes = [(number, lane) for number, lane in enumerate(race["lanes"]) if lane["why"]]
    if not lanes:
        return None
    traces: list[Any] = []
    for number, lane in lanes:
        colour, dash, symbol = LOOKS[(number - 1) % RUNS_MAX]
        name, why, speedup = lane_name(lane), lane["why"], lane["speedup"]
        gammas = [point["gamma"] for point in why["curve"]]
        sizes = [11 if gamma == why["best"] else 5 for gamma in gammas]
        predicted = go.Scatter(
            name=f"{name}: predicted",
            x=gammas,
            y=[point["speedup"] for point in why["curve"]],
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": dash},
            marker={"size": sizes, "symbol": f"{symbol}-open", "color": colour, "line": {"width": 2}},
            hovertemplate="gamma %{x}: %{y:.2f}×",
        )
        measured = go.Scatter(
            name="measured",
            showlegend=False,
            x=[why["gamma"]],
            y=[speedup["median"]],
            error_y=_interval([(speedup["median"], speedup["low"], speedup["high"])], colour),
            mode="markers",
            marker={"color": colour, "size": 12, "symbol": symbol},
            hovertemplate="gamma %{x:.3g}: measured %{y:.2f}×",
        )
        traces += [predicted, measured]
    most = max(point["gamma"] for _, lane in lanes for point in lane["why"]["curve"])
    even = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": 1,
        "y1": 1,
        "line": {"color": DISCARDED, "width": 1},
    }
    return _with_room(
        figure(
            traces,
            hovermode="closest",
            shapes=[even],
            xaxis={
                "title": {"text": "gamma (0 is plain decoding; the large open mark is the best)"},
                "dtick": 1,
                "showgrid": False,
                "range": [-0.5, most + 0.5],
            },
            yaxis={"title": {"text": "times as fast as plain"}, "rangemode": "tozero", "nticks": 7},
        )
    )


def with_curves(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The result of a race brings its figure along."""
    made = speedup_curves(event["race"]) if event["type"] == "race" else None
    return [event] if made is None else [event, plots.event("why", made)]


def lane_name(lane: dict[str, Any]) -> str:
    """What the page calls a lane (static/lane.js)."""
    title = TITLES.get(lane["draft"], lane["draft"])
    return f"{title} ({lane['detail']})" if lane["detail"] else title


def _line(number: int, name: str, x: list[Any], y: list[Any], line: dict[str, Any] | None = None, **more: Any) -> Any:
    colour, dash, _ = LOOKS[number % RUNS_MAX]
    style = {"color": colour, "dash": dash, "width": 2, **(line or {})}
    return go.Scatter(name=name, x=x, y=y, mode="lines", line=style, **more)


def _interval(rows: Sequence[tuple[float, float, float]], colour: str, thin: bool = False) -> dict[str, Any]:
    """Error bars of (value, low, high)."""
    return {
        "type": "data",
        "array": [high - value for value, _, high in rows],
        "arrayminus": [value - low for value, low, _ in rows],
        "color": colour,
        "thickness": 1 if thin else 2,
        "width": 4 if thin else 6,
    }


def _or_nothing(traces: Sequence[Any], words: str) -> dict[str, Any]:
    return {} if traces else {"annotations": nothing(words)}
