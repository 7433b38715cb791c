"""The page: the only package that knows gradio and plotly. `build` makes it, `launch` serves it."""

from __future__ import annotations

import os

# Before gradio is imported anywhere: it reads this once.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

from specviz.ui.build import build, launch

__all__ = ["build", "launch"]
