"""What all figures have in common: JSON to be filled and coloured by static/charts.js.

Backgrounds are transparent and no font or grid colour is fixed, because the page sets them for its theme. Colours
of fates are those of static/tokens.css and never the only mark: bars are also hatched. Held by tests/unit/test_ui.py.
"""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
from plotly.io import to_json

ACCEPTED, REJECTED, DISCARDED, RATE, BONUS = "#009E73", "#D55E00", "#8A8F99", "#6C78E6", "#56B4E9"

_FONT = {"family": "system-ui, sans-serif", "size": 12}
_MARGIN = {"l": 44, "r": 42, "t": 30, "b": 38}


def figure(traces: list[Any], **layout: Any) -> dict[str, Any]:
    """A figure of `traces` as plain JSON; `layout` wins over what all have alike."""
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
    made = go.Figure(traces)
    made.update_layout(**common | layout)
    data = json.loads(to_json(made, validate=False))
    data["layout"].pop("template", None)
    return data


def bar(name: str, colour: str, shape: str) -> go.Bar:
    """`shape` hatches the bar; "" leaves it solid, "outline" empty."""
    marker: dict[str, Any] = {"color": colour, "line": {"width": 1, "color": colour}}
    if shape == "outline":
        marker["color"] = "rgba(0,0,0,0)"
    elif shape:
        marker["pattern"] = {"shape": shape, "fgcolor": colour, "bgcolor": "rgba(0,0,0,0)", "size": 5, "solidity": 0.45}
    return go.Bar(name=name, x=[], y=[], marker=marker, hovertemplate="%{y}")


def nothing(words: str) -> list[dict[str, Any]]:
    """The annotation of a figure that has nothing to show."""
    return [{"text": words, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}]


def event(name: str, made: dict[str, Any]) -> dict[str, Any]:
    """The line that carries a figure to the browser; `name` says where it goes."""
    return {"type": "figure", "name": name, "figure": made}
