"""What every command shares: the application, the kinds of argument, and opening a collection.

Settings are dataclasses elsewhere; a command takes one as a parameter annotated with `Settings`, and tyro
makes its options, help texts and defaults from it. `--out` always names a folder, `--output` a file.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from tyro.conf import Positional, Suppress, arg
from tyro.extras import SubcommandApp

if TYPE_CHECKING:
    from gr2.data.collection import Collection
    from gr2.data.runs import Run

Name = Annotated[Positional[str], arg(metavar="COLLECTION")]
Folder = Annotated[Positional[Path], arg(metavar="FOLDER")]
Model = Annotated[Positional[Path], arg(metavar="MODEL")]
Judgements = Annotated[Positional[Path], arg(metavar="JUDGEMENTS")]
Runs = Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]")]
Settings = arg(name="")
"""Marks a dataclass whose fields are options of the command, without a prefix."""

Command = TypeVar("Command", bound=Callable[..., None])

app = SubcommandApp()


def hiding_settings(brief: bool) -> Callable[[Command], Command]:
    """Leave the settings of a command (its parameter `config`) out of its help, if it is to be brief.

    They are options all the same: with some hundred of them, nobody finds the few that a first use needs.
    """

    def changed(command: Command) -> Command:
        known = command.__annotations__
        if brief:
            settings = known["config"]
            command.__annotations__ = known | {"config": Annotated[settings, Suppress]}
        return command

    return changed


def first() -> bool:
    """Whether this process prints, of those that torchrun may have started."""
    return os.environ.get("RANK", "0") == "0"


def progress() -> bool:
    """Whether to show progress bars: only on a terminal."""
    return first() and sys.stderr.isatty()


def say(line: str) -> None:
    """Print a line of a long job at once."""
    if first():
        print(line, flush=True)


def announce(what: object) -> None:
    """Say on a terminal that something is being loaded, before that takes its seconds."""
    if progress():
        print(f"loading {what} ...", file=sys.stderr, flush=True)


def note(line: str) -> None:
    """Print a line of a long job to the screen, apart from its result."""
    if first():
        print(line, file=sys.stderr, flush=True)


def open_named(
    name: str, *, show: bool = False, fold: int | None = None, split: str = "test"
) -> "Collection":
    """Open a collection by the name the user typed, or one fold of it; print its headline if wanted."""
    from gr2.data.formats import open_collection
    from gr2.evaluate.describe import headline

    found = open_collection(name, progress=progress())
    found = found if fold is None else found.fold(fold, split=split)
    if show:
        print(headline(found))
    return found


def queries_of(data: "Collection", split: str) -> dict[str, str]:
    """The texts of a split's queries."""
    return {qid: data.queries[qid] for qid in data.split(split)}


def write_run(run: "Run", output: Path, how: str) -> None:
    """Write a run and say so."""
    run.write(output)
    answered = sum(bool(ranking) for ranking in run.rankings.values())
    print(f"{how}: {answered:,} of {len(run.rankings):,} queries answered, written to {output}")
