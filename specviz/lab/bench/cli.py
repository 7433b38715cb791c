"""`python -m specviz bench`: lists in; tables, a JSON document and a page out. Held by tests/unit/test_bench_cli.py."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specviz.errors import SettingsError
from specviz.lab.bench.peers import PEERS, parse_pythons
from specviz.lab.bench.plan import Plan
from specviz.lab.prompts import OWN, Prompt, first_of_each, read_prompts
from specviz.settings import DRAFTS, RULES, Settings

if TYPE_CHECKING:
    from specviz.engine.engine import Engine
    from specviz.lab.bench.document import Bench
    from specviz.lab.bench.peers import Sources
    from specviz.lab.bench.runner import BenchProgress


#: Columns of a table that goes into a file or a pipe.
WIDTH = 160


def bench(
    prompts: Annotated[
        Path, typer.Option(metavar="FILE.jsonl", help="Lines with `turns` or `prompt`, and `category`.")
    ] = OWN,
    limit: Annotated[int | None, typer.Option(min=1, help="Prompts of each category.")] = None,
    drafts: Annotated[str, typer.Option(help=f"Comma-separated: {', '.join(DRAFTS)}.")] = Settings().draft,
    gammas: Annotated[str, typer.Option(help="Comma-separated.")] = "3",
    temperatures: Annotated[str, typer.Option(help="Comma-separated; 0 is greedy.")] = "0",
    dtypes: Annotated[str, typer.Option(help="Of auto, float32, bfloat16, float16, int8, int4.")] = "auto",
    candidates: Annotated[str, typer.Option(help="Comma-separated, 1 to 4: of pools and trees.")] = "2",
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Run each draft with adaptive gamma, too, up to the largest of --gammas.")
    ] = False,
    peers: Annotated[str, typer.Option(help=f"Comma-separated: {', '.join(PEERS)}.")] = "",
    peer_python: Annotated[
        list[str], typer.Option(metavar="ENGINE=PATH", help="Python of a peer's own environment; may be repeated.")
    ] = [],  # noqa: B006
    against: Annotated[
        list[str], typer.Option(metavar="LANE", help="Print how every lane does against this one; may be repeated.")
    ] = [],  # noqa: B006
    rounds: Annotated[int, typer.Option(min=1, max=20, help="How often each lane runs on each prompt.")] = 1,
    tokens: Annotated[int, typer.Option(min=1, help="Length limit of an answer.")] = 128,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Decode past the end of the answer.")] = False,
    verify: Annotated[str, typer.Option(help=f"Verification rule: {', '.join(RULES)}.")] = "rejection",
    seed: Annotated[int, typer.Option(min=0, help="Of sampling and of the bootstrap.")] = 0,
    reference: Annotated[
        str, typer.Option(help="Precision that texts are read in for perplexity and agreement; none leaves them out.")
    ] = "float32",
    pair: Annotated[str | None, typer.Option(help="A named pair of target and draft model; see `info`.")] = None,
    target: Annotated[str | None, typer.Option(help="Target: a folder or a Hub id.")] = None,
    draft_model: Annotated[str | None, typer.Option(help="Draft model: a folder or a Hub id.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Kept up to date; a later call goes on with it.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as one page.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew instead of going on with --json.")] = False,
    recalibrate: Annotated[bool, typer.Option("--recalibrate", help="Measure what steps cost anew.")] = False,
    mlflow: Annotated[bool, typer.Option("--mlflow", help="Log settings and figures to MLflow.")] = False,
) -> None:
    """Measure drafts, precisions and other engines on many prompts: interleaved, each alone on the device."""
    from specviz.cli import check_writable, people

    with people() as console:
        for file in filter(None, (json_file, html)):
            check_writable(str(file))
        plan = Plan(
            drafts=_listed(drafts, str),
            gammas=_listed(gammas, int),
            temperatures=_listed(temperatures, float),
            candidates=_listed(candidates, int),
            adaptive=adaptive,
            peers=_listed(peers, str),
            rounds=rounds,
        )
        settings = {"max_new_tokens": tokens, "seed": seed, "ignore_eos": ignore_eos, "verify": verify}
        plan.check(settings)
        pythons = parse_pythons(peer_python)
        chosen = first_of_each(read_prompts(prompts), limit)
        if mlflow:
            from specviz.lab.bench import tracking

            tracking.require()
        models = {"pair": pair, "target": target, "draft_model": draft_model, "device": device}
        try:
            result = _run(
                plan, chosen, _listed(dtypes, str), settings, models, pythons,
                reference=None if reference == "none" else reference, file=json_file, fresh=fresh,
                recalibrate=recalibrate,
            )  # fmt: skip
        except KeyboardInterrupt:
            if json_file is not None and json_file.exists():
                typer.echo(f"\nThe prompts that are done are in {json_file}: run it again without --fresh.", err=True)
            raise
        _show(console, result, against)
        if html is not None:
            from specviz.ui.report import write_report

            write_report(result, html)
            console.print(f"Report: {html}", soft_wrap=True)
        if mlflow:
            console.print(f"MLflow run: {tracking.log(result, json_file)}", soft_wrap=True)


def _run(
    plan: Plan,
    prompts: list[Prompt],
    dtypes: list[str],
    settings: dict[str, Any],
    models: dict[str, Any],
    pythons: dict[str, str],
    **options: Any,
) -> Bench:
    """Run the benchmark with a progress bar."""
    from specviz.cli import loading, progress_bar
    from specviz.lab.bench import runner
    from specviz.zoo import choose_device, choose_precision

    where = choose_device(models["device"])
    names = list(dict.fromkeys(choose_precision(name, where) for name in dtypes))
    if options["reference"] is not None:
        options["reference"] = choose_precision(options["reference"], where)
    with loading() as progress:
        sources = _sources(models, plan, progress) if plan.peers else None
    job = runner.Job(plan, prompts, names, _engines(models), settings, sources, pythons, command=_command(), **options)
    with progress_bar() as bar:
        task = bar.add_task("loading", total=None)

        def show(at: BenchProgress) -> None:
            where = f"prompt {at.prompt} of {at.prompts}, " if at.prompt else ""
            bar.update(task, description=f"{where}{at.stage} {at.lane}", completed=at.done, total=at.of)

        return runner.bench(job, show)


def _engines(models: dict[str, Any]) -> Callable[[str], Engine]:
    """Loads the engine of a precision when it is first asked for, and keeps it."""
    from specviz.cli import load_engine

    engines: dict[str, Engine] = {}

    def engine_of(dtype: str) -> Engine:
        if dtype not in engines:
            engines[dtype] = load_engine({**models, "dtype": dtype}, stays=True)
        return engines[dtype]

    return engine_of


def _sources(models: dict[str, Any], plan: Plan, progress: Any) -> Sources:
    """The folders and files that the peers load, fetched when they are not here."""
    from specviz.lab.bench.peers import Sources
    from specviz.zoo import folders

    target, draft, gguf = folders(
        models["pair"], target=models["target"], draft_model=models["draft_model"], progress=progress
    )
    return Sources(target, draft, gguf)


def _show(console: Any, result: Bench, against: list[str]) -> None:
    from specviz.terminal import bench_against, bench_categories, bench_lanes, bench_quality, visible

    if not console.is_terminal:  # a file has no width that lines would have to keep to
        console.width = WIDTH
    console.print(bench_lanes(result))
    for table in (bench_categories(result), bench_quality(result)):
        if table is not None:
            console.print()
            console.print(table)
    for name in against:
        result.lane(name)
        console.print()
        console.print(bench_against(result, name))
    console.print()
    for sentence in result.summary.sentences:
        console.print(visible(sentence), soft_wrap=True)


def _listed(text: str, kind: type) -> list:
    """The values of a comma-separated list.

    Raises:
        SettingsError: one is no number where numbers are wanted.
    """
    values = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            values.append(kind(part))
        except ValueError:
            what = "whole numbers" if kind is int else "numbers"
            raise SettingsError(f"A list of {what}, separated by commas, is wanted, not {part!r}.") from None
    return values


def _command() -> str:
    return shlex.join(["python", "-m", "specviz", *sys.argv[1:]])
