"""The page's entry point: `python app.py`, a Space, or the Docker image."""

import os

import specviz.ui as ui
from specviz.errors import SettingsError
from specviz.serve import Host

_NAMES = {"pair": "PAIR", "target": "TARGET", "draft_model": "DRAFT_MODEL", "dtype": "DTYPE", "device": "DEVICE"}

given = {
    name: os.environ[f"SPECVIZ_{suffix}"] for name, suffix in _NAMES.items() if os.environ.get(f"SPECVIZ_{suffix}")
}
try:
    demo = ui.build(Host(**given), talk=os.environ.get("SPECVIZ_TALK") or None)
except SettingsError as error:
    raise SystemExit(str(error)) from error

if __name__ == "__main__":
    ui.launch(demo)
