"""What makes a start short: no collecting of garbage while imports and weights come in, and no threads for small work.

Both are as they were when the block ends. Held by tests/unit/test_startup.py.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
#: How many blocks of `one_thread` are open, and how many threads there were before the first.
_inside, _threads = 0, 1


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing that an import makes is garbage, and looking for some in it again and again costs a sixth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute with one thread.

    Unpacking and packing weights is thousands of small operations: threads that meet behind each of them win a little
    on idle cores, and on busy ones wait for one another (reading the bundled int4 weights beside two other programs
    took 12 s of processor time with two threads, 0.9 s with one).
    """
    import torch

    global _inside, _threads  # threads of the host may load side by side
    with _lock:
        if not _inside:
            _threads = torch.get_num_threads()
        _inside += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            torch.set_num_threads(1 if _inside else _threads)
