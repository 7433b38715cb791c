"""Where the engine call is made: here, or on a ZeroGPU Space in the process that holds the GPU for its duration.

There, arguments and results cross a process boundary: only plain picklable data may, and the engine is found by
its key in the forked copy of this module. The wrapping happens on import, because a ZeroGPU Space looks for it when
it starts. Held by tests/unit/test_serve.py with a package of the same surface.
"""

from __future__ import annotations

import importlib.util
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

from specviz.engine.engine import Engine
from specviz.settings import Settings

#: Whether the package is there; off a ZeroGPU machine its decorator changes nothing.
ON_SPACES = importlib.util.find_spec("spaces") is not None
#: Engines by key, so that a forked process finds the one that is meant without pickling it.
_ENGINES: dict[int, Engine] = {}
#: Seconds of GPU asked for: to load kernels, and per token of every run at a very slow 20 tokens/s.
SECONDS_BASE, SECONDS_PER_TOKEN, SECONDS_MAX = 20, 0.05, 300

#: A module-level generator function (engine, prompt, **options) whose items can be pickled.
Work = Callable[..., Iterator[Any]]


def on_device(
    work: Work,
    engine: Engine,
    prompt: str,
    options: dict[str, Any],
    stop: threading.Event,
    here: dict[str, Any] | None = None,
) -> Iterator[Any]:
    """The items of `work(engine, prompt, **options)`, until `stop` is set.

    In this process, `stop` also reaches into a step (option `cancelled`) and `here` are further options, which need
    not be picklable; across a process boundary the work ends behind a step, and has no `here`.
    """
    if not ON_SPACES:
        yield from work(engine, prompt, **options, **(here or {}), cancelled=stop.is_set)
        return
    _ENGINES[id(engine)] = engine
    items = _forked(work, id(engine), prompt, options)
    for item in items:
        yield item
        if stop.is_set():
            items.close()
            return


def _forked(work: Work, key: int, prompt: str, options: dict[str, Any]) -> Iterator[Any]:
    yield from work(_ENGINES[key], prompt, **options)


def seconds(work: Work, key: int, prompt: str, options: dict[str, Any]) -> int:
    """How long the GPU may be held, from the length limit and the runs of a race or a sweep."""
    # Asked before the settings are checked: what is no sensible number is refused later, with its sentence.
    tokens, rounds = options.get("max_new_tokens"), options.get("rounds", int("gammas" in options))
    tokens = tokens if isinstance(tokens, (int, float)) else Settings().max_new_tokens
    # A sweep runs every combination of its lists, a race every draft; each has plain decoding beside it.
    lists = [options.get(name) for name in ("drafts", "gammas", "temperatures", "candidates")]
    count = math.prod(len(values) for values in lists if isinstance(values, (list, tuple)) and values)
    runs = (1 + count) * rounds if isinstance(rounds, int) and rounds > 0 else 1
    if options.get("own_set"):
        return SECONDS_MAX
    # Before a race the costs of each draft are measured.
    return int(min(SECONDS_BASE * count + SECONDS_PER_TOKEN * tokens * runs, SECONDS_MAX))


if ON_SPACES:
    import spaces

    _forked = spaces.GPU(duration=seconds)(_forked)
