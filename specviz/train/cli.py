"""`python -m specviz train synthesise | eagle | medusa | feedforward | model | evaluate`. Held by
tests/unit/test_train.py."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from specviz.errors import SettingsError

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, help="Train drafts for a target, from its own words."
)
PairName = Annotated[str | None, typer.Option(help="A named pair; its target is what is trained for.")]
Target = Annotated[str | None, typer.Option(help="Target: a folder or a Hub id, instead of a pair.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Dtype = Annotated[str, typer.Option(help="auto, float32 or bfloat16.")]
Seed = Annotated[int, typer.Option(min=0)]


@app.command()
def synthesise(
    out: Annotated[Path, typer.Option(help="The file of chats (.npz); one that is there is gone on with.")],
    pair: PairName = None,
    target: Target = None,
    chats: Annotated[int, typer.Option(min=1, help="How many it shall hold.")] = 4000,
    side: Annotated[int, typer.Option(min=1, help="Chats written side by side.")] = 64,
    answer: Annotated[int, typer.Option(min=8, help="Length limit of an answer in tokens.")] = 256,
    tasks: Annotated[
        Path | None, typer.Option(help="Chats whose texts users' turns set tasks about: summaries, questions, ...")
    ] = None,
    seed: Seed = 0,
    dtype: Dtype = "auto",
    device: Device = "auto",
) -> None:
    """Let the target write its own chats to train on."""
    from specviz.cli import load_engine, people

    with people() as console:
        _writable(out)
        from specviz.train.chats import Chats
        from specviz.train.synthesise import synthesise as write

        engine = load_engine({"pair": pair, "target": target, "dtype": dtype, "device": device})
        # Not about those that `train` keeps out to measure on.
        source = None if tasks is None else Chats.load(tasks, engine.target.vocab_size).parted()[0]
        made = write(
            engine, out, chats=chats, seed=seed, side=side, answer_most=answer, source=source,
            report=lambda text: console.print(text),
        )  # fmt: skip
        console.print(f"{out}: {len(made)} chats, {made.tokens} answer tokens.", soft_wrap=True)


def _training_command(kind: str, what: str) -> None:
    """Add the command that trains a kind of draft: all of them take the same options and go through one loop."""

    def command(
        data: Annotated[
            list[Path],
            typer.Option(
                help="Chats as `train synthesise` writes them; given again for more, which are all trained on."
            ),
        ],
        out: Annotated[Path, typer.Option(help="Where card and weights go, without suffix.")],
        pair: PairName = None,
        target: Target = None,
        minutes: Annotated[float | None, typer.Option(min=0.001, help="Of training.")] = None,
        tokens: Annotated[int | None, typer.Option(min=1, help="To train on, repeats counted.")] = None,
        vocabulary: Annotated[int, typer.Option(min=16, help="How many tokens it can draft.")] = 8192,
        batch: Annotated[int, typer.Option(min=1, help="Tokens of a step.")] = 2048,
        rate: Annotated[float, typer.Option(min=0, help="Highest learning rate.")] = 3e-3,
        work: Annotated[
            Path | None, typer.Option(help="Folder of checkpoints and shared features; default beside OUT.")
        ] = None,
        start: Annotated[Path | None, typer.Option(help="Card of a draft to go on from.")] = None,
        resume: Annotated[
            bool, typer.Option("--resume/--fresh", help="Go on from the last checkpoint in WORK.")
        ] = True,
        ahead: Annotated[bool, typer.Option("--ahead", help="A thread of its own reads with the target.")] = False,
        seed: Seed = 0,
        dtype: Dtype = "auto",
        device: Device = "auto",
    ) -> None:
        from specviz.cli import loading, people

        with people() as console:
            if minutes is None and tokens is None:
                raise SettingsError("Say how long to train: --minutes or --tokens.")
            _writable(out)
            import specviz
            from specviz.train.job import Order, train
            from specviz.train.loop import Plan
            from specviz.zoo import load_pair

            precision = _precision(dtype, device)
            with loading() as progress:
                loaded = load_pair(
                    pair, target=target, dtype=precision, device=device, path="transformers", progress=progress
                )
            plan = Plan(minutes=minutes, tokens=tokens, batch=batch, rate=rate, seed=seed, ahead=ahead)
            folder = work or out.parent / "work"
            order = Order(kind, data, out, folder, plan, vocabulary, start, resume, _command())
            eos = specviz.end_ids(loaded.target.generation_config) or (loaded.target.tokenizer.eos_token_id,)
            with _live(console) as show:
                card = train(loaded, eos, order, lambda text: console.print(text, soft_wrap=True), show)
            console.print(f"Ready: {card}", soft_wrap=True)

    app.command(kind, help=f"Train {what}.")(command)


for _kind, _what in (
    ("eagle", "an eagle head: one layer that reads the target's hidden states and drafts"),
    ("medusa", "medusa heads: residual blocks on the target's last hidden state, one for each position"),
    ("feedforward", "a feed-forward draft: an MLP over the embeddings of the last few tokens"),
    ("model", "a draft model: a few layers between the target's own embedding and head"),
):
    _training_command(_kind, _what)


@contextlib.contextmanager
def _live(console: Console) -> Iterator[Callable[[float, str], None] | None]:
    """On a terminal, a bar with the live figures of every step; on a pipe nothing, and the loop says them in words."""
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("training"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=1.0, words="")
        yield lambda share, words: bar.update(task, completed=share, words=words)


@app.command()
def evaluate(
    head: Annotated[Path, typer.Option(help="The draft's card (.json), into which the figures go.")],
    pair: PairName = None,
    target: Target = None,
    data: Annotated[
        Path | None, typer.Option(help="Chats it was trained with: the held-out ones are measured on.")
    ] = None,
    prompts: Annotated[Path | None, typer.Option(help="JSONL with `turns` or `prompt`.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Held-out chats to measure on.")] = 20,
    gammas: Annotated[str, typer.Option(help="Comma-separated.")] = "1,2,3,4,5,6,7,8",
    candidates: Annotated[int, typer.Option(min=1, max=4, help="Children of a tree's node.")] = 3,
    tokens: Annotated[int, typer.Option(min=1, help="Length limit of an answer.")] = 128,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, float16, int8 or int4.")] = "auto",
    device: Device = "auto",
) -> None:
    """Measure a trained draft in the engine's loop and note the figures in its card."""
    from specviz.cli import load_engine, people

    with people() as console:
        if data is None and prompts is None:
            raise SettingsError("Say what to measure on: --data, --prompts or both.")
        from specviz.drafters.head import load_head
        from specviz.drafters.heads import load
        from specviz.lab.prompts import read_prompts
        from specviz.train import evaluate as lab
        from specviz.train.chats import Chats

        kind = load_head(head).card["type"]
        engine = load_engine({"pair": pair, "target": target, "dtype": dtype, "device": device})
        found = load(engine.target, engine.tokenizer, kind, head.parent, head.stem)
        if isinstance(found, str):
            raise SettingsError(found)
        engine.use_head(kind, found)
        engine.draft_model = None  # a pair's own would draft in the place of a distilled one
        sets: dict[str, Any] = {}
        if data is not None:
            sets["held-out chats"] = lab.held_out_prompts(Chats.load(data, engine.target.vocab_size), count)
        if prompts is not None:
            sets[prompts.stem] = [prompt.text for prompt in read_prompts(prompts)]
        measured = lab.evaluate(
            engine, kind, sets, gammas=[int(g) for g in gammas.split(",")], candidates=candidates, tokens=tokens,
            report=lambda text: console.print(text, soft_wrap=True),
        )  # fmt: skip
        lab.note_in_card(head, measured, _command())


def _command() -> str:
    return shlex.join(["python", "-m", "specviz", *sys.argv[1:]])


def _writable(out: Path) -> None:
    from specviz.cli import check_writable

    out.parent.mkdir(parents=True, exist_ok=True)
    check_writable(str(out))


def _precision(dtype: str, device: str) -> str:
    """bf16 where the hardware has it, else float32; packed weights cannot be trained from."""
    from specviz.zoo import choose_device, choose_precision

    if dtype != "auto":
        if dtype not in ("float32", "bfloat16"):
            raise SettingsError(f"Training reads with the target in float32 or bfloat16, not {dtype}.")
        return dtype
    return "float32" if choose_precision("auto", choose_device(device)) == "float32" else "bfloat16"
