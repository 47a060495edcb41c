"""`gr2 collection ...`: look at, check, prepare or import a collection."""

from collections.abc import Mapping
from pathlib import Path

from tyro.extras import SubcommandApp

from gr2.cli.app import Folder, Name, app, open_named, progress

PROBLEMS_SHOWN = 50
PROBLEMS_OF_IMPORT = 20

collection = SubcommandApp()
app.command(collection, name="collection", help="Look at, check, prepare or import a collection.")


@collection.command
def info(name: Name, /) -> None:
    """Print sizes, grades and fingerprint, and how far training queries give away the answers to others.

    Args:
        name: A folder in BEIR's layout, `pydocs`, `pydocs:PACKAGE`, or `ir:ID` for an ir_datasets id.
    """
    from gr2.evaluate.describe import describe

    print(describe(open_named(name)))


@collection.command
def check(folder: Folder, /) -> None:
    """List every problem of a collection's files, with file and line; the exit code is 1 if there is one.

    Documents with the same title and text, and queries without text, are only warnings.

    Args:
        folder: The folder to read. Nothing is written.
    """
    from gr2.data.check import check_folder
    from gr2.evaluate.describe import headline

    found = check_folder(folder, most=PROBLEMS_SHOWN, progress=progress())
    for problem in found.problems.kept:
        print(problem)
    if found.problems.count or found.collection is None:
        raise SystemExit(str(found.problems))
    print(headline(found.collection))
    for warning in found.warnings.kept:
        print(f"warning: {warning}")
    hidden = found.warnings.count - len(found.warnings.kept)
    print(f"No problems{f', {hidden:,} more warnings' if hidden else ''}.")


@collection.command
def prepare(name: Name, /, *, out: Path, source: tuple[Path, ...] = (), seed: int = 0) -> None:
    """Build a well-known collection from files that you have downloaded.

    Args:
        name: nfcorpus, cranfield, scifact, medquad, antique, esci or movies, made of public files; one of the
            paper's: gov2-500k, clueweb-500k, robust04, ms-500k, ms-1m or nq320k; or any other collection, to
            write it as a folder.
        out: The folder to write; it appears whole or not at all.
        source: The downloaded files, or folders that contain them; without it, their addresses are printed.
        seed: For the documents that fill up the paper's collections, and for folds where none are published.
    """
    from gr2.data.formats import write_folder
    from gr2.data.prepare import left_out, prepare, recipes
    from gr2.evaluate.describe import headline

    recipe = recipes().get(name)
    if recipe is None:
        print(headline(write_folder(open_named(name), out)))
        print(f"Written to {out}")
        return
    made = write_folder(
        prepare(name, recipe, source=source, seed=seed), out, left_out=left_out(name, recipe, source)
    )
    print(headline(made))
    print(f"Written to {out}")
    if "fingerprint" in recipe:
        print(_compared(made.fingerprint, recipe["fingerprint"], recipe["counts"]))


def _compared(found: str, measured: str, counts: str) -> str:
    """Whether a prepared collection is the one that the documentation's tables were measured on."""
    if found == measured:
        return "It is the collection of the documentation's tables: the fingerprints are equal."
    return (
        f"note: the documentation's tables were measured on another version ({counts}, fingerprint "
        f"{measured[:12]}): texts or judgements differ, so figures may differ too."
    )


@collection.command(name="import")
def import_(
    *,
    documents: Path,
    queries: Path | None = None,
    qrels: Mapping[str, Path] = {},  # noqa: B006
    out: Path,
    columns: Mapping[str, str] = {},  # noqa: B006 - never changed; tyro shows it as the default
    qrels_columns: Mapping[str, str] = {},  # noqa: B006
) -> None:
    """Make a collection of your own files: documents, and queries and judgements if you have some.

    Args:
        documents: JSONL, TSV or CSV with named columns, plain or .gz.
        queries: JSONL, TSV or CSV with named columns, or TREC topics (a qid before each text). Leave it out
            if you have documents alone.
        qrels: A split and its file of judgements, in pairs: `train a.qrels test b.csv`. TREC's or BEIR's
            columns, or CSV.
        out: The folder to write; it appears whole or not at all.
        columns: Our name of a field and the name of your column, in pairs: `docno sku title name text
            description`. Fields of documents: docno, title, text, url; of queries: qid, query.
        qrels_columns: The same for tables of judgements: `qid query docno sku grade label`.
    """
    from gr2.data.formats import write_folder
    from gr2.data.formats.folder import read_files
    from gr2.data.formats.lines import Problems
    from gr2.data.formats.records import DocumentFile
    from gr2.evaluate.describe import headline

    problems = Problems(PROBLEMS_OF_IMPORT)
    made = read_files(
        out.name,
        documents,
        queries,
        qrels,
        columns=columns,
        qrels_columns=qrels_columns,
        report=problems,
        progress=progress(),
    )
    if problems.count:
        raise ValueError("\n".join([*problems.kept, f"{problems}; nothing was written"]))
    print(headline(write_folder(made, out)))
    if unread := DocumentFile(documents, columns).unread():
        print(f"Not read, and so not searched: {', '.join(unread)}")
    print(f"Written to {out}")
