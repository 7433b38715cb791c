"""The real app in a process of its own, for the tests over HTTP and in the browser."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START_S = 90


def start_app(log: Path, **environment: str) -> tuple[subprocess.Popen, str]:
    """`app.py` on a free port, answering; the caller ends it.

    Raises:
        RuntimeError: it ended or did not answer in time; the message carries its log.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if "SPECVIZ_TARGET" in environment:  # needs nothing of the user's cache, and must leave nothing there
        environment.setdefault("SPECVIZ_CACHE", str(log.parent / "cache"))
    own = {"GRADIO_SERVER_PORT": str(port), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, ROOT / "app.py"],
            cwd=log.parent,
            env=os.environ | own | environment,
            stdout=out,
            stderr=out,
        )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return process, url
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    stop_app(process)
    raise RuntimeError(f"The app did not start:\n{log.read_text()}")


def stop_app(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
