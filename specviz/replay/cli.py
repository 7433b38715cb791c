"""`python -m specviz replay RUN.json -o RUN.html`. Held by tests/unit/test_replay.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specviz.errors import SettingsError
from specviz.replay import open_file, replay_html


def replay(
    file: Annotated[
        Path, typer.Argument(metavar="RUN.json", help="A run or a race, as `--json` and the page write it.")
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="RUN.html unless given.")] = None,
) -> None:
    """Make one HTML file that replays a run or a race, without a server and without a network."""
    # Here, because that module lists this command.
    from specviz.cli import people

    out = file.with_suffix(".html") if out is None else out
    with people() as console:
        write(file, out)
        console.print(f"Wrote {out}: open it in a browser.", soft_wrap=True)


def write(file: Path, out: Path) -> None:
    """Write the replay of `file` to `out`.

    Raises:
        SettingsError: a file that cannot be read, is neither run nor race, or cannot be written.
    """
    if out.exists() and file.exists() and out.samefile(file):
        raise SettingsError(f"{out} is the file itself: give another name with -o.")
    try:
        out.write_text(replay_html(open_file(file.read_text(encoding="utf-8"))), encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"Cannot read {file}: it is not UTF-8 text.") from error
    except ValueError as error:
        raise SettingsError(f"Cannot replay {file}: {error}") from error
    except OSError as error:
        raise SettingsError(f"Cannot use {error.filename or file}: {error.strerror}.") from error
