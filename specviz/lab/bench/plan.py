"""What a benchmark runs: every combination of the lists it was given, as lanes with names that people can type.

Bad values are refused before any model is loaded. Held by tests/unit/test_bench.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from specviz.errors import SettingsError
from specviz.lab.bench.document import PLAIN, Lane
from specviz.lab.bench.peers import PEERS
from specviz.settings import CANDIDATES_MIN, TREES, Settings

ROUNDS_MAX = 20
FLOATS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Plan:
    """Lists to combine; `settings` are those of every run (max_new_tokens, seed, ignore_eos, chat, verify).

    With `adaptive`, each draft also runs with a gamma that is chosen step by step, up to the largest of `gammas`.
    """

    drafts: Sequence[str] = (Settings().draft,)
    gammas: Sequence[int] = (3,)
    temperatures: Sequence[float] = (0.0,)
    candidates: Sequence[int] = (2,)
    adaptive: bool = False
    peers: Sequence[str] = ()
    rounds: int = 1

    def check(self, settings: dict[str, Any]) -> None:
        """Refuse what no lane could run with.

        Raises:
            SettingsError: naming the value.
        """
        if not isinstance(self.rounds, int) or isinstance(self.rounds, bool) or not 1 <= self.rounds <= ROUNDS_MAX:
            raise SettingsError(f"rounds must be a whole number from 1 to {ROUNDS_MAX}, not {self.rounds!r}.")
        for peer in self.peers:
            if peer not in PEERS:
                raise SettingsError(f"Unknown peer {peer!r}: choose from {', '.join(PEERS)}.")
        if not self.temperatures:
            raise SettingsError("A benchmark needs a temperature: 0 is greedy.")
        if self.drafts and not (self.gammas and self.candidates):
            raise SettingsError("A draft needs a gamma and a number of candidates: give at least one of each.")
        for lane in self.lanes(["float32"], "float32"):
            if lane.kind != "peer":
                Settings.of(**options(lane, settings))

    def lanes(self, dtypes: Sequence[str], peer_dtype: str) -> list[Lane]:
        """All lanes, plain decoding of each precision and temperature first, the peers last.

        Args:
            dtypes: precisions, resolved (no auto).
            peer_dtype: what peers run in that can run in none of `dtypes`.
        """
        found = [
            Lane(_name("plain", dtype, heat), "plain", dtype, heat, PLAIN)
            for dtype in dtypes
            for heat in self.temperatures
        ]
        found += [
            lane
            for dtype in dtypes
            for heat in self.temperatures
            for draft in self.drafts
            if draft != PLAIN
            for lane in self._draft_lanes(draft, dtype, heat)
        ]
        floats = [dtype for dtype in dtypes if dtype in FLOATS] or [peer_dtype]
        for peer in self.peers:
            own = PEERS[peer].dtype
            found += [
                Lane(f"{peer} {dtype}", "peer", dtype, peer=peer, prefill="first-token")
                for dtype in ([own] if own else floats)
            ]
        return _distinct(found)

    def _draft_lanes(self, draft: str, dtype: str, heat: float) -> Iterable[Lane]:
        for count in self.candidates if draft in TREES else (CANDIDATES_MIN,):
            parts = [f"c{count}"] if draft in TREES else []
            for gamma in self.gammas:
                yield Lane(
                    _name(" ".join([draft, f"g{gamma}", *parts]), dtype, heat),
                    "draft", dtype, heat, draft, gamma, count,
                )  # fmt: skip
            if self.adaptive:
                most = max(self.gammas)
                yield Lane(
                    _name(" ".join([draft, f"adaptive g{most}", *parts]), dtype, heat),
                    "draft", dtype, heat, draft, most, count, adaptive=True,
                )  # fmt: skip


def options(lane: Lane, settings: dict[str, Any]) -> dict[str, Any]:
    """Keywords of `Settings.of` for a lane of ours."""
    own = {"draft": lane.draft, "temperature": lane.temperature}
    if lane.draft != PLAIN:
        own |= {"gamma": lane.gamma, "candidates": lane.candidates, "adaptive": lane.adaptive}
    return {**settings, **own}


def _name(what: str, dtype: str, heat: float) -> str:
    return f"{what} {dtype}" if heat == 0 else f"{what} {dtype} t{heat:g}"


def _distinct(lanes: Iterable[Lane]) -> list[Lane]:
    """A value given twice makes one lane."""
    return list({lane.name: lane for lane in lanes}.values())
