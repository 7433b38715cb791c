"""What the command line shows people: coloured tokens, summaries, tables.

Model output is hostile: nothing of it reaches a terminal that could act on it. Held by tests/unit/test_cli.py.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from specviz.settings import TREES

if TYPE_CHECKING:
    from specviz.lab.bench.document import Bench, Ratio
    from specviz.lab.proof import Proof
    from specviz.lab.race import Race
    from specviz.trace import Run, Step
    from specviz.zoo.costs import Measured

#: Stands for a character that a terminal would act on; and the marks that turn the writing direction.
SUBSTITUTE = "\N{SYMBOL FOR SUBSTITUTE FORM TWO}"
BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
#: DESIGN §7; every colour has a second mark.
STYLES = {
    "accepted": "bold #009E73",
    "rejected": "strike #D55E00",
    "discarded": "dim strike",
    "trimmed": "dim strike",
    "resampled": "underline #E69F00",
    "bonus": "underline2 #56B4E9",
    "sampled": "",
}


def coloured(step: Step, terminal: bool) -> Text:
    """The step's tokens, a refused one before what replaced it; where nothing can be struck out, only the output."""
    text = Text()
    for token in step.tokens if terminal else step.emitted:
        if token.fate not in ("discarded", "trimmed"):
            text.append(visible(token.text), STYLES[token.fate])
    return text


def visible(text: str) -> str:
    """Model output is hostile: escape sequences and marks that turn the writing direction must not reach a terminal."""
    return "".join(
        SUBSTITUTE if c in BIDI or (unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t") else c for c in text
    )


def run_summary(run: Run) -> Text:
    summary, rate = run.summary, run.summary.acceptance_rate
    text = Text()
    for name in ("accepted", "rejected", "resampled", "bonus"):
        text.append(f" {name} ", STYLES[name])
    text.append(f"\n{summary.tokens} tokens in {summary.steps} steps")
    if summary.tokens_per_step is not None:
        text.append(f", {summary.tokens_per_step:.2f} per target pass")
    if summary.tokens_per_second is not None:
        text.append(f", {summary.tokens_per_second:.1f} tokens/s")
    if rate.value is not None:
        text.append(f", acceptance {rate.value:.0%} ({rate.low:.0%} to {rate.high:.0%})")
    text.append(f"\n{run.target.name}, {run.device.dtype} on {run.device.name}; ended by {run.output.finish_reason}")
    return text


def race_summary(result: Race) -> Table:
    table = Table("lane", "tokens/s", "range", "speed-up", "tokens per pass", "prefill s", box=None, pad_edge=False)
    for lane in result.lanes:
        speed, shown = lane.tokens_per_second, lane.runs[lane.shown]
        table.add_row(
            lane.name, f"{speed.median:.1f}", f"{speed.low:.1f} to {speed.high:.1f}",
            _number(lane.speedup and lane.speedup.median, 2), f"{shown.summary.tokens_per_step:.2f}",
            f"{lane.prefill_s.median:.2f}",
        )  # fmt: skip
    return table


def race_costs(result: Race) -> Table | None:
    """What each draft's speed-up is predicted from, and its best gamma (specviz.lab.why)."""
    whys = [(lane, lane.why) for lane in result.lanes if lane.why is not None]
    if not whys:
        return None
    table = Table("lane", "predicted", "α", "c", "v", "h", "h0", "best gamma", box=None, pad_edge=False)
    for lane, why in whys:
        numbers = [_number(factor.value, 2) for factor in why.factors]
        table.add_row(lane.name, f"{why.predicted:.2f}", *numbers, f"{why.h0:.2f}", str(why.best))
    return table


def race_words(result: Race) -> list[str]:
    """The verdict, how each draft did where there are several, where its text parts from plain decoding's, and why."""
    drafts = result.lanes[1:]
    said = [result.verdict]
    for lane in drafts:
        if len(drafts) > 1:
            said.append(lane.verdict)
        if lane.first_divergence is not None:
            said.append(lane.first_divergence.sentence)
        if lane.why is not None:
            said.append(lane.why.sentence)
    return [visible(line) for line in said]


def proof_summary(result: Proof) -> Table:
    table = Table("total variation", "", box=None, pad_edge=False)
    table.add_row("enumerated", "not possible" if result.tv_exact is None else f"{result.tv_exact:.2g}")
    table.add_row(f"{result.n} samples", f"{result.tv:.4f}")
    table.add_row("chance alone", f"{result.floor.low:.4f} to {result.floor.high:.4f}")
    table.add_row("chi-squared", f"{result.chi2:.1f} at {result.dof} degrees of freedom, p-value {result.p_value:.2g}")
    return table


def costs_line(found: Measured) -> str:
    """What steps were measured to cost, in units of a one-row target pass; v for 2, 4, 5, 8 and 9 rows where known."""
    costs, key = found.calibration, found.key
    rows = ", ".join(f"{costs.v[size - 1]:.2f} ({size} rows)" for size in (2, 4, 5, 8, 9) if size <= len(costs.v))
    about = f"{key.get('draft')} on {key.get('target')}, {key.get('dtype')}, {key.get('threads')} threads"
    more = f", {key['candidates']} candidates" if key.get("draft") in TREES else ""
    return visible(
        f"costs of {about}{more}: c {costs.c:.3f}, v {rows}, h {costs.h:.3f}, h0 {costs.h0:.3f}, "
        f"one pass {1000 * costs.unit_s:.1f} ms; measured {found.measured_at[:10]} on {key.get('name')}"
    )


def bench_lanes(bench: Bench) -> Table:
    """One row a lane, those that did not run included."""
    table = _bench_table(
        "lane", "tokens/s", "speed-up", "95 %", "predicted", "tokens per pass", "accepted", "perplexity", "prefill s"
    )
    found = {row.lane: row for row in bench.summary.lanes}
    for lane in bench.lanes:
        row = found.get(lane.name)
        if row is None:
            table.add_row(lane.name, "did not run" if lane.status == "planned" else lane.status)
            continue
        all_, ratio = row.overall, row.overall.speedup
        table.add_row(
            lane.name, _number(all_.tokens_per_second, 1), _number(ratio and ratio.mean, 2), _span(ratio),
            _number(row.model and row.model.speedup, 2), _number(all_.tokens_per_pass, 2),
            "" if all_.acceptance is None else f"{all_.acceptance:.0%}", _number(all_.perplexity, 2),
            f"{all_.prefill_s:.2f}",
        )  # fmt: skip
    return table


def bench_categories(bench: Bench) -> Table | None:
    """Speed-up by category; the plain lanes, which have none, by their tokens per second."""
    names = list(dict.fromkeys(prompt.category for prompt in bench.prompts))
    if len(names) < 2 or not bench.summary.lanes:
        return None
    table = _bench_table("speed-up by category", *names, "mean", "worst")
    for row in bench.summary.lanes:
        if row.categories_mean is None:
            continue
        cells = {part.category: part.speedup for part in row.categories}
        speedups = [_number(cells.get(name) and cells[name].mean, 2) for name in names]
        table.add_row(row.lane, *speedups, _number(row.categories_mean, 2), _number(row.worst and row.worst.speedup, 2))
    return table


def bench_quality(bench: Bench) -> Table | None:
    if not bench.summary.quality:
        return None
    table = Table(
        "precision", f"same greedy token as {bench.reference}", "95 %", "perplexity", box=None, pad_edge=False
    )
    for row in bench.summary.quality:
        share = row.agreement
        table.add_row(
            row.dtype,
            f"{share.value:.2%} of {row.tokens}",
            f"{share.low:.2%} to {share.high:.2%}",
            f"{row.perplexity:.3f}",
        )
    return table


def bench_against(bench: Bench, name: str) -> Table:
    """How many times as fast as one lane every other is, prompt by prompt."""
    from specviz.lab.bench.figures import Ledger

    ledger = Ledger(bench)
    table = _bench_table(f"times as fast as {name}", "", "95 %", "prompts")
    for row in bench.summary.lanes:
        ratio = ledger.ratio(row.lane, name) if row.lane != name else None
        if ratio is not None:
            table.add_row(row.lane, f"{ratio.mean:.2f}", _span(ratio), str(ratio.prompts))
    return table


def _bench_table(first: str, *others: str) -> Table:
    """Names of lanes stay on one line; long headings may break."""
    table = Table(box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _span(ratio: Ratio | None) -> str:
    return "" if ratio is None or ratio.low is None else f"{ratio.low:.2f} to {ratio.high:.2f}"
