"""Figures of a benchmark, made from its document alone. Held by tests/unit/test_plots.py.

Speed-ups are on a logarithmic scale, so that half and twice as fast are equally far from 1.
"""

from __future__ import annotations

import html
import math
from typing import Any

import plotly.graph_objects as go

from specviz.ui.plots.base import ACCEPTED, DISCARDED, RATE, REJECTED, bar, figure, nothing

#: Pixels of a row of lanes, and of what stands above and below them.
ROW, FRAME = 26, 96
#: Slower orange, equal grey, faster blue: told apart by everyone. The number stands in the cell, dark in both themes.
SCALE = [[0.0, "#E8935A"], [0.25, "#F0C19B"], [0.5, "#E4E4E8"], [0.75, "#A9CBEC"], [1.0, "#6AA5DF"]]
CELL_INK = "#1B1D22"
KINDS = {
    "plain": ("plain decoding", DISCARDED, "/"),
    "draft": ("with a draft", ACCEPTED, ""),
    "peer": ("another engine", RATE, "x"),
}
#: Letters of a column's name that stand level.
LABEL = 9
LANES_MARGIN = {"l": 8, "r": 16, "t": 34, "b": 44}


def bench_figures(bench: dict[str, Any]) -> list[dict[str, Any]]:
    """All figures that a benchmark (plain JSON) has something for: {name, title, note, figure}, in reading order."""
    bench = _escaped(bench)
    made = [(name, title, note, draw(bench)) for name, (title, note, draw) in _FIGURES.items()]
    return [
        {"name": name, "title": title, "note": note, "figure": drawn}
        for name, title, note, drawn in made
        if drawn is not None
    ]


#: Fields whose texts name something in a figure.
_NAMES = ("name", "lane", "against", "category", "draft", "dtype")


def _escaped(value: Any, field: str = "") -> Any:
    """The document with its names as plotly needs them: it reads labels as markup, and a file's names are hostile."""
    if isinstance(value, dict):
        return {key: _escaped(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return html.escape(value, quote=False) if field in _NAMES and isinstance(value, str) else value


def bench_speed(bench: dict[str, Any]) -> dict[str, Any] | None:
    """Tokens per second of every lane."""
    kinds = {lane["name"]: lane["kind"] for lane in bench["lanes"]}
    rows = [row for row in bench["summary"]["lanes"] if row["overall"]["tokens_per_second"] is not None]
    if not rows:
        return None
    traces = []
    for kind, (name, colour, shape) in KINDS.items():
        own = [row for row in rows if kinds[row["lane"]] == kind]
        if own:
            one = bar(name, colour, shape)
            one.update(
                orientation="h",
                x=[row["overall"]["tokens_per_second"] for row in own],
                y=[row["lane"] for row in own],
                text=[f"{row['overall']['tokens_per_second']:.1f}" for row in own],
                textposition="outside",
                cliponaxis=False,
                hovertemplate="%{x:.1f} tokens/s",
            )
            traces.append(one)
    most = max(row["overall"]["tokens_per_second"] for row in rows)
    return figure(
        traces,
        **_lanes([row["lane"] for row in rows]),
        bargap=0.3,
        xaxis={"title": {"text": "tokens per second"}, "range": [0, 1.15 * most], "automargin": True},
    )


def bench_speedup(bench: dict[str, Any]) -> dict[str, Any] | None:
    """Measured speed-ups with their intervals, and the predicted ones."""
    rows = [row for row in bench["summary"]["lanes"] if row["overall"]["speedup"]]
    if not rows:
        return None
    names = [row["lane"] for row in rows]
    found = [row["overall"]["speedup"] for row in rows]
    spans = [(one["low"] or one["mean"], one["high"] or one["mean"]) for one in found]
    measured = go.Scatter(
        name="measured",
        x=[one["mean"] for one in found],
        y=names,
        mode="markers",
        marker={"size": 10, "color": ACCEPTED},
        error_x={
            "type": "data",
            "array": [high - one["mean"] for one, (_, high) in zip(found, spans, strict=True)],
            "arrayminus": [one["mean"] - low for one, (low, _) in zip(found, spans, strict=True)],
            "color": ACCEPTED,
            "thickness": 2,
            "width": 6,
        },
        hovertemplate="%{x:.2f}",
    )
    modelled = [row for row in rows if row["model"]]
    predicted = go.Scatter(
        name="predicted",
        x=[row["model"]["speedup"] for row in modelled],
        y=[row["lane"] for row in modelled],
        mode="markers",
        marker={"size": 10, "symbol": "diamond-open", "color": RATE, "line": {"width": 2}},
        hovertemplate="%{x:.2f}",
    )
    even = {"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "xref": "x", "yref": "paper", "layer": "below"}
    even["line"] = {"width": 1.5, "dash": "dot", "color": DISCARDED}
    values = [value for span in spans for value in span] + [row["model"]["speedup"] for row in modelled]
    return figure(
        [measured, *([predicted] if modelled else [])],
        **_lanes(names),
        shapes=[even],
        xaxis={
            "title": {"text": "times as fast as plain decoding"},
            "type": "log",
            "automargin": True,
            **_ticks(values),
        },
    )


def bench_categories(bench: dict[str, Any]) -> dict[str, Any] | None:
    """Speed-up of each lane in each category."""
    names = list(dict.fromkeys(prompt["category"] for prompt in bench["prompts"]))
    rows = [row for row in bench["summary"]["lanes"] if row["overall"]["speedup"]]
    if len(names) < 2 or not rows:
        return None
    cells = []
    for row in rows:
        own = {part["category"]: part["speedup"] for part in row["categories"]}
        cells.append([own[name]["mean"] if own.get(name) else None for name in names])
    return _heat(names, [row["lane"] for row in rows], cells)


def bench_against(bench: dict[str, Any]) -> dict[str, Any] | None:
    """Every lane against every plain lane and every other engine."""
    rows = bench["summary"]["lanes"]
    names = [lane["name"] for lane in bench["lanes"] if lane["kind"] != "draft"]
    names = [name for name in names if any(one["against"] == name for row in rows for one in row["comparisons"])]
    if len(names) < 2:
        return None
    cells = []
    for row in rows:
        own = {one["against"]: one["ratio"]["mean"] for one in row["comparisons"]}
        cells.append([own.get(name) for name in names])
    return _heat(names, [row["lane"] for row in rows], cells)


def bench_sweep(bench: dict[str, Any]) -> dict[str, Any] | None:
    """Speed-up over gamma (columns) and draft (rows; with temperature, precision and candidates where they vary)."""
    cells: dict[str, dict[str, float]] = {}
    for lane, row in _drafted(bench):
        label = _variant(bench, lane, "draft", "candidates", "temperature", "dtype")
        column = f"up to {lane['gamma']}" if lane["adaptive"] else str(lane["gamma"])
        cells.setdefault(label, {})[column] = row["overall"]["speedup"]["mean"]
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    if len(columns) < 2:
        return None
    columns.sort(key=lambda column: (column.startswith("up"), int(column.split()[-1])))
    return _heat(columns, list(cells), [[row.get(name) for name in columns] for row in cells.values()], "gamma")


def bench_candidates(bench: dict[str, Any]) -> dict[str, Any] | None:
    """Speed-up against the number of candidates, one line for each draft and gamma."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for lane, row in _drafted(bench):
        label = _variant(bench, lane, "draft", "gamma", "temperature", "dtype")
        lines.setdefault(label, []).append((lane["candidates"], row["overall"]["speedup"]["mean"]))
    lines = {label: sorted(points) for label, points in lines.items() if len(points) > 1}
    if not lines:
        return None
    marks, dashes = ("circle", "diamond", "square", "x"), ("solid", "dash", "dot", "dashdot")
    colours = (ACCEPTED, RATE, REJECTED, DISCARDED)
    traces = [
        go.Scatter(
            name=label,
            x=[count for count, _ in points],
            y=[value for _, value in points],
            mode="lines+markers",
            line={"color": colours[i % 4], "width": 2, "dash": dashes[i // 4 % 4]},
            marker={"symbol": marks[i % 4], "size": 9},
            hovertemplate="%{y:.2f}",
        )
        for i, (label, points) in enumerate(lines.items())
    ]
    return figure(
        traces,
        height=320,
        showlegend=True,
        xaxis={"title": {"text": "candidates"}, "dtick": 1, "showgrid": False, "range": [0.8, 4.2]},
        yaxis={"title": {"text": "speed-up"}, "rangemode": "tozero", "nticks": 6},
    )


def _drafted(bench: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(lane, summary) of the lanes with a draft and a speed-up."""
    lanes = {lane["name"]: lane for lane in bench["lanes"] if lane["kind"] == "draft"}
    rows = [row for row in bench["summary"]["lanes"] if row["lane"] in lanes and row["overall"]["speedup"]]
    return [(lanes[row["lane"]], row) for row in rows]


def _variant(bench: dict[str, Any], lane: dict[str, Any], *fields: str) -> str:
    """A lane's draft, and those of `fields` in which the benchmark's draft lanes differ."""
    marks = {"draft": "{}", "gamma": "gamma {}", "candidates": "{} candidates", "temperature": "T {:g}", "dtype": "{}"}
    others = [other for other in bench["lanes"] if other["kind"] == "draft"]
    varying = [name for name in fields if name == "draft" or len({other[name] for other in others}) > 1]
    # A chain has one candidate by nature, which needs no word.
    words = [marks[name].format(lane[name]) for name in varying if (name, lane[name]) != ("candidates", 1)]
    if lane["adaptive"] and "gamma" in fields:
        words[1:2] = [f"gamma up to {lane['gamma']}"]
    return ", ".join(words)


def _heat(columns: list[str], rows: list[str], cells: list[list[float | None]], title: str = "") -> dict[str, Any]:
    """A heat map of ratios, their logarithms coloured and 1 in the middle; the ratio stands in every cell."""
    logs = [[None if value is None else math.log2(value) for value in row] for row in cells]
    most = max((abs(value) for row in logs for value in row if value is not None), default=1.0)
    trace = go.Heatmap(
        x=columns,
        y=rows,
        z=logs,
        text=[["" if value is None else f"{value:.2f}" for value in row] for row in cells],
        texttemplate="%{text}",
        textfont={"color": CELL_INK},
        colorscale=SCALE,
        zmid=0,
        zmin=-max(most, 0.25),
        zmax=max(most, 0.25),
        showscale=False,
        xgap=2,
        ygap=2,
        hovertemplate="%{y}, %{x}: %{text}<extra></extra>",
    )
    return figure(
        [trace],
        **_lanes(rows),
        hovermode="closest",
        xaxis={
            "type": "category",
            "title": {"text": title},
            "showgrid": False,
            "automargin": True,
            "tickangle": -30 if max(map(len, columns), default=0) > LABEL else 0,
        },
        **({} if rows else {"annotations": nothing("Nothing to compare.")}),
    )


def _lanes(names: list[str]) -> dict[str, Any]:
    """Layout of a figure with one row a lane, the first on top."""
    return {
        "height": FRAME + ROW * len(names),
        "margin": LANES_MARGIN,
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": names[::-1],
            "automargin": True,
            "showgrid": False,
            "ticksuffix": "  ",
        },
    }


def _ticks(values: list[float]) -> dict[str, Any]:
    """Ticks that people read on a logarithmic axis of ratios."""
    low, high = min([*values, 0.9]) / 1.08, max([*values, 1.1]) * 1.08
    wide = high / low > 3
    steps = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if wide else (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 2.5)
    shown = [step for step in steps if low <= step <= high]
    return {
        "range": [math.log10(low), math.log10(high)],
        "tickvals": shown,
        "ticktext": [f"{step:g}" for step in shown],
    }


#: (title, what to read it as, how it is drawn) by name.
_FIGURES = {
    "speed": ("Speed", "tokens per second of decoding; reading the prompt is apart", bench_speed),
    "speedup": (
        "Speed-up over plain decoding",
        "geometric mean over prompts with its 95 % interval, at the same precision and temperature; "
        "diamonds: what the measured costs predict",
        bench_speedup,
    ),
    "sweep": ("Gamma and draft", "speed-up; one column for each gamma", bench_sweep),
    "candidates": (
        "Candidates",
        "speed-up against the drafters of a pool, or the children of a tree's node",
        bench_candidates,
    ),
    "categories": ("By category", "speed-up over plain decoding", bench_categories),
    "against": (
        "Lane against lane",
        "how many times as fast each row is as each column, prompt by prompt",
        bench_against,
    ),
}
