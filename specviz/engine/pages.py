"""Large pages of memory for what a CPU reads in every pass.

A pass of one row reads all weights once, and with pages of 4 kB a fifth of its time goes into finding addresses
(24.6 ms for the bundled model in bfloat16 on 2 cores, 19.9 ms with pages of 2 MB). Linux gives large pages to whoever
asks, where its administrator lets it (/sys/kernel/mm/transparent_hugepage). Moving what is held takes a second or two,
so it is for processes that stay. Held by tests/unit/test_pages.py.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

MAPS = Path("/proc/self/maps")
#: A pass that reads less than this is short, and most of it is in the processor's caches.
WORTH_IT = 32 << 20
#: A large page, and the numbers of madvise(2): ask for large pages from now on, and move what is there into some.
PAGE, MADV_HUGEPAGE, MADV_COLLAPSE = 2 << 20, 14, 25


def use_large_pages(weight_bytes: int) -> int:
    """Ask Linux to hold this process's memory in large pages, if a pass reads so much that it matters; nothing that is
    held changes.

    Args:
        weight_bytes: what a pass reads.

    Returns:
        Bytes that lie in large pages now for having been asked; 0 on other systems, and where none were to be had.
    """
    if weight_bytes < WORTH_IT or not (sys.platform == "linux" and MAPS.exists()):
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    moved = 0
    for start, end in _ranges(MAPS.read_text()):
        if madvise(start, end - start, MADV_HUGEPAGE) == 0 and madvise(start, end - start, MADV_COLLAPSE) == 0:
            moved += end - start
    return moved


def _ranges(maps: str) -> list[tuple[int, int]]:
    """Whole large pages within the private writable memory that no file stands behind."""
    found = []
    for line in maps.splitlines():
        addresses, rights, _, _, _, *name = line.split(maxsplit=5)
        if rights != "rw-p" or (name and name[0] != "[heap]"):
            continue
        start, end = (int(address, 16) for address in addresses.split("-"))
        start, end = -(-start // PAGE) * PAGE, end // PAGE * PAGE
        if end > start:
            found.append((start, end))
    return found
