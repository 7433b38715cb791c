"""The cache folder: whole or absent, whatever kills the process that fills it."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError

from specviz.errors import ModelError
from specviz.zoo import cache, cache_dir


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_folder_is_the_users_unless_named(root, monkeypatch):
    assert cache_dir() == root
    monkeypatch.setenv("SPECVIZ_CACHE", "~/elsewhere")
    assert cache_dir() == Path.home() / "elsewhere"
    monkeypatch.delenv("SPECVIZ_CACHE")
    assert cache_dir().is_absolute()
    assert "specviz" in cache_dir().parts


def test_a_staged_folder_appears_whole_and_leaves_nothing_else(root):
    with cache.locked(None), cache.staged(root / "a" / "b", "it", 10) as work:
        (work / "one").write_text("1")
        assert not (root / "a" / "b").exists()
    assert (root / "a" / "b" / "one").read_text() == "1"
    assert sorted(path.name for path in root.iterdir()) == ["a", "fetch.lock"]


def test_a_staged_folder_takes_the_place_of_an_old_one(root):
    for text in "12":
        with cache.locked(None), cache.staged(root / "b", "it", 10) as work:
            (work / text).write_text(text)
    assert [path.name for path in (root / "b").iterdir()] == ["2"]


def test_an_error_leaves_nothing(root):
    def fill():
        with cache.locked(None), cache.staged(root / "b", "it", 10) as work:
            (work / "one").write_text("1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fill()
    assert [path.name for path in root.iterdir()] == ["fetch.lock"]


def test_a_killed_process_leaves_nothing_under_the_final_name_and_its_rest_is_cleared(root):
    code = f"""
import os, signal
from specviz.zoo import cache
from pathlib import Path
with cache.locked(None), cache.staged(Path({str(root)!r}) / "final", "it", 10) as work:
    (work / "half").write_bytes(b"x" * 1000)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert not (root / "final").exists()
    assert len(list(root.glob("staging/*/half"))) == 1
    with cache.locked(None):  # the dead process's lock went with it
        assert not (root / "staging").exists()


def _hold(entered, leave):
    with cache.locked(None):
        entered.set()
        leave.wait(20)


def test_a_second_start_waits_and_says_so(root):
    context = multiprocessing.get_context("spawn")
    entered, leave = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(entered, leave))
    other.start()
    assert entered.wait(30)
    events = []

    def listen(event):
        events.append(event.stage)
        leave.set()

    with cache.locked(listen):
        other.join(20)
    assert events == ["Waiting for another start of specviz that is fetching the model"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Quota exceeded"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_one_sentence_with_the_folder_and_the_bytes(root, error):
    with pytest.raises(ModelError) as caught, cache.locked(None), cache.staged(root / "b", "The model", 4_000_000):
        raise error
    assert f"The disk is full: The model needs 4,000,000 bytes (4 MB) in {root}" in str(caught.value)
    assert not (root / "b").exists()
    assert not (root / "staging").exists()


def test_too_little_room_is_seen_before_anything_is_written(root):
    with (
        pytest.raises(ModelError, match="The disk is full: The model needs"),
        cache.locked(None),
        cache.staged(root / "b", "The model", 10**18),
    ):
        pytest.fail("went on")
    assert not (root / "staging").exists()


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    def forbid(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", forbid)
    with (
        pytest.raises(ModelError, match=r"cannot be written \(Permission denied\): set SPECVIZ_CACHE"),
        cache.locked(None),
    ):
        pytest.fail("went on")


def test_other_errors_pass(root):
    with pytest.raises(SafetensorError, match="header"), cache.disk_errors("it", 1):
        raise SafetensorError("header")
    with pytest.raises(FileNotFoundError), cache.disk_errors("it", 1):
        os.stat(root / "nothing")
