"""A peer's process: JSON lines to and from a script that runs in the peer's own Python.

The parent never blocks for good: it asks `cancelled` while it waits, and an end or a silence of the process becomes a
`PeerFailed` with the last line it wrote. Held by tests/unit/test_bench_peers.py.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Seconds a model may take to load (vLLM compiles then) and a prompt to be answered.
LOAD_S, ANSWER_S = 900.0, 600.0
#: How often a waiting parent looks up; twice a second takes no time from the peer.
POLL_S = 0.5


class PeerFailed(Exception):
    """The peer cannot go on; `missing` says that its package is not installed."""

    def __init__(self, message: str, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class Worker:
    """One script in one Python.

    Args:
        python: the interpreter.
        script: a file of `peers/scripts`.
        threads: cores it may compute with.
    """

    def __init__(self, python: str, script: Path, threads: int) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        environment |= {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  as long as the process
        self._process = subprocess.Popen(
            [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def ask(self, request: dict[str, Any], seconds: float) -> Iterator[dict[str, Any] | None]:
        """Yields None while it works, at last its answer.

        Raises:
            PeerFailed: it ended, was silent for too long, or says why it cannot.
        """
        if self._log.closed:
            raise PeerFailed("its process was ended")
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise PeerFailed(self._last_words()) from None
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=POLL_S)
            except queue.Empty:
                if time.monotonic() > deadline:
                    self.close()
                    raise PeerFailed(f"it did not answer within {seconds:g} s") from None
                yield None
                continue
            if not line:
                raise PeerFailed(self._last_words())
            answer = json.loads(line)
            if "error" in answer:
                raise PeerFailed(answer["error"], answer.get("missing", False))
            yield answer
            return

    def _last_words(self) -> str:
        code = self._process.wait(10)
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return f"it ended with code {code}" + (f": {lines[-1][:300]}" if lines else "")

    def close(self) -> None:
        """End the process; doing it twice is harmless."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was still to be written to a dead process
                    continue
