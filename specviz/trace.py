"""What a run IS: `Run` > `Step` > `Token`, plain dataclasses that go to JSON and come back unchanged.

The screen, the exported file, the race and the tests all read these objects, so no number is computed twice.
This module imports nothing of specviz and draws no random numbers. Round trip held by tests/unit/test_trace.py.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from typing_extensions import Self

SCHEMA = "specviz.trace/1"

Fate = Literal["accepted", "rejected", "discarded", "resampled", "bonus", "sampled", "trimmed"]
#: Fates whose tokens are in the output, in order.
EMITTED: frozenset[str] = frozenset({"accepted", "resampled", "bonus", "sampled"})
#: Fates of draft tokens that the target really tested; only these are in an acceptance rate.
TESTED: frozenset[str] = frozenset({"accepted", "rejected"})

FinishReason = Literal["eos", "stop", "length", "context", "cancelled", "error"]

#: One row of `top_p`, `top_q` or `residual`: [id, text, prob, raw_prob]; raw_prob is unwarped, at temperature 1.
TopRow = list[Any]


@dataclass(slots=True)
class Token:
    """One token of a step, drafted or emitted.

    `position` is absolute (prompt length for the first new token); `parent` is the index of the preceding token
    in the same step, -1 for the pending one: a step's draft tokens are a tree, a chain being the simplest. `p` and
    `q` are warped probabilities of this very token; `q`, `u`, `accept_prob`, `overlap` and `confidence` are None
    for tokens the target drew. `u` is None for a draft token that was never tested, and under rule `coupled`.
    `accept_prob` is min(1, p/q), behind a refused sibling with what was left of p; under `block` its h.
    """

    position: int
    id: int
    text: str
    fate: Fate
    parent: int
    p: float | None = None
    q: float | None = None
    u: float | None = None
    accept_prob: float | None = None
    overlap: float | None = None
    confidence: float | None = None
    source: str | None = None
    top_p: list[TopRow] | None = None
    top_q: list[TopRow] | None = None
    residual: list[TopRow] | None = None


@dataclass(slots=True)
class Step:
    """One target pass; `gamma` counts the tokens drafted for it. Times are seconds on one monotonic clock that starts
    at the end of prefill.

    `draft_s + verify_s + host_s == t_end - t_start`; `cache_before` and `cache_after` count the target's cached tokens.
    """

    index: int
    t_start: float
    t_end: float
    draft_s: float
    verify_s: float
    host_s: float
    gamma: int
    draft: str
    cache_before: int
    cache_after: int
    note: str | None = None
    tokens: list[Token] = field(default_factory=list)

    @property
    def emitted(self) -> list[Token]:
        """The tokens this step added to the output, in order."""
        return [token for token in self.tokens if token.fate in EMITTED]

    @property
    def accepted(self) -> int:
        """How many draft tokens were kept."""
        return sum(token.fate == "accepted" for token in self.tokens)


@dataclass(slots=True)
class Device:
    """Where the run happened. `path` names the forward that ran: transformers, fast-cpu or cuda-graph."""

    name: str
    type: str
    dtype: str
    threads: int
    path: str


@dataclass(slots=True)
class Target:
    """`special` names the tokenizer's special tokens by id (a text, as in JSON): they add nothing to the decoded text,
    so the `text` of such a token is '' and this is what can be shown of it. Files made before it was kept lack it."""

    name: str
    params: int
    special: dict[str, str] = field(default_factory=dict, metadata={"may_lack": True})


@dataclass(slots=True)
class Draft:
    """`params` is 0 for a draft without weights; `name` is None when nothing drafts."""

    type: str
    name: str | None = None
    params: int = 0


@dataclass(slots=True)
class Prompt:
    """`text` is what the user wrote; `token_ids` is what the target read (chat template included)."""

    text: str
    token_ids: list[int]


@dataclass(slots=True)
class Prefill:
    """Seconds spent reading the prompt, apart from the steps."""

    target_s: float = 0.0
    draft_s: float = 0.0


@dataclass(slots=True)
class Calibration:
    """What a step costs on this machine, measured once and fixed during a run, in units of a 1-row target pass.

    `c` is the draft's cost per token, `v[i]` a target pass of i + 1 rows (so `v[0]` is 1), `h` the host's time in a
    step that drafts and `h0` in a plain one. `unit_s` is the 1-row pass in seconds.
    """

    c: float
    v: list[float]
    h: float
    h0: float
    unit_s: float

    @property
    def is_sound(self) -> bool:
        """Whether steps can be reckoned with it: finite costs, no less than 0, and a pass takes time."""
        costs = [self.c, self.h, self.h0, *self.v]
        real = all(isinstance(cost, (int, float)) and math.isfinite(cost) and cost >= 0 for cost in costs)
        return bool(self.v) and real and min(self.v) > 0

    def step(self, gamma: int, nodes: int | None = None) -> float:
        """The modelled time of a step that drafts `gamma` tokens deep and `nodes` in all (a chain: as many)."""
        if not gamma:
            return 1 + self.h0
        rows = (gamma if nodes is None else nodes) + 1
        return gamma * self.c + self.v[min(rows, len(self.v)) - 1] + self.h


@dataclass(slots=True)
class Output:
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason | None = None


@dataclass(slots=True)
class Interval:
    """A figure with its 95 % interval; all None when there was nothing to count."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(slots=True)
class PositionRate:
    """Acceptance at the k-th draft position (`position` starts at 1), given that it was reached.

    `proposed` counts the steps that drafted so far, `tested` those in which the target got there; `rate` is
    accepted / tested with its 95 % Wilson interval, `reach_rate` is accepted / proposed.
    """

    position: int
    proposed: int
    tested: int
    accepted: int
    rate: float | None
    low: float | None
    high: float | None
    reach_rate: float | None


@dataclass(slots=True)
class Summary:
    """Figures of a run, computed from its steps by `specviz.summary.summarise` and nowhere else."""

    tokens: int = 0
    steps: int = 0
    tokens_per_step: float | None = None
    tokens_per_second: float | None = None
    acceptance_rate: Interval = field(default_factory=Interval)
    alpha: float | None = None
    by_position: list[PositionRate] = field(default_factory=list)
    predicted: dict[str, float] | None = None


class Document:
    """A dataclass that is a JSON file of its own, told by its field `schema`."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_json(self, indent: int | None = None) -> str:
        """JSON text; NaN never occurs in a trace, so it is refused instead of written."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Rebuild it.

        Raises:
            ValueError: another schema, a missing or unknown field, or a value of the wrong shape.
        """
        schema = cls.__dataclass_fields__["schema"].default
        if not isinstance(data, dict) or data.get("schema") != schema:
            found = data.get("schema") if isinstance(data, dict) else type(data).__name__
            raise ValueError(f"This is not a {cls.__name__.lower()} of schema {schema!r} (found {found!r}).")
        return build(cls, data, cls.__name__.lower())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """As `from_dict`, from JSON text."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"This is not JSON: {error}.") from error
        return cls.from_dict(data)


@dataclass(slots=True)
class Run(Document):
    """A whole decoding run: everything the screen, the race and the file need.

    `settings` is the plain dict of `specviz.settings.Settings`; `calibration` is what adaptive gamma decided with:
    the same run with the same calibration gives the same ids.
    """

    id: str
    created_at: str
    app_version: str
    device: Device
    target: Target
    draft: Draft
    settings: dict[str, Any]
    prompt: Prompt
    prefill: Prefill = field(default_factory=Prefill)
    steps: list[Step] = field(default_factory=list)
    output: Output = field(default_factory=Output)
    summary: Summary = field(default_factory=Summary)
    calibration: Calibration | None = None
    schema: str = SCHEMA


def build(kind: Any, value: Any, where: str) -> Any:
    """`value` (plain JSON) as the dataclass or container `kind`; strict, so that a foreign file fails at once.

    Raises:
        ValueError: naming the place (`run.steps[3].tokens[0].fate`) that does not fit.
    """
    if kind is Any:
        return value
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(kind)
        if value is None and type(None) in options:
            return None
        return build(next(option for option in options if option is not type(None)), value, where)
    if origin is Literal:
        if value not in typing.get_args(kind):
            raise ValueError(f"{where} is {value!r}, not one of {', '.join(typing.get_args(kind))}.")
        return value
    if origin is list:
        if not isinstance(value, list):
            raise ValueError(f"{where} is not a list.")
        (item,) = typing.get_args(kind)
        return [build(item, entry, f"{where}[{i}]") for i, entry in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{where} is not an object.")
        _, item = typing.get_args(kind)
        return {name: build(item, entry, f"{where}.{name}") for name, entry in value.items()}
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{where} is {value!r}, not {kind.__name__}.")
    return value


def _build_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object.")
    hints = _hints(kind)
    missing = hints.keys() - value.keys()
    if missing:
        missing -= {one.name for one in dataclasses.fields(kind) if one.metadata.get("may_lack")}
    if missing:
        raise ValueError(f"{where} lacks {', '.join(sorted(missing))}.")
    if unknown := value.keys() - hints.keys():
        raise ValueError(f"{where} has unknown fields: {', '.join(sorted(unknown))}.")
    return kind(**{name: build(hints[name], entry, f"{where}.{name}") for name, entry in value.items()})


_HINTS: dict[Any, dict[str, Any]] = {}


def _hints(kind: Any) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = typing.get_type_hints(kind)
    return _HINTS[kind]
