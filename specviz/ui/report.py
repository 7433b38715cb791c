"""A benchmark as one self-contained page: data, script and plotly inside, nothing fetched, light and dark.

The page draws with the app's own scripts, so both show the same report. Held by tests/unit/test_report.py and
tests/browser/test_bench.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import plotly

from specviz.errors import SettingsError
from specviz.lab.bench.document import Bench
from specviz.ui import plots
from specviz.ui.components import STATIC

PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
STYLES, SCRIPTS = ("page", "panes", "bench"), ("base", "charts", "bench")
#: What a report does not show: the single results, from which its figures were computed.
HIDDEN = ("results", "readings")


def report_data(bench: dict[str, Any]) -> dict[str, Any]:
    """What static/bench.js draws: the document (plain JSON) without its single results, and its figures."""
    return {
        "bench": {name: value for name, value in bench.items() if name not in HIDDEN},
        "figures": plots.bench_figures(bench),
    }


def write_report(bench: Bench, file: Path) -> None:
    """Write the page.

    Raises:
        SettingsError: the file cannot be written.
    """
    try:
        file.write_text(render_report(bench), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"Cannot write {file}: {error.strerror}.") from error


def render_report(bench: Bench) -> str:
    """The page as text."""
    styles = "\n".join((STATIC / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)
    files = [PLOTLY, *(STATIC / f"{name}.js" for name in SCRIPTS)]
    scripts = "\n;\n".join(file.read_text(encoding="utf-8") for file in files)
    data = json.dumps(report_data(bench.to_dict()), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    page = (STATIC / "report.html").read_text(encoding="utf-8")
    parts = {
        "/*STYLES*/": styles,
        # Neither may end the element that it stands in.
        "/*SCRIPTS*/": scripts.replace("</script", r"<\/script"),
        "/*DATA*/": data.replace("<", "\\u003c"),
    }
    # All at once: a part may hold the mark of another one.
    return re.sub("|".join(map(re.escape, parts)), lambda found: parts[found[0]], page)
