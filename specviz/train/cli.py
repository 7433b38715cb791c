"""`python -m specviz train synthesise | eagle | evaluate`. Held by tests/unit/test_train.py."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

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
    wave: Annotated[int, typer.Option(min=1, help="Chats written side by side.")] = 64,
    answer: Annotated[int, typer.Option(min=8, help="Length limit of an answer in tokens.")] = 256,
    seed: Seed = 0,
    dtype: Dtype = "auto",
    device: Device = "auto",
) -> None:
    """Let the target write its own chats to train on."""
    from specviz.cli import load_engine, people

    with people() as console:
        _writable(out)
        from specviz.train.synthesise import synthesise as write

        engine = load_engine({"pair": pair, "target": target, "dtype": dtype, "device": device})
        made = write(
            engine, out, chats=chats, seed=seed, wave=wave, answer_most=answer, report=lambda text: console.print(text)
        )
        console.print(f"{out}: {len(made)} chats, {made.tokens} answer tokens.", soft_wrap=True)


@app.command()
def eagle(
    data: Annotated[Path, typer.Option(help="Chats as `train synthesise` writes them.")],
    out: Annotated[Path, typer.Option(help="Where card and weights go, without suffix.")],
    pair: PairName = None,
    target: Target = None,
    minutes: Annotated[float | None, typer.Option(min=0.001, help="Of training.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="To train on, repeats counted.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Tokens of a step.")] = 2048,
    rate: Annotated[float, typer.Option(min=0, help="Highest learning rate.")] = 3e-3,
    work: Annotated[Path | None, typer.Option(help="Folder of checkpoints and features; default beside OUT.")] = None,
    start: Annotated[Path | None, typer.Option(help="Card of a head to go on from.")] = None,
    resume: Annotated[bool, typer.Option("--resume/--fresh", help="Go on from the last checkpoint in WORK.")] = True,
    ahead: Annotated[bool, typer.Option("--ahead", help="A thread of its own reads with the target.")] = False,
    seed: Seed = 0,
    dtype: Dtype = "auto",
    device: Device = "auto",
) -> None:
    """Train an eagle head: one layer that reads the target's hidden states and drafts."""
    from specviz.cli import loading, people

    with people() as console:
        if minutes is None and tokens is None:
            raise SettingsError("Say how long to train: --minutes or --tokens.")
        _writable(out)
        import specviz
        from specviz.train.job import Order, train_eagle
        from specviz.train.loop import Plan
        from specviz.zoo import load_pair

        with loading() as progress:
            loaded = load_pair(pair, target=target, dtype=_precision(dtype, device), device=device, progress=progress)
        plan = Plan(minutes=minutes, tokens=tokens, batch=batch, rate=rate, seed=seed, ahead=ahead)
        order = Order(data, out, work or out.with_suffix(".work"), plan, start, resume, _command())
        eos = specviz.end_ids(loaded.target.generation_config) or (loaded.target.tokenizer.eos_token_id,)
        card = train_eagle(loaded, eos, order, lambda text: console.print(text, soft_wrap=True))
        console.print(f"Ready: {card}", soft_wrap=True)


@app.command()
def evaluate(
    head: Annotated[Path, typer.Option(help="The head's card (.json), into which the figures go.")],
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
    """Measure a head in the engine's loop and note the figures in its card."""
    from specviz.cli import load_engine, people

    with people() as console:
        if data is None and prompts is None:
            raise SettingsError("Say what to measure on: --data, --prompts or both.")
        from specviz.drafters.eagle import find_eagle
        from specviz.train import evaluate as lab
        from specviz.train.chats import Chats

        engine = load_engine({"pair": pair, "target": target, "dtype": dtype, "device": device})
        found = find_eagle(engine.target, engine.tokenizer, head.parent, head.stem)
        engine.use_head(found)
        sets: dict[str, Any] = {}
        if data is not None:
            sets["held-out chats"] = lab.held_out_prompts(Chats.load(data, engine.target.vocab_size), count)
        if prompts is not None:
            sets[prompts.stem] = lab.read_prompts(prompts)
        if (reason := engine.drafts()["eagle"]) is not None:
            raise SettingsError(reason)
        measured = lab.evaluate(
            engine, sets, gammas=[int(g) for g in gammas.split(",")], candidates=candidates, tokens=tokens,
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
