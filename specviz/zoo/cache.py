"""The user's cache folder: what stands in it is whole, because folders are built aside and renamed into place.

Invariant: a killed process leaves nothing under a final name; its leftovers lie in `staging/` and go with the next
fetch, which holds the only lock. Held by tests/unit/test_zoo_cache.py.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock
import platformdirs
from safetensors import SafetensorError

from specviz.errors import ModelError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a load is doing now: `stage` is a short phrase for the person; `done` and `total` are bytes, where known."""

    stage: str
    done: int | None = None
    total: int | None = None


Listener = Callable[[Progress], None]


def in_short(error: Exception) -> str:
    """The beginning of a library's error on one line, short enough to stand in a sentence of ours."""
    text = " ".join(str(error).split()).rstrip(".:") or type(error).__name__
    return text if len(text) <= 160 else f"{text[:159]}…"


def report(progress: Listener | None, stage: str, done: int | None = None, total: int | None = None) -> None:
    """Hand a `Progress` to the listener, if there is one."""
    if progress is not None:
        progress(Progress(stage, done, total))


def cache_dir() -> Path:
    """Where the weights are kept: $SPECVIZ_CACHE, or the user's cache folder of this system. It need not exist yet."""
    given = os.environ.get("SPECVIZ_CACHE")
    return (
        Path(given).expanduser().absolute() if given else Path(platformdirs.user_cache_dir("specviz", appauthor=False))
    )


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    # Large blocks: between two of them a thread must win the interpreter back from whoever imports meanwhile.
    block = memoryview(bytearray(min(1 << 25, path.stat().st_size + 1)))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(block[:count])
    return digest.hexdigest()


def megabytes(count: int) -> str:
    """A number of bytes for a person."""
    return f"{max(1, round(count / 1e6)):,} MB"


@contextmanager
def locked(progress: Listener | None) -> Iterator[None]:
    """Be the only process that fetches or converts; clear what killed ones left behind.

    Raises:
        ModelError: the cache folder cannot be written.
    """
    root = cache_dir()
    with disk_errors("The cache", 0):
        root.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(root / "fetch.lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            report(progress, "Waiting for another start of specviz that is fetching the model")
            lock.acquire()
    try:
        # Whoever made these held the lock, and now we hold it: they are dead.
        shutil.rmtree(root / "staging", ignore_errors=True)
        yield
    finally:
        lock.release()


@contextmanager
def staged(final: Path, what: str, need: int) -> Iterator[Path]:
    """A fresh folder that becomes `final` as a whole when the block ends well, and vanishes when it does not.

    Args:
        what: whose bytes these are, for the error's sentence.
        need: bytes the block will write at most; refused at once when the disk has fewer.

    Raises:
        ModelError: the disk is full or the folder cannot be written.
    """
    stage = cache_dir() / "staging"
    work = stage / f"{final.name}-{secrets.token_hex(4)}"
    with disk_errors(what, need):
        work.mkdir(parents=True)
        try:
            if shutil.disk_usage(work).free < need:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            yield work
            final.parent.mkdir(parents=True, exist_ok=True)
            if final.exists():
                os.replace(final, work.with_name(work.name + "-old"))  # a folder cannot be renamed over a full one
            os.replace(work, final)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def disk_errors(what: str, need: int) -> Iterator[None]:
    """Turn a full or forbidden disk into the sentence for it; every other error passes."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = getattr(error, "errno", None)
        if number in _FULL or (isinstance(error, SafetensorError) and is_full(str(error))):
            raise full_disk(what, need) from error
        if number in _FORBIDDEN:
            raise ModelError(
                f"The cache folder {cache_dir()} cannot be written ({os.strerror(number)}): "
                "set SPECVIZ_CACHE to a folder of your own."
            ) from error
        raise


def is_full(text: str) -> bool:
    """Whether a tool's message says that the disk is full."""
    return "No space left" in text or "os error 28" in text or "Errno 28" in text


def full_disk(what: str, need: int) -> ModelError:
    """The sentence for a full disk, with the folder and the bytes needed."""
    return ModelError(
        f"The disk is full: {what} needs {need:,} bytes ({megabytes(need)}) in {cache_dir()}; "
        "free some space there, or set SPECVIZ_CACHE to a folder on another disk."
    )
