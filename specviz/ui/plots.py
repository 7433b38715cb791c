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

#: Most texts of a law that are drawn, and how many of them may be texts that it excludes.
CELLS_MOST, OUTSIDE_MOST = 40, 8

_FONT = {"family": "system-ui, sans-serif", "size": 12}
_MARGIN = {"l": 44, "r": 42, "t": 30, "b": 38}


def _figure(traces: list[Any], **layout: Any) -> dict[str, Any]:
    common = {
        "template": None,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": _FONT,
        "margin": _MARGIN,
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hovermode": "x unified",
    }
    figure = go.Figure(traces)
    figure.update_layout(**common | layout)
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


def distances(proof: dict[str, Any]) -> dict[str, Any]:
    """The total variation of a proof, exact and sampled, on one linear scale with the band that chance alone gives.

    Args:
        proof: a `specviz.lab.proof.Proof`, plain JSON.
    """
    floor, exact = proof["floor"], proof["tv_exact"]
    colour = ACCEPTED if proof["passed"] else REJECTED
    rows = [("sampled", proof["tv"], "diamond", RATE)]
    if exact is not None:
        rows.insert(0, ("exact", exact, "circle", colour))
    points = [
        go.Scatter(
            name=name,
            x=[value],
            y=[name],
            mode="markers+text",
            marker={"symbol": symbol, "size": 13, "color": shade},
            text=[f"  {_small(value)}"],
            textposition="middle right",
            cliponaxis=False,
            hovertemplate=f"{name}: %{{text}}<extra></extra>",
        )
        for name, value, symbol, shade in rows
    ]
    band = {"type": "rect", "xref": "x", "yref": "paper", "x0": floor["low"], "x1": floor["high"], "y0": 0, "y1": 1}
    band |= {"fillcolor": DISCARDED, "opacity": 0.22, "line": {"width": 0}, "layer": "below"}
    middle = {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": floor["median"],
        "x1": floor["median"],
        "y0": 0,
        "y1": 1,
    }
    middle |= {"line": {"width": 1.5, "dash": "dot", "color": DISCARDED}, "layer": "below"}
    # Words over the band, on the side where there is room for them.
    most = max(proof["tv"], floor["high"], exact or 0.0) * 1.3
    words = {"x": (floor["low"] + floor["high"]) / 2, "y": 1, "xref": "x", "yref": "paper", "yanchor": "bottom"}
    words |= {"text": "chance alone, 95 %", "showarrow": False, "font": {"size": 11}}
    return _figure(
        points,
        showlegend=False,
        hovermode="closest",
        margin={"l": 66, "r": 18, "t": 24, "b": 40},
        shapes=[band, middle],
        annotations=[words],
        xaxis={"range": [-0.02 * most, most], "title": {"text": "total variation"}, "zeroline": True, "nticks": 7},
        yaxis={"type": "category", "showgrid": False, "range": [-0.6, len(rows) - 0.4]},
    )


def law(proof: dict[str, Any]) -> dict[str, Any]:
    """What the target's law expects of the likeliest texts, as bars, and what was observed, as marks.

    Texts that the law excludes and that came out all the same stand at the right end, crossed.
    """
    cells = proof["cells"]
    outside = sorted((cell for cell in cells if not cell["expected"]), key=lambda cell: -cell["observed"])[
        :OUTSIDE_MOST
    ]
    shown = [cell for cell in cells if cell["expected"]][: CELLS_MOST - len(outside)]
    bars = go.Bar(
        name="expected",
        x=[cell["text"] for cell in shown],
        y=[cell["expected"] for cell in shown],
        marker={"color": "rgba(108,120,230,0.30)", "line": {"width": 1, "color": RATE}},
        hovertemplate="%{y:.4f}",
    )
    marks = go.Scatter(
        name="observed",
        x=[cell["text"] for cell in shown],
        y=[cell["observed"] for cell in shown],
        mode="markers",
        marker={"symbol": "diamond", "size": 7, "color": ACCEPTED if proof["passed"] else REJECTED},
        hovertemplate="%{y:.4f}",
    )
    traces: list[Any] = [bars, marks]
    title = (
        f"the {len(shown)} likeliest texts"
        if len(shown) < sum(cell["expected"] > 0 for cell in cells)
        else "every text"
    )
    if outside:
        traces.append(
            go.Scatter(
                name="excluded by the law, yet observed",
                x=[cell["text"] for cell in outside],
                y=[cell["observed"] for cell in outside],
                mode="markers",
                marker={"symbol": "x", "size": 8, "color": REJECTED},
                hovertemplate="%{y:.4f}",
            )
        )
    return _figure(
        traces,
        bargap=0.25,
        margin={"l": 52, "r": 12, "t": 30, "b": 56},
        xaxis={
            "type": "category",
            "title": {"text": title + (", then excluded ones" if outside else "")},
            "tickangle": -90,
            "tickfont": {"size": 9.5, "family": "ui-monospace, monospace"},
            "showgrid": False,
        },
        yaxis={"rangemode": "tozero", "title": {"text": "probability"}, "nticks": 6},
    )


def _small(value: float) -> str:
    """A total variation as a label: rounding errors are named as powers of ten."""
    return f"{value:.4f}" if value >= 1e-4 or value == 0 else f"{value:.1e}"


def event(name: str, figure: dict[str, Any]) -> dict[str, Any]:
    """The line that carries a figure to the browser; `name` is steps, position, distance or law."""
    return {"type": "figure", "name": name, "figure": figure}
