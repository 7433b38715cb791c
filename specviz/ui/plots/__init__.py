"""All plotly of the page and of the reports: figures made here, shipped as JSON, coloured by static/charts.js."""

from specviz.ui.plots.base import ACCEPTED, BONUS, DISCARDED, RATE, REJECTED, event
from specviz.ui.plots.bench import (
    bench_against,
    bench_candidates,
    bench_categories,
    bench_figures,
    bench_speed,
    bench_speedup,
    bench_sweep,
)
from specviz.ui.plots.proof import CELLS_MOST, OUTSIDE_MOST, distances, law
from specviz.ui.plots.runs import acceptance_by_position, acceptance_per_step, time_breakdown

__all__ = [
    "ACCEPTED",
    "BONUS",
    "CELLS_MOST",
    "DISCARDED",
    "OUTSIDE_MOST",
    "RATE",
    "REJECTED",
    "acceptance_by_position",
    "acceptance_per_step",
    "bench_against",
    "bench_candidates",
    "bench_categories",
    "bench_figures",
    "bench_speed",
    "bench_speedup",
    "bench_sweep",
    "distances",
    "event",
    "law",
    "time_breakdown",
]
