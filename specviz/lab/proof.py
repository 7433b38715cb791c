"""The proof: shows that what is written has the target's law, exactly and by sampling, and what goes wrong otherwise.

Small table models stand in for target and draft; drafters, rules, warp, noise and loop are the engine's own. The
exact part enumerates (`specviz.lab.exact`), the sampled part runs `Engine.generate_batch`. Held by
tests/statistical/test_proof.py.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from specviz.engine.engine import Engine
from specviz.errors import SettingsError, SpecvizError
from specviz.lab.exact import Law, drafts_to_enumerate, output_law, target_law, total_variation
from specviz.lab.mistakes import MISTAKES
from specviz.lab.table import LetterTokenizer, TableModel, table_engine
from specviz.settings import TITLES, Settings, shown
from specviz.trace import Document

SCHEMA = "specviz.proof/1"
#: Tokens of the tables; with top-k 3 some have p = 0 where q > 0.
VOCABULARY, SPREAD = 5, 1.5
PROMPT = (1, 2, 0, 1, 2)
#: Total variation that counts as none in float64, and the p-value below which a sample is no accident.
EXACT, SIGNIFICANT = 1e-9, 1e-4
SAMPLES_MIN, SAMPLES_MAX, BATCH = 100, 1_000_000, 500
GAMMA_MOST = 4
#: Drafts that are enumerated; more would take minutes.
DRAFTS_MOST = 40_000
#: Samples of the true law itself that the noise floor is taken from.
FLOOR_DRAWS = 200


class ProofCancelled(SpecvizError):
    """The proof was stopped before it was over."""


@dataclass(frozen=True, slots=True)
class ProofProgress:
    """`done` of `of` samples are drawn."""

    done: int
    of: int


@dataclass(slots=True)
class Floor:
    """Total variation that `n` samples of the true law itself show: median and central 95 %."""

    low: float
    median: float
    high: float


@dataclass(slots=True)
class Cell:
    """One text that can be written: its probability and its share of the samples."""

    text: str
    expected: float
    observed: float


@dataclass(slots=True)
class Proof(Document):
    """What was found about the joint law of `length` tokens.

    `tv` is the total variation between the samples' frequencies and the target's law, `tv_exact` that of the
    enumerated law (None where it cannot be enumerated), `floor` what pure chance gives; `chi2`, `dof`, `p_value` of
    the chi-squared test. `passed`: the exact one is below 1e-9 and the p-value above 1e-4. `outside` counts samples
    that the law excludes.
    """

    created_at: str
    draft: str
    verify: str
    mistake: str | None
    gamma: int
    temperature: float
    top_k: int
    top_p: float
    vocabulary: int
    length: int
    n: int
    tv: float
    tv_exact: float | None
    floor: Floor
    chi2: float
    dof: int
    p_value: float
    outside: int
    passed: bool
    cells: list[Cell]
    verdict: str
    schema: str = SCHEMA


def stream_proof(
    *,
    samples: int = 30_000,
    draft: str | None = None,
    verify: str | None = None,
    mistake: str | None = None,
    seed: int = 0,
    cancelled: Callable[[], bool] = lambda: False,
    **options: Any,
) -> Iterator[ProofProgress | Proof]:
    """Prove a draft type and a rule, or show what a mistake does to them.

    Args:
        samples: runs of the engine's loop, 100 to 1,000,000, with the seeds `seed`, `seed + 1`, ...
        draft, verify: default `model` and `rejection`; with a mistake, where it shows itself.
        mistake: a name out of `MISTAKES`.
        cancelled: asked between batches, and while the law is enumerated.
        seed: of the first sample.
        **options: gamma (1 to 4, default 2), temperature (0.8), top_k (3), and other fields of `Settings`.

    Raises:
        SettingsError: something that cannot be proved.
        ProofCancelled: `cancelled` said so.
    """
    if not isinstance(samples, int) or isinstance(samples, bool) or not SAMPLES_MIN <= samples <= SAMPLES_MAX:
        raise SettingsError(
            f"samples must be a whole number from {SAMPLES_MIN} to {SAMPLES_MAX}, not {shown(samples)}."
        )
    settings = check(draft, verify, mistake, **options)
    length = (settings.gamma or 1) + 2

    def look() -> None:
        if cancelled():
            raise ProofCancelled("The proof was stopped before it was over.")

    exact = None
    if mistake != "reseed":  # whose steps depend on each other through the numbers drawn, not through the text
        double = make_engine(mistake, torch.float64)
        law = target_law(double, settings, PROMPT, length)
        if drafts_to_enumerate(double, settings, PROMPT, law, DRAFTS_MOST) > DRAFTS_MOST:
            raise SettingsError(
                f"{TITLES[settings.draft]} with gamma {settings.gamma} has too many drafts to enumerate them all: "
                "choose a smaller gamma, candidates or top-k."
            )
        exact = total_variation(law, output_law(double, settings, PROMPT, length, look))
    else:
        law = target_law(make_engine(None, torch.float64), settings, PROMPT, length)
    engine, counts = make_engine(mistake), Counter()
    for start in range(0, samples, BATCH):
        yield ProofProgress(start, samples)
        look()
        seeds = range(seed + start, seed + min(start + BATCH, samples))
        counts.update(sample(engine, settings, length, seeds))
    yield _judge(settings, mistake, length, law, exact, counts)


def prove(*, progress: Callable[[ProofProgress], None] = lambda _: None, **options: Any) -> Proof:
    """The `Proof`; `progress` is called between batches, all else as for `stream_proof`."""
    for item in stream_proof(**options):
        if isinstance(item, Proof):
            return item
        progress(item)
    raise AssertionError("a proof that was not cancelled ends with its result")


def check(draft: str | None, verify: str | None, mistake: str | None, **options: Any) -> Settings:
    """The settings of a proof.

    A mistake that cannot happen with the draft type or rule asked for is shown where it can; the proof says where.

    Raises:
        SettingsError: an unknown mistake, or settings that cannot be proved.
    """
    if mistake is not None:
        if mistake not in MISTAKES:
            raise SettingsError(f"Unknown mistake {shown(mistake)}: choose one of {', '.join(MISTAKES)}.")
        found = MISTAKES[mistake]
        draft = draft if draft in found.drafts else found.draft
        verify = verify if verify in found.rules else found.verify
    options = {"gamma": 2, "temperature": 0.8, "top_k": 3, **options}
    settings = Settings.of(draft=draft or "model", verify=verify or "rejection", ignore_eos=True, **options)
    if settings.gamma > GAMMA_MOST:
        raise SettingsError(f"gamma must be at most {GAMMA_MOST} here, not {settings.gamma}: every text is enumerated.")
    if settings.adaptive:
        raise SettingsError("A proof runs with a fixed gamma: leave adaptive out.")
    return settings


def make_engine(mistake: str | None, dtype: torch.dtype = torch.float32) -> Engine:
    """Target and draft as two random tables, with a mistake put in."""
    target, draft = (TableModel.random(VOCABULARY, seed, SPREAD, dtype) for seed in (1, 2))
    engine = table_engine(target, draft)
    if mistake is not None:
        MISTAKES[mistake].put_into(engine)
    return engine


def sample(engine: Engine, settings: Settings, length: int, seeds: range) -> list[tuple[int, ...]]:
    """The texts that the engine's own loop writes with these seeds."""
    each = [settings.replace(seed=seed, max_new_tokens=length) for seed in seeds]
    runs = engine.generate_batch([list(PROMPT)] * len(each), each, trace=False)
    return [tuple(run.output.token_ids) for run in runs]


def compare(law: Law, counts: Counter[tuple[int, ...]]) -> tuple[float, int, float, int]:
    """Pearson's chi-squared test: (statistic, degrees of freedom, p-value, samples outside the law).

    The rarest cells are merged until each expects 5 (Cochran 1954): a rest that expects next to nothing would call a
    single sample in it a deviation. A sample outside the law counts in a cell that expected one, and makes the
    p-value 0.
    """
    n, cells, rest_mass, rest_seen = counts.total(), [], 0.0, 0
    for text, mass in sorted(law.items(), key=lambda item: item[1]):
        rest_mass, rest_seen = rest_mass + mass * n, rest_seen + counts[text]
        if rest_mass >= 5:
            cells.append((rest_mass, rest_seen))
            rest_mass, rest_seen = 0.0, 0
    if rest_mass > 0:
        expected, seen = cells.pop() if cells else (0.0, 0)
        cells.append((expected + rest_mass, seen + rest_seen))
    outside = n - sum(seen for _, seen in cells)
    statistic = sum((seen - expected) ** 2 / expected for expected, seen in cells) + outside**2
    dof = len(cells) - 1
    if outside or not dof:
        return statistic, dof, float(outside == 0), outside
    tail = torch.special.gammaincc(torch.tensor(dof / 2, dtype=torch.float64), torch.tensor(statistic / 2).double())
    return statistic, dof, float(tail), outside


def noise_floor(law: Law, n: int) -> Floor:
    """What total variation `n` samples of `law` itself show, by drawing them `FLOOR_DRAWS` times."""
    shares = np.array(list(law.values()))
    shares /= shares.sum()
    draws = np.random.default_rng(0).multinomial(n, shares, FLOOR_DRAWS) / n
    return Floor(*np.quantile(np.abs(draws - shares).sum(1) / 2, [0.025, 0.5, 0.975]).tolist())


def _judge(
    settings: Settings, mistake: str | None, length: int, law: Law, exact: float | None, counts: Counter
) -> Proof:
    n = counts.total()
    chi2, dof, p_value, outside = compare(law, counts)
    tv = total_variation(law, {text: seen / n for text, seen in counts.items()})
    passed = p_value >= SIGNIFICANT and (exact is None or exact < EXACT)
    floor = noise_floor(law, n)
    texts = sorted({*law, *counts}, key=lambda text: -law.get(text, 0.0))
    decode = LetterTokenizer().decode
    return Proof(
        created_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        draft=settings.draft,
        verify=settings.verify,
        mistake=mistake,
        gamma=settings.gamma,
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        vocabulary=VOCABULARY,
        length=length,
        n=n,
        tv=tv,
        tv_exact=exact,
        floor=floor,
        chi2=chi2,
        dof=dof,
        p_value=p_value,
        outside=outside,
        passed=passed,
        cells=[Cell(decode(text), law.get(text, 0.0), counts[text] / n) for text in texts],
        verdict=verdict(settings, mistake, passed, tv, exact, floor, p_value),
    )


def verdict(
    settings: Settings, mistake: str | None, passed: bool, tv: float, exact: float | None, floor: Floor, p_value: float
) -> str:
    """The result in words."""
    what = f"{TITLES[settings.draft]} under rule {settings.verify}"
    if mistake is not None:
        what = f"{MISTAKES[mistake].title!r} in {what}"
    opening = (
        f"Lossless: {what} writes with the target's own law." if passed else f"Not lossless: {what} bends the law."
    )
    enumerated = (
        "The law cannot be enumerated here."
        if exact is None
        else f"Every draft and acceptance enumerated, the laws differ by {exact:.2g}."
    )
    place = "inside" if tv <= floor.high else "above"
    chance = "less than 1e-300" if p_value == 0 else f"{p_value:.2g}"
    sampled = (
        f"The samples differ by {tv:.4f}, {place} what chance alone gives ({floor.low:.4f} to {floor.high:.4f}); "
        f"p-value {chance}."
    )
    return f"{opening} {enumerated} {sampled}"
