"""`python -m specviz fetch | info | run | race | bench | prove | train`: the engine from a terminal.

With `--json -` stdout holds the JSON alone; everything for people goes to stderr then. Bad input exits 2 with one
sentence on stderr. Held by tests/unit/test_cli.py.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import io
import json
import os
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from specviz.errors import SettingsError, SpecvizError
from specviz.lab.bench import cli as benchmark
from specviz.replay import cli as replaying
from specviz.settings import CANDIDATES_MAX, CANDIDATES_MIN, DRAFTS, GAMMA_MAX, GAMMA_MIN, RULES, Settings
from specviz.terminal import coloured, costs_line, proof_summary, race_costs, race_summary, race_words, run_summary
from specviz.train import cli as training

if TYPE_CHECKING:
    from specviz.engine.engine import Engine

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help="See speculative decoding happen."
)
app.add_typer(training.app, name="train")
app.command()(replaying.replay)
app.command()(benchmark.bench)
DEFAULTS = Settings()
#: click's UsageError, which newer typer carries inside itself under another module name.
USAGE_ERROR = typer.BadParameter.__base__


def number(kind: type) -> Callable[[str], Any]:
    """Parser of an option; what is no number goes on as text, for `Settings` to refuse in its own sentence."""

    def parse(value: Any) -> Any:
        with contextlib.suppress(ValueError):
            return kind(value)
        return value

    return parse


WHOLE, REAL = number(int), number(float)
Pair = Annotated[str | None, typer.Option(help="A named pair of target and draft model; see `info`.")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="Write the whole trace as JSON.")]
Recalibrate = Annotated[bool, typer.Option("--recalibrate", help="Measure anew what steps cost here.")]
PromptText = Annotated[str, typer.Argument(metavar="PROMPT", help="The text to answer; - reads it from stdin.")]


def model_options(
    pair: Pair = None,
    target: Annotated[str | None, typer.Option(help="Target: a folder or a Hub id.")] = None,
    draft_model: Annotated[str | None, typer.Option(help="Draft model: a folder or a Hub id.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, float16, int8 or int4.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Signature of what `specviz.load` takes."""


def settings_options(
    draft: Annotated[str, typer.Option(help=f"Draft type: {', '.join(DRAFTS)}.")] = DEFAULTS.draft,
    gamma: Annotated[
        Any, typer.Option(parser=WHOLE, metavar="N", help=f"Draft tokens per step, {GAMMA_MIN} to {GAMMA_MAX}.")
    ] = DEFAULTS.gamma,
    adaptive: Annotated[bool, typer.Option("--adaptive", help="Choose gamma step by step, up to --gamma.")] = False,
    min_confidence: Annotated[
        Any, typer.Option(parser=REAL, metavar="P", help="Stop drafting behind a token less certain than this.")
    ] = DEFAULTS.min_confidence,
    candidates: Annotated[
        Any,
        typer.Option(
            parser=WHOLE,
            metavar="N",
            help=f"Drafters in a pool, children of a tree's node: {CANDIDATES_MIN} to {CANDIDATES_MAX}.",
        ),
    ] = DEFAULTS.candidates,
    exit_layer: Annotated[
        Any, typer.Option(parser=WHOLE, metavar="K", help="Layers that layer_skip drafts with; 0 is half of them.")
    ] = DEFAULTS.exit_layer,
    verify: Annotated[str, typer.Option(help=f"Verification rule: {', '.join(RULES)}.")] = DEFAULTS.verify,
    temperature: Annotated[Any, typer.Option(parser=REAL, metavar="T", help="0 is greedy.")] = DEFAULTS.temperature,
    top_k: Annotated[Any, typer.Option(parser=WHOLE, metavar="K", help="0 is off.")] = DEFAULTS.top_k,
    top_p: Annotated[Any, typer.Option(parser=REAL, metavar="P", help="1 is off.")] = DEFAULTS.top_p,
    min_p: Annotated[Any, typer.Option(parser=REAL, metavar="P", help="0 is off.")] = DEFAULTS.min_p,
    repetition_penalty: Annotated[
        Any, typer.Option(parser=REAL, metavar="X", help="1 is off.")
    ] = DEFAULTS.repetition_penalty,
    frequency_penalty: Annotated[
        Any, typer.Option(parser=REAL, metavar="X", help="0 is off.")
    ] = DEFAULTS.frequency_penalty,
    seed: Annotated[Any, typer.Option(parser=WHOLE, metavar="N")] = DEFAULTS.seed,
    max_new_tokens: Annotated[
        Any, typer.Option(parser=WHOLE, metavar="N", help="Length limit in tokens.")
    ] = DEFAULTS.max_new_tokens,
    stop: Annotated[list[str], typer.Option(help="Text that ends the answer; may be given more than once.")] = [],  # noqa: B006
    chat: Annotated[
        bool | None, typer.Option("--chat/--no-chat", help="Chat template; used when there is one.")
    ] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Decode past the end of the answer.")] = False,
) -> None:
    """Signature of the decoding settings."""


def decoding_command(body: Callable[..., None]) -> Callable[..., None]:
    """A command whose options are the models', the settings' and its own, which stand before settings of the same name;
    `body` gets the first two as dicts."""

    def parameters(function: Callable[..., None]) -> list[inspect.Parameter]:
        hints = typing.get_type_hints(function, include_extras=True)
        listed = inspect.signature(function).parameters.values()
        return [
            entry.replace(annotation=hints[entry.name]) for entry in listed if entry.name not in ("models", "settings")
        ]

    models, settings = parameters(model_options), parameters(settings_options)

    def command(**given: Any) -> None:
        chosen = [{entry.name: given.pop(entry.name) for entry in group} for group in (models, settings)]
        body(models=chosen[0], settings=chosen[1], **given)

    own = parameters(body)
    settings = [entry for entry in settings if entry.name not in {one.name for one in own}]
    merged = [entry.replace(kind=inspect.Parameter.KEYWORD_ONLY) for entry in (*own, *models, *settings)]
    command.__name__, command.__doc__ = body.__name__, body.__doc__
    command.__signature__ = inspect.Signature(merged)
    command.__annotations__ = {entry.name: entry.annotation for entry in merged}
    return app.command(body.__name__)(command)


@app.command()
def fetch(pair: Pair = None) -> None:
    """Fetch the weights of a pair now, so that later starts need no network."""
    with people() as console, loading() as progress:
        from specviz.zoo import DEFAULT_PAIR, prepare

        folders = prepare(DEFAULT_PAIR if pair is None else pair, progress=progress)
        console.print("\n".join(f"Ready: {folder}" for folder in folders), soft_wrap=True)


@app.command()
def info(pair: Pair = None) -> None:
    """Show versions, device, precision and the pairs on offer."""
    import torch
    import transformers

    import specviz
    from specviz.engine.calibrate import code
    from specviz.zoo import DEFAULT_PAIR, PAIRS, cache_dir, choose_device, choose_precision
    from specviz.zoo.costs import CostFiles

    with people() as console:
        if pair is not None and pair not in PAIRS:
            raise SettingsError(f"Unknown pair {pair!r}: choose one of {', '.join(PAIRS)}.")
        device = choose_device("auto")
        console.print(
            f"specviz {specviz.__version__}, torch {torch.__version__}, transformers {transformers.__version__}"
        )
        dtype = choose_precision("auto", device)
        console.print(f"device {device}, precision {dtype}, threads {torch.get_num_threads()}")
        console.print(f"cache {cache_dir()}", soft_wrap=True)
        for found in CostFiles().all():
            if found.key.get("code") == code():  # others are measured anew when they are wanted
                console.print(costs_line(found), soft_wrap=True)
        for name, entry in PAIRS.items():
            if pair in (None, name):
                label = f"{name} (default)" if name == DEFAULT_PAIR else name
                draft = f"drafted by {entry.draft_model}" if entry.draft_model else "no draft model"
                console.print(f"pair {label}: {entry.target}, {draft}; licence {entry.licence}", soft_wrap=True)


@decoding_command
def run(
    models: dict[str, Any],
    settings: dict[str, Any],
    prompt: PromptText,
    recalibrate: Recalibrate = False,
    json_file: Json = None,
) -> None:
    """Answer PROMPT, every token coloured by its fate."""
    with people(json_file) as console:
        text = check_input(prompt, settings, json_file)
        engine = load_engine(models)
        calibrate(engine, settings, recalibrate)
        decoding = engine.stream(text, top=8 if json_file else 0, **settings)
        for step in decoding:
            console.print(coloured(step, console.is_terminal), end="", soft_wrap=True)
        console.print("\n")
        console.print(run_summary(decoding.run), soft_wrap=True)
        write_json(json_file, decoding.run.to_dict())


@decoding_command
def race(
    models: dict[str, Any],
    settings: dict[str, Any],
    prompt: PromptText,
    draft: Annotated[
        list[str],
        typer.Option(
            metavar="TYPE[:gamma=N,candidates=N,adaptive]",
            help="A draft to race, with settings of its own where given; up to three times.",
        ),
    ] = [DEFAULTS.draft],  # noqa: B006
    rounds: Annotated[Any, typer.Option(parser=WHOLE, metavar="N", help="How often each lane runs.")] = 3,
    recalibrate: Recalibrate = False,
    json_file: Json = None,
) -> None:
    """Race plain decoding against one to three drafts on PROMPT: each lane alone, in rotated order, warmed up."""
    with people(json_file) as console:
        text = check_input(prompt, settings, json_file)
        from specviz.lab import race as lab

        lab.entrants(rounds, draft, settings)
        engine = load_engine(models, stays=True)
        with progress_bar() as bar:
            task = bar.add_task("warming up", total=None)

            def show(at: lab.RaceProgress) -> None:
                stages = {"costs": "measuring what steps cost", "warmup": "warming up"}
                stage = stages.get(at.stage, f"round {at.round} of {at.rounds}")
                bar.update(task, description=f"{stage}: {at.lane}", completed=at.tokens, total=at.of)

            given = {"drafts": draft, "rounds": rounds, "recalibrate": recalibrate, **settings}
            result = lab.race(engine, text, progress=show, **given)
        console.print(race_summary(result))
        if (costs := race_costs(result)) is not None:
            console.print(costs)
        for line in race_words(result):
            console.print(line, soft_wrap=True)
        write_json(json_file, result.to_dict())


PROOF_OPTIONS = ("gamma", "candidates", "min_confidence", "temperature", "top_k", "top_p", "min_p", "seed")


@app.command()
def prove(
    draft: Annotated[str | None, typer.Option(help="Draft type; model unless a mistake needs another.")] = None,
    verify: Annotated[str | None, typer.Option(help="Verification rule; rejection unless given.")] = None,
    mistake: Annotated[str | None, typer.Option(metavar="NAME", help="Switch a classic mistake on.")] = None,
    list_mistakes: Annotated[bool, typer.Option("--list-mistakes", help="Print their names.")] = False,
    samples: Annotated[Any, typer.Option(parser=WHOLE, metavar="N", help="Runs of the engine's loop.")] = 30_000,
    gamma: Annotated[Any, typer.Option(parser=WHOLE, metavar="N", help="1 to 4.")] = 2,
    candidates: Annotated[Any, typer.Option(parser=WHOLE, metavar="N")] = DEFAULTS.candidates,
    min_confidence: Annotated[Any, typer.Option(parser=REAL, metavar="P")] = DEFAULTS.min_confidence,
    temperature: Annotated[Any, typer.Option(parser=REAL, metavar="T")] = 0.8,
    top_k: Annotated[Any, typer.Option(parser=WHOLE, metavar="K")] = 3,
    top_p: Annotated[Any, typer.Option(parser=REAL, metavar="P")] = DEFAULTS.top_p,
    min_p: Annotated[Any, typer.Option(parser=REAL, metavar="P")] = DEFAULTS.min_p,
    seed: Annotated[Any, typer.Option(parser=WHOLE, metavar="N", help="Of the first sample.")] = 0,
    json_file: Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="Write the proof as JSON.")] = None,
) -> None:
    """Show that the output has the target's law, exactly and by sampling, or what a mistake does to it.

    Small tables stand in for the models; drafters, rules and loop are the engine's own. Exits with 1 when it fails.
    """
    given = dict(locals())
    with people(json_file) as console:
        from specviz.lab import proof
        from specviz.lab.mistakes import MISTAKES

        if list_mistakes:
            typer.echo("\n".join(MISTAKES))
            return
        if json_file not in (None, "-"):
            check_writable(json_file)
        options = {name: given[name] for name in PROOF_OPTIONS}
        with progress_bar() as bar:
            task = bar.add_task("enumerating", total=None)
            result = proof.prove(
                draft=draft, verify=verify, mistake=mistake, samples=samples, **options,
                progress=lambda at: bar.update(task, description="sampling", completed=at.done, total=at.of),
            )  # fmt: skip
        if mistake is not None:
            console.print(MISTAKES[mistake].sentence, soft_wrap=True)
        console.print(proof_summary(result))
        console.print(result.verdict, soft_wrap=True)
        write_json(json_file, result.to_dict())
    if not result.passed:
        raise typer.Exit(1)


@contextlib.contextmanager
def people(json_file: str | None = None) -> Iterator[Console]:
    """The console for people; a `SpecvizError` inside ends the program with its sentence and code 2."""
    try:
        yield Console(stderr=json_file == "-", highlight=False, emoji=False, markup=False)
    except SpecvizError as error:
        typer.echo(f"specviz: {error}", err=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as interrupt:
        typer.echo("\nspecviz: stopped.", err=True)
        raise typer.Exit(130) from interrupt
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        typer.echo(
            f"specviz: The disk is full ({error.filename or 'while writing'}): free some space and try again.", err=True
        )
        raise typer.Exit(2) from error


def progress_bar(*columns: Any) -> Progress:
    """On stderr, and only where someone is looking."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), *columns, TimeElapsedColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip


@contextlib.contextmanager
def loading() -> Iterator[Callable[[Any], None]]:
    """A progress bar for fetching and loading; yields the callback that moves it."""
    with progress_bar(DownloadColumn()) as bar:
        task = bar.add_task("Loading", total=None)
        yield lambda at: bar.update(task, description=at.stage, completed=at.done or 0, total=at.total)


def load_engine(models: dict[str, Any], stays: bool = False) -> Engine:
    """The engine, loaded with progress shown; one that `stays` is worth a second more for every pass to be faster."""
    import specviz

    with loading() as progress:
        engine = specviz.load(**models, progress=progress)
    if stays:
        from specviz.engine.pages import use_large_pages

        use_large_pages(engine.target.weight_bytes)
    return engine


def calibrate(engine: Engine, settings: dict[str, Any], fresh: bool) -> None:
    """Measure what steps cost, with progress shown, where adaptive gamma needs it and it is not known."""
    chosen = Settings.of(**settings)
    if chosen.adaptive or (fresh and chosen.draft != "none"):
        with progress_bar() as bar:
            task = bar.add_task("Measuring what steps cost here", total=1.0)
            engine.calibration(chosen, fresh=fresh, progress=lambda share: bar.update(task, completed=share))


def check_input(prompt: str, settings: dict[str, Any], json_file: str | None) -> str:
    """The prompt's text (from stdin for `-`); what can be refused is refused before seconds go into loading a model."""
    Settings.of(**settings)
    text = read_stdin() if prompt == "-" else prompt
    if not text.strip():
        raise SettingsError("The prompt is empty: write something for the model to continue.")
    if json_file == "-" and sys.stdout is None:
        raise SettingsError("Cannot write JSON to stdout: it is closed.")
    if json_file not in (None, "-"):
        check_writable(json_file)
    return text


def read_stdin() -> str:
    """The prompt from stdin, which must be UTF-8."""
    if sys.stdin is None:
        raise SettingsError("Cannot read the prompt: stdin is closed.")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"The prompt on stdin is not UTF-8 text (byte {error.start}): convert it.") from error


def check_writable(file: str) -> None:
    """Refuse a file that cannot be written before the run, not after it."""
    path = Path(file)
    try:
        folder = path.resolve().parent
        if not folder.is_dir():
            raise SettingsError(f"Cannot write {file}: its folder does not exist.")
        if path.is_dir():
            raise SettingsError(f"Cannot write {file}: it is a folder.")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise SettingsError(f"Cannot write {file}: permission denied.")
    except OSError as error:
        raise SettingsError(f"Cannot write {file}: {error.strerror}.") from error


def write_json(json_file: str | None, data: dict[str, Any]) -> None:
    if json_file is None:
        return
    # ASCII, so that no encoding of stdout can spoil it.
    text = json.dumps(data, allow_nan=False) + "\n"
    if json_file == "-":
        sys.stdout.write(text)
        return
    try:
        Path(json_file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"Cannot write {json_file}: {error.strerror}.") from error


def main() -> None:
    """Entry point; usage errors take one line, like every other."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A pipe in a narrow encoding must not end a run halfway through its text.
        sys.stdout.reconfigure(errors="replace")
    try:
        code = app(prog_name="python -m specviz", standalone_mode=False)
    except USAGE_ERROR as error:
        typer.echo(f"specviz: {error.format_message()} See `python -m specviz --help`.", err=True)
        code = 2
    except typer.Abort:
        code = 130
    sys.exit(code or 0)
