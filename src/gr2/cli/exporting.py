"""`gr2 export ...`: runs, docids and vectors as files that other tools read."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

from gr2.cli.app import Folder, announce, app

RunFile = Annotated[Positional[Path], arg(metavar="RUN")]

export = SubcommandApp()
app.command(
    export,
    name="export",
    help="Write a run, docids or document vectors for other tools: CSV, JSON lines, .npy.",
)


@export.command
def run(path: RunFile, /, *, output: Path) -> None:
    """Write a run as CSV or JSON lines: qid, docno, rank and score.

    Args:
        path: A run file: TREC, or CSV with the columns qid, docno and score.
        output: The file to write; it ends in .csv or .jsonl.
    """
    from gr2.data.runs import Run
    from gr2.workflows.export import RUN_HEADER, run_rows, write_rows

    count = write_rows(RUN_HEADER, run_rows(Run.read(path)), output)
    print(f"{count:,} results, written to {output}")


@export.command
def docids(folder: Folder, /, *, output: Path) -> None:
    """Write docids as CSV or JSON lines: docno, docid and tokens.

    Args:
        folder: What `gr2 docids build` wrote, or a model folder.
        output: The file to write; it ends in .csv or .jsonl.
    """
    from gr2.docids.docids import Docids
    from gr2.workflows.export import DOCID_HEADER, docid_rows, write_rows

    inner = folder / "docids"  # of a model folder
    count = write_rows(DOCID_HEADER, docid_rows(Docids.load(inner if inner.is_dir() else folder)), output)
    print(f"{count:,} docids, written to {output}")


@export.command
def embeddings(folder: Folder, /, *, out: Path) -> None:
    """Write the document vectors of a model: vectors.npy, and docnos.txt in the same order.

    Args:
        folder: A model folder with look-ahead, as `gr2 index` writes it.
        out: The folder to write; it appears whole or not at all.
    """
    announce(folder)
    from gr2.model.look_ahead_io import load_look_ahead
    from gr2.workflows.export import write_vectors

    if not (folder / "look_ahead").is_dir():
        raise ValueError(f"{folder}: no model folder with look-ahead, so it has no vectors of documents")
    count, width = write_vectors(load_look_ahead(folder / "look_ahead"), out)
    print(f"{count:,} vectors of {width} dimensions, written to {out}")
