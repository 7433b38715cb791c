"""A benchmark logged to MLflow, where it is installed. Held by tests/unit/test_bench_cli.py."""

from __future__ import annotations

import importlib.util
import json
import re
import tempfile
from pathlib import Path

from specviz.errors import SettingsError
from specviz.lab.bench.document import Bench


def require() -> None:
    """Raises SettingsError where MLflow is not installed."""
    if importlib.util.find_spec("mlflow") is None:
        raise SettingsError("--mlflow needs MLflow, which is not installed: pip install mlflow.")


def log(bench: Bench, file: Path | None) -> str:
    """Log settings, the figures of every lane and the document itself; the id of the run."""
    import mlflow

    with mlflow.start_run(run_name=f"specviz bench {bench.target}") as run:
        mlflow.log_params(
            {name: json.dumps(value) for name, value in bench.settings.items()}
            | {"target": bench.target, "device": bench.device.name, "command": bench.command[:500]}
        )
        mlflow.log_metrics(metrics(bench))
        if file is not None:
            mlflow.log_artifact(str(file))
        else:
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder) / "bench.json"
                copy.write_text(bench.to_json(), encoding="utf-8")
                mlflow.log_artifact(str(copy))
        return run.info.run_id


def metrics(bench: Bench) -> dict[str, float]:
    """Figures by names that MLflow takes, such as 'plain_int4/tokens_per_second'."""
    found: dict[str, float] = {}
    for row in bench.summary.lanes:
        name = re.sub(r"[^\w.\- /]", "_", row.lane).replace(" ", "_")
        figures = {
            "tokens_per_second": row.overall.tokens_per_second,
            "tokens_per_pass": row.overall.tokens_per_pass,
            "acceptance": row.overall.acceptance,
            "speedup": row.overall.speedup and row.overall.speedup.mean,
            "perplexity": row.overall.perplexity,
        }
        found |= {f"{name}/{key}": value for key, value in figures.items() if value is not None}
    return found
