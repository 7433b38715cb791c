"""Figures of a proof: how far two laws are apart, and the law text by text. Held by tests/unit/test_ui.py."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from specviz.ui.plots.base import ACCEPTED, DISCARDED, RATE, REJECTED, figure

#: Most texts of a law that are drawn, and how many of them may be texts that it excludes.
CELLS_MOST, OUTSIDE_MOST = 40, 8


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
    return figure(
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
    return figure(
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
