"""What steps cost on this machine, kept between starts: one small file for each thing that was measured.

A file is written aside and renamed, and believed only when its key says it is about the very same target, draft,
device, precision, threads and versions; one that is damaged is measured anew, with a warning. Held by
tests/unit/test_zoo_costs.py.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.trace import Calibration, Document
from specviz.zoo.cache import cache_dir

SCHEMA = "specviz.calibration/1"


@dataclass(slots=True)
class Measured(Document):
    """A calibration and what it is about; `key` holds plain JSON values."""

    key: dict[str, Any]
    measured_at: str
    calibration: Calibration
    schema: str = SCHEMA


class CostFiles:
    """The files in the folder `calibrations` of the cache."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_dir() / "calibrations"

    def read(self, key: Mapping[str, Any]) -> Calibration | None:
        """What was measured for `key`; None when nothing sound is there."""
        file = self._file(key)
        try:
            found = _load(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            warnings.warn(f"The costs kept in {file} cannot be used ({error}): they are measured anew.", stacklevel=2)
            return None
        return found.calibration if found.key == dict(key) else None

    def write(self, key: Mapping[str, Any], calibration: Calibration) -> None:
        """Keep it; where the folder cannot be written that is a warning, for the run can go on."""
        file = self._file(key)
        aside = file.with_name(f".{file.name}.{os.getpid()}")
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(Measured(dict(key), now, calibration).to_json(indent=1), encoding="utf-8")
            os.replace(aside, file)
        except OSError as error:
            warnings.warn(
                f"What steps cost cannot be kept in {file.parent} ({error.strerror}): it is measured at every start.",
                stacklevel=2,
            )

    def all(self) -> list[Measured]:
        """Everything sound that is kept, the latest first."""
        found = []
        for file in self._folder.glob("*.json"):
            try:
                found.append(_load(file))
            except (OSError, ValueError):
                continue  # `read` warns when it is wanted
        return sorted(found, key=lambda one: one.measured_at, reverse=True)

    def _file(self, key: Mapping[str, Any]) -> Path:
        text = json.dumps(dict(key), sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def _load(file: Path) -> Measured:
    found = Measured.from_json(file.read_text(encoding="utf-8"))
    if not found.calibration.is_sound:
        raise ValueError("its costs are not finite")
    return found
