"""The model behind the page: loaded in the background, one engine per precision, shared by every session.

A load that failed is tried again by the next run, so a page that started without network heals itself.
Held by tests/unit/test_serve.py.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import specviz
from specviz.engine.engine import Engine
from specviz.engine.pages import use_large_pages
from specviz.errors import SpecvizError
from specviz.serve.desk import Desk
from specviz.serve.gpu import ON_SPACES
from specviz.serve.session import Session
from specviz.settings import DRAFTS
from specviz.trace import Device
from specviz.zoo import Progress, choose_device, choose_precision
from specviz.zoo.hardware import QUANTISED

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Status:
    """Where loading stands. `drafts` maps each draft type to None, or to the sentence why it cannot be used;
    `dtypes` lists the precisions on offer; `done` and `total` are bytes."""

    state: Literal["loading", "ready", "failed"]
    stage: str = ""
    done: int | None = None
    total: int | None = None
    message: str = ""
    target: str | None = None
    device: Device | None = None
    drafts: dict[str, str | None] = field(default_factory=lambda: dict.fromkeys(DRAFTS))
    dtypes: tuple[str, ...] = ("auto",)


class Host:
    """Owns the engines and the line in front of them; begins to load as soon as it is made.

    Args:
        pair, target, draft_model, dtype, device: as for `specviz.load`.
    """

    def __init__(
        self,
        pair: str | None = None,
        target: str | None = None,
        draft_model: str | None = None,
        dtype: str = "auto",
        device: str = "auto",
    ) -> None:
        self.desk = Desk()
        # On ZeroGPU there is no GPU yet when the weights are read, so nothing can be fused or captured there.
        path = "transformers" if ON_SPACES and choose_device(device).type == "cuda" else "auto"
        self._models = {"pair": pair, "target": target, "draft_model": draft_model, "device": device, "path": path}
        self._dtype = dtype
        self._engines: dict[str, Engine] = {}
        self._loading = threading.Lock()
        self._status = Status("loading", stage="Starting")
        if ON_SPACES:  # ZeroGPU takes over the weights that are in place when the page is launched
            self._load_first()
        else:
            threading.Thread(target=self._load_first, name="specviz-load", daemon=True).start()

    def status(self) -> Status:
        return self._status

    def session(self) -> Session:
        """One per open page."""
        return Session(self)

    def engine(self, dtype: str = "auto", progress: Callable[[Progress], None] = lambda _: None) -> Engine:
        """The engine of a precision (auto: the one the host was started with), loaded now if it is not there yet.

        Raises:
            ModelError: it cannot be loaded.
        """
        asked = self._dtype if dtype == "auto" else dtype
        with self._loading:
            device = choose_device(self._models["device"])
            name = choose_precision(asked, device)
            if name not in self._engines:
                self._engines[name] = specviz.load(**self._models, dtype=name, progress=progress)
                use_large_pages(self._engines[name].target.weight_bytes)
            engine = self._engines[name]
            if self._status.state != "ready":
                self._status = Status(
                    "ready",
                    target=engine.target.name,
                    device=engine.device,
                    drafts=engine.drafts(),
                    dtypes=_dtypes(engine),
                )
            return engine

    def _load_first(self) -> None:
        def progress(at: Progress) -> None:
            self._status = Status("loading", stage=at.stage, done=at.done, total=at.total)

        try:
            self.engine(progress=progress)
        except SpecvizError as error:
            self._status = replace(self._status, state="failed", message=str(error))
        except Exception as error:
            # The boundary of a thread: nobody above could show it.
            log.exception("loading failed")
            message = f"The model could not be loaded ({type(error).__name__}: {error}); the server's log says more."
            self._status = replace(self._status, state="failed", message=message)


def _dtypes(engine: Engine) -> tuple[str, ...]:
    """The precisions that can be chosen for what was loaded."""
    if engine.target.path == "fast-cpu":
        return ("auto", "float32", "bfloat16", *QUANTISED)
    return ("auto", "float32", "bfloat16", *(("float16",) if engine.device.type != "cpu" else ()))
