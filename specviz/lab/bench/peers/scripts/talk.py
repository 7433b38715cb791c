"""The peer's side of the pipe: one JSON line in, one JSON line out. Runs in the peer's Python: imports nothing of ours.

First comes {"load": {...}}, then requests {"prompt": ids, "tokens": n, "eos": ids, ...}. An answer is {"ids": all ids
that came out, "at": [[how many of them, seconds since the request], ...] behind every pass, "finish": ...}.
"""

import importlib
import json
import os
import sys
import time


def serve(package, load):
    """`load(options)` gives (a function that answers requests, a note about itself); `package` is what it imports."""
    # Whatever a library prints goes to stderr: the pipe holds our lines alone.
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer):
        pipe.write(json.dumps(answer) + "\n")
        pipe.flush()

    answering = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if answering is None:
                try:
                    importlib.import_module(package)
                except ModuleNotFoundError as error:
                    say({"error": f"No module named {error.name!r}", "missing": error.name == package})
                    continue
                answering, note = load(request["load"])
                say({"note": note})
            else:
                say(answering(request))
        except Exception as error:  # noqa: BLE001  the boundary of the process: the parent shows it
            lines = [text for text in str(error).strip().splitlines() if text.strip()]
            say({"error": f"{type(error).__name__}: {lines[-1].strip()[:300] if lines else ''}"})


class Clock:
    """Notes how many ids there were when."""

    def __init__(self):
        self.start = time.perf_counter()
        self.at = []

    def tick(self, count):
        self.at.append([count, time.perf_counter() - self.start])
