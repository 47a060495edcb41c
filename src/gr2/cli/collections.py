"""`gr2 collection ...`: look at, check, prepare or import a collection."""

from collections.abc import Mapping
from pathlib import Path

from tyro.extras import SubcommandApp

from gr2.cli.app import Folder, Name, app, open_named, progress

PROBLEMS_SHOWN = 50

collection = SubcommandApp()
app.command(collection, name="collection", help="Look at, check, prepare or import a collection.")


@collection.command
def info(name: Name, /) -> None:
    """Sizes, grades, fingerprint, and what the training queries give away about the others.

    Args:
        name: A folder in BEIR's layout, `pydocs`, `pydocs:PACKAGE`, or `ir:ID` for an ir_datasets id.
    """
    from gr2.evaluate.describe import describe

    print(describe(open_named(name)))


@collection.command
def check(folder: Folder, /) -> None:
    """Report every problem of a collection's files, with file and line; exit with 1 if there is one.

    Args:
        folder: The folder to read. Nothing is written.
    """
    from gr2.data.formats.folder import read_folder
    from gr2.data.formats.lines import FormatError
    from gr2.evaluate.describe import headline

    count, shown = 0, list[str]()

    def keep(path: Path, line: int, message: str) -> None:
        nonlocal count
        count += 1
        if count <= PROBLEMS_SHOWN:  # a broken file can have millions
            shown.append(str(FormatError(path, line, message)))

    try:
        found = read_folder(folder, keep, progress=progress())
    except FormatError as error:  # what follows this problem in the file cannot be read at all
        keep(error.path, error.line, error.message)
    for problem in shown:
        print(problem)
    if count:
        hidden = count - PROBLEMS_SHOWN
        raise SystemExit(
            f"{count:,} problem{'s' * (count > 1)}"
            + (f", {hidden:,} of them not shown" if hidden > 0 else "")
        )
    print(headline(found))
    print("No problems.")


@collection.command
def prepare(name: Name, /, *, out: Path, source: Path | None = None, seed: int = 0) -> None:
    """Build one of the paper's collections from data you have, as a folder.

    Args:
        name: gov2-500k, clueweb-500k, robust04, ms-500k, ms-1m or nq320k; or any other collection, to write
            it as a folder.
        out: The folder to write; it appears whole or not at all.
        source: The folder of files that ir_datasets does not have (nq320k).
        seed: Chooses the random fill of documents and, where none are published, the folds.
    """
    from gr2.data.formats import write_folder
    from gr2.data.prepare import prepare, recipes
    from gr2.evaluate.describe import headline

    known = recipes()
    made = prepare(name, known[name], source=source, seed=seed) if name in known else open_named(name)
    print(headline(write_folder(made, out)))
    print(f"Written to {out}")


@collection.command(name="import")
def import_(
    *,
    documents: Path,
    queries: Path,
    qrels: Mapping[str, Path],
    out: Path,
    columns: Mapping[str, str] = {},  # noqa: B006 - never changed; tyro shows it as the default
) -> None:
    """Make a collection folder from separate files.

    Args:
        documents: JSONL or TSV with named columns, plain or .gz.
        queries: JSONL or TSV with named columns, or TREC topics.
        qrels: Judgements of each split, e.g. `train a.qrels test b.tsv`, in TREC's or BEIR's columns.
        out: The folder to write; it appears whole or not at all.
        columns: What your tables call our fields, e.g. `docno key text body`; fields are docno, title, text,
            url, qid and query.
    """
    from gr2.data.formats import write_folder
    from gr2.data.formats.folder import read_files
    from gr2.evaluate.describe import headline

    made = read_files(out.name, documents, queries, qrels, columns=columns, progress=progress())
    print(headline(write_folder(made, out)))
    print(f"Written to {out}")
