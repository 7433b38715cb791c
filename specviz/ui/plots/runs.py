"""Figures of one run: acceptance, and where its time went. Held by tests/unit/test_ui.py and test_plots.py."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from specviz.ui.plots.base import ACCEPTED, BONUS, DISCARDED, RATE, REJECTED, bar, figure, nothing


def acceptance_per_step() -> dict[str, Any]:
    """An empty figure: bars of accepted, rejected and discarded draft tokens per step, and the running rate.

    The browser appends one value per step to each of the four traces, in this order.
    """
    rate = go.Scatter(
        name="rate so far",
        x=[],
        y=[],
        yaxis="y2",
        mode="lines",
        line={"color": RATE, "width": 2},
        hovertemplate="%{y:.0%}",
    )
    bars = [bar("accepted", ACCEPTED, ""), bar("rejected", REJECTED, "/"), bar("discarded", DISCARDED, "outline")]
    return figure(
        [*bars, rate],
        barmode="stack",
        bargap=0.15,
        xaxis={"title": {"text": "step"}, "rangemode": "tozero", "tickformat": "d", "showgrid": False},
        yaxis={
            "title": {"text": "draft tokens"},
            "rangemode": "tozero",
            "tickformat": "d",
            "nticks": 6,
            "autorangeoptions": {"include": 4},  # else a run without drafts gets ticks 0, 0, 0, 1, 1
        },
        yaxis2={
            "overlaying": "y",
            "side": "right",
            "range": [0, 1.02],
            "tickformat": ".0%",
            "showgrid": False,
            "tickvals": [0, 0.5, 1],
        },
    )


def acceptance_by_position(summary: dict[str, Any]) -> dict[str, Any]:
    """Acceptance at each draft position given that it was reached, with the summary's own 95 % intervals.

    Args:
        summary: of a run, plain JSON; positions never tested are left out.
    """
    rows = [row for row in summary["by_position"] if row["rate"] is not None]
    error = {
        "type": "data",
        "array": [row["high"] - row["rate"] for row in rows],
        "arrayminus": [row["rate"] - row["low"] for row in rows],
        "color": ACCEPTED,
        "thickness": 2,
        "width": 7,
    }
    points = go.Scatter(
        name="accepted when tested",
        x=[row["position"] for row in rows],
        y=[row["rate"] for row in rows],
        customdata=[[row["accepted"], row["tested"]] for row in rows],
        error_y=error,
        mode="markers",
        marker={"color": ACCEPTED, "size": 10},
        hovertemplate="%{y:.0%}: %{customdata[0]} of %{customdata[1]}",
    )
    reach = go.Scatter(
        name="accepted of all steps",
        x=[row["position"] for row in rows],
        y=[row["reach_rate"] for row in rows],
        mode="lines+markers",
        line={"color": RATE, "width": 2, "dash": "dot"},
        marker={"symbol": "diamond-open", "size": 8},
        hovertemplate="%{y:.0%}",
    )
    layout: dict[str, Any] = {}
    if not rows:
        layout["annotations"] = nothing("No draft token was tested in this run.")
    return figure(
        [points, reach],
        xaxis={
            "title": {"text": "position in the draft"},
            "dtick": 1,
            "showgrid": False,
            "range": [0.5, max(len(rows), 1) + 0.5],
        },
        yaxis={"range": [0, 1.04], "tickformat": ".0%", "nticks": 6},
        **layout,
    )


def time_breakdown(run: dict[str, Any]) -> dict[str, Any]:
    """Where the time of a run's steps went, as a stacked timeline: one bar a step, in milliseconds.

    Args:
        run: plain JSON; of its `steps` only `index`, `draft_s`, `verify_s`, `host_s` and `t_start` are read.
    """
    steps = run["steps"]
    number = [step["index"] + 1 for step in steps]
    started = [[step["t_start"]] for step in steps]
    total = sum(step["draft_s"] + step["verify_s"] + step["host_s"] for step in steps) or 1.0
    parts = (("draft", "draft_s", BONUS, "/"), ("verify", "verify_s", RATE, ""), ("host", "host_s", DISCARDED, "x"))
    traces = []
    for name, key, colour, shape in parts:
        # Not `bar`: the legend says how much of the whole each part is.
        one = bar(f"{name} {sum(step[key] for step in steps) / total:.0%}", colour, shape)
        one.update(
            x=number,
            y=[1000 * step[key] for step in steps],
            customdata=started,
            hovertemplate="%{y:.2f} ms, step began at %{customdata[0]:.3f} s",
        )
        traces.append(one)
    return figure(
        traces,
        barmode="stack",
        bargap=0.1,
        xaxis={"title": {"text": "step"}, "rangemode": "tozero", "tickformat": "d", "showgrid": False},
        yaxis={"title": {"text": "milliseconds"}, "rangemode": "tozero", "nticks": 6},
        **({} if steps else {"annotations": nothing("This run has no step.")}),
    )
