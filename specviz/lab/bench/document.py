"""What a benchmark IS: a JSON document that grows prompt by prompt and from which every figure is computed.

A file holds whole prompts only: it is written aside and renamed behind each of them, so a killed benchmark goes on
where it was. Held by tests/unit/test_bench.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from specviz.errors import SettingsError
from specviz.trace import Calibration, Device, Document, Interval

SCHEMA = "specviz.bench/1"
PLAIN = "none"

#: planned: nothing said against it yet. missing: the peer is not installed. failed: it cannot run here, crashed or
#: fell back; it gets no figures.
Status = Literal["planned", "missing", "failed"]


@dataclass(slots=True)
class Lane:
    """One contestant, told apart by `name`.

    `dtype` is the precision of its weights; `draft` is None for a peer and "none" for plain decoding; with `adaptive`
    gamma is the most it may choose. `path` names the forward that ran. `prefill` is "apart" where reading the prompt
    is timed by itself, "first-token" where it can only be told by the first tokens that come out: those are then left
    out of the rate together with the time they took. `message` says what a lane that did not run needs, or the last
    line of its error; `note` is what a peer says of itself, such as its version.
    """

    name: str
    kind: Literal["plain", "draft", "peer"]
    dtype: str
    temperature: float = 0.0
    draft: str | None = None
    gamma: int = 0
    candidates: int = 1
    adaptive: bool = False
    peer: str | None = None
    path: str | None = None
    prefill: Literal["apart", "first-token"] = "apart"
    status: Status = "planned"
    message: str | None = None
    note: str | None = None
    calibration: Calibration | None = None

    @property
    def identity(self) -> tuple:
        """What makes it the same lane in a later call."""
        return (self.name, self.kind, self.dtype, self.temperature, self.draft, self.gamma, self.candidates)


@dataclass(slots=True)
class Entry:
    """A prompt, without its text: `sha256` is of the text, `tokens` counts the ids that every lane reads."""

    id: str
    category: str
    sha256: str
    tokens: int


@dataclass(slots=True)
class Result:
    """One lane on one prompt once.

    `tokens` counts the ids that came out, EOS included; `timed` of them took `seconds`, which exclude `prefill_s`.
    `steps` are target passes. `accepted` of `tested` levels held; `overlap` is the mean of Σ min(p, q) over them;
    `draft_s`, `verify_s` and `host_s` are the steps' own; `seconds` has what lies between steps, too. `predicted` is
    the summary's. `nll` is the negative log likelihood of the ids under the reference, in nats.
    """

    prompt: str
    lane: str
    round: int
    ids: list[int]
    tokens: int
    timed: int
    seconds: float
    prefill_s: float
    finish: str
    steps: int | None = None
    accepted: int | None = None
    tested: int | None = None
    overlap: float | None = None
    draft_s: float | None = None
    verify_s: float | None = None
    host_s: float | None = None
    predicted: dict[str, Any] | None = None
    nll: float | None = None

    @property
    def rate(self) -> float | None:
        """Tokens per second of decoding."""
        return self.timed / self.seconds if self.timed and self.seconds > 0 else None


@dataclass(slots=True)
class Reading:
    """How one precision reads a text that `lane` wrote: of `tokens`, `agreeing` have the same likeliest token there as
    under the reference; `nll` in nats."""

    prompt: str
    dtype: str
    lane: str
    tokens: int
    agreeing: int
    nll: float


@dataclass(slots=True)
class Ratio:
    """How many times as fast: geometric mean over `prompts` prompts, standard deviation of the single ratios, and the
    95 % bootstrap interval over prompts; those are None with fewer than two prompts."""

    mean: float
    sd: float | None
    low: float | None
    high: float | None
    prompts: int


@dataclass(slots=True)
class Figures:
    """One lane on the prompts of a category, or on all (`category` ""): `tokens_per_second` is all timed tokens over
    all seconds; `speedup` is over the plain lane of the same precision and temperature."""

    category: str
    prompts: int
    tokens: int
    tokens_per_second: float | None
    tokens_per_pass: float | None
    acceptance: float | None
    prefill_s: float
    speedup: Ratio | None
    perplexity: float | None


@dataclass(slots=True)
class Model:
    """Speed-up as theory has it beside the one measured: `alpha` as its runs were predicted with, costs as calibrated,
    `v` the mean cost of its target passes; `speedup` is the geometric mean of the runs' predictions. `from_tokens`
    takes the tokens per pass as they were and only the time from the calibration, so it shows which half is off."""

    alpha: float
    c: float
    v: float
    h: float
    h0: float
    speedup: float
    from_tokens: float
    measured: float | None


@dataclass(slots=True)
class Comparison:
    """The lane against another one, prompt by prompt."""

    against: str
    ratio: Ratio


@dataclass(slots=True)
class Worst:
    category: str
    speedup: float


@dataclass(slots=True)
class LaneSummary:
    """`categories_mean` is the geometric mean of the categories' speed-ups. `same_text` is the share of runs that wrote
    the ids of the plain lane of the same precision and temperature; None where equal ids are not to be expected."""

    lane: str
    overall: Figures
    categories: list[Figures]
    categories_mean: float | None
    worst: Worst | None
    model: Model | None
    same_text: float | None
    comparisons: list[Comparison]


@dataclass(slots=True)
class Quality:
    """What a precision costs in accuracy: share of positions with the reference's likeliest token, and perplexity
    on the same texts."""

    dtype: str
    tokens: int
    agreement: Interval
    perplexity: float


@dataclass(slots=True)
class BenchSummary:
    """Figures of all lanes that ran, computed by `specviz.lab.bench.figures.summarise` and nowhere else."""

    lanes: list[LaneSummary] = field(default_factory=list)
    quality: list[Quality] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Bench(Document):
    """A benchmark so far; `done` prompts of `prompts` are in `results`, each of them for every lane that can run.

    `target` is what every lane of ours decodes with; `reference` the precision that perplexities are reckoned in.
    """

    created_at: str
    updated_at: str
    app_version: str
    command: str
    versions: dict[str, Any]
    device: Device
    target: str
    reference: str
    settings: dict[str, Any]
    prompts: list[Entry]
    lanes: list[Lane]
    results: list[Result] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    done: int = 0
    summary: BenchSummary = field(default_factory=BenchSummary)
    schema: str = SCHEMA

    @property
    def complete(self) -> bool:
        return self.done == len(self.prompts)

    def lane(self, name: str) -> Lane:
        """The lane of a name.

        Raises:
            SettingsError: there is none; the sentence lists those there are.
        """
        for lane in self.lanes:
            if lane.name == name:
                return lane
        names = ", ".join(repr(lane.name) for lane in self.lanes)
        raise SettingsError(f"This benchmark has no lane {name!r}: its lanes are {names}.")


def save(bench: Bench, file: Path) -> None:
    """Write it whole, or leave the file as it was.

    Raises:
        SettingsError: it cannot be written.
    """
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        aside.write_text(bench.to_json(), encoding="utf-8")
        os.replace(aside, file)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise SettingsError(f"Cannot write {file}: {error.strerror}.") from error


def load(file: Path) -> Bench:
    """Raises SettingsError for what is not a benchmark's file."""
    try:
        return Bench.from_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"Cannot read {file}: {error.strerror}.") from error
    except ValueError as error:
        raise SettingsError(f"{file} is not a benchmark of this version ({error}) Start anew with --fresh.") from error


def resume(old: Bench, new: Bench) -> Bench:
    """`old`, to go on with, when it is the beginning of what `new` asks for.

    Raises:
        SettingsError: something differs; the sentence names it.
    """
    differing = [name for name in new.settings if new.settings[name] != old.settings.get(name)]
    checks = {
        "prompts": old.prompts == new.prompts,
        "lanes": [lane.identity for lane in old.lanes] == [lane.identity for lane in new.lanes],
        "target": old.target == new.target,
        "reference": old.reference == new.reference,
        "app version": old.app_version == new.app_version,
        "versions": old.versions == new.versions,
        "device": old.device == new.device,
    }  # fmt: skip
    differing += [name for name, same in checks.items() if not same]
    if differing:
        raise SettingsError(
            f"The file holds a benchmark with other {', '.join(differing)}: name another, or start anew with --fresh."
        )
    return old
