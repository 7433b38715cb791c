"""All plotly of the page: figures made here, shipped as JSON, filled and coloured by static/charts.js.

Backgrounds are transparent and no font or grid colour is fixed, because the page sets them for its theme. Colours
of fates are those of static/tokens.css and never the only mark: bars are also hatched. Held by tests/unit/test_ui.py.
"""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
from plotly.io import to_json

ACCEPTED, REJECTED, DISCARDED, RATE = "#009E73", "#D55E00", "#8A8F99", "#6C78E6"

_FONT = {"family": "system-ui, sans-serif", "size": 12}
_MARGIN = {"l": 44, "r": 42, "t": 30, "b": 38}


def _figure(traces: list[Any], **layout: Any) -> dict[str, Any]:
    figure = go.Figure(traces)
    figure.update_layout(
        template=None,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font=_FONT,
        margin=_MARGIN,
        legend={"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom", "traceorder": "normal"},
        hovermode="x unified",
        **layout,
    )
    data = json.loads(to_json(figure, validate=False))
    data["layout"].pop("template", None)
    return data


def _bar(name: str, colour: str, shape: str) -> go.Bar:
    """`shape` hatches the bar; "" leaves it solid, "outline" empty."""
    marker: dict[str, Any] = {"color": colour, "line": {"width": 1, "color": colour}}
    if shape == "outline":
        marker["color"] = "rgba(0,0,0,0)"
    elif shape:
        marker["pattern"] = {"shape": shape, "fgcolor": colour, "bgcolor": "rgba(0,0,0,0)", "size": 5, "solidity": 0.45}
    return go.Bar(name=name, x=[], y=[], marker=marker, hovertemplate="%{y}")


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
    bars = [_bar("accepted", ACCEPTED, ""), _bar("rejected", REJECTED, "/"), _bar("discarded", DISCARDED, "outline")]
    return _figure(
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
        words = "No draft token was tested in this run."
        layout["annotations"] = [
            {"text": words, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
        ]
    return _figure(
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


def event(name: str, figure: dict[str, Any]) -> dict[str, Any]:
    """The line that carries a figure to the browser; `name` is "steps" or "position"."""
    return {"type": "figure", "name": name, "figure": figure}
