"""What the command line shows people: coloured tokens, summaries, tables.

Model output is hostile: nothing of it reaches a terminal that could act on it. Held by tests/unit/test_cli.py.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from specviz.lab.proof import Proof
    from specviz.lab.race import Race
    from specviz.trace import Run, Step

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
    table = Table("lane", "tokens/s", "range", "tokens per pass", "prefill s", box=None, pad_edge=False)
    for lane in result.lanes:
        speed, shown = lane.tokens_per_second, lane.runs[lane.shown]
        table.add_row(
            lane.name, f"{speed.median:.1f}", f"{speed.low:.1f} to {speed.high:.1f}",
            f"{shown.summary.tokens_per_step:.2f}", f"{lane.prefill_s.median:.2f}",
        )  # fmt: skip
    return table


def proof_summary(result: Proof) -> Table:
    table = Table("total variation", "", box=None, pad_edge=False)
    table.add_row("enumerated", "not possible" if result.tv_exact is None else f"{result.tv_exact:.2g}")
    table.add_row(f"{result.n} samples", f"{result.tv:.4f}")
    table.add_row("chance alone", f"{result.floor.low:.4f} to {result.floor.high:.4f}")
    table.add_row("chi-squared", f"{result.chi2:.1f} at {result.dof} degrees of freedom, p-value {result.p_value:.2g}")
    return table
