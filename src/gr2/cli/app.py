"""What every command shares: the application, the kinds of argument, and opening a collection."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

if TYPE_CHECKING:
    from gr2.data import Collection
    from gr2.runs import Run

Name = Annotated[Positional[str], arg(metavar="COLLECTION")]
Folder = Annotated[Positional[Path], arg(metavar="FOLDER")]
Runs = Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]")]

BACKBONE = "gr2-mini"
"""The backbone that comes with the package: what a command takes unless told otherwise."""

app = SubcommandApp()


def first() -> bool:
    """Whether this process is the one that speaks, of those that torchrun may have started."""
    return os.environ.get("RANK", "0") == "0"


def progress() -> bool:
    """Whether to show progress bars: where somebody can see them."""
    return first() and sys.stderr.isatty()


def open_named(name: str, *, show: bool = False) -> "Collection":
    """Open a collection by what the user typed, and print its headline if asked to."""
    from gr2.formats import open_collection
    from gr2.info import headline

    found = open_collection(name, progress=progress())
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
