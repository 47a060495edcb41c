"""The command `gr2`: what a user types → the functions of the other files, and their results → the screen.

Nothing is computed here. Whatever is heavy is imported inside the command that needs it, so `gr2 --help` is
quick.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

if TYPE_CHECKING:
    from gr2.data import Collection
    from gr2.runs import Run

PROBLEMS_SHOWN = 50

Name = Annotated[Positional[str], arg(metavar="COLLECTION")]
Folder = Annotated[Positional[Path], arg(metavar="FOLDER")]
Runs = Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]")]

app, collection = SubcommandApp(), SubcommandApp()
app.command(collection, name="collection", help="Look at, check, prepare or import a collection.")


@collection.command
def info(name: Name, /) -> None:
    """Sizes, grades, fingerprint, and what the training queries give away about the others.

    Args:
        name: A folder in BEIR's layout, `pydocs`, `pydocs:PACKAGE`, or `ir:ID` for an ir_datasets id.
    """
    from gr2.info import describe

    print(describe(_open(name)))


@collection.command
def check(folder: Folder, /) -> None:
    """Report every problem of a collection's files, with file and line; exit with 1 if there is one.

    Args:
        folder: The folder to read. Nothing is written.
    """
    from gr2.formats.folder import read_folder
    from gr2.formats.lines import FormatError
    from gr2.info import headline

    problems: list[str] = []

    def keep(path: Path, line: int, message: str) -> None:
        problems.append(str(FormatError(path, line, message)))

    try:
        found = read_folder(folder, keep, progress=sys.stderr.isatty())
    except FormatError as error:  # what follows this problem in the file cannot be read at all
        problems.append(str(error))
    for problem in problems[:PROBLEMS_SHOWN]:
        print(problem)
    if problems:
        hidden = len(problems) - PROBLEMS_SHOWN
        raise SystemExit(
            f"{len(problems):,} problem{'s' * (len(problems) > 1)}"
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
    from gr2.formats import write_folder
    from gr2.info import headline
    from gr2.prepare import prepare, recipes

    known = recipes()
    made = prepare(name, known[name], source=source, seed=seed) if name in known else _open(name)
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
    from gr2.formats import write_folder
    from gr2.formats.folder import read_files
    from gr2.info import headline

    made = read_files(out.name, documents, queries, qrels, columns=columns, progress=sys.stderr.isatty())
    print(headline(write_folder(made, out)))
    print(f"Written to {out}")


@app.command
def bm25(
    name: Name,
    /,
    *,
    output: Path,
    split: str = "test",
    k: int = 1000,
    k1: float = 0.9,
    b: float = 0.4,
    language: str = "english",
) -> None:
    """Search with BM25 and write a TREC run.

    Args:
        name: The collection: a folder, `pydocs`, `ir:ID`.
        output: The run file to write.
        split: Which queries to answer.
        k: How many documents to return for each query.
        k1: How soon repeated terms stop counting.
        b: How much long documents are discounted.
        language: Stemmer and stop words, or `none`.
    """
    from gr2.baselines.sparse import BM25, BM25Config

    data = _open(name, show=True)
    config = BM25Config(k1=k1, b=b, language=language)
    run = BM25.index(data.documents, config, progress=sys.stderr.isatty()).search(
        _queries(data, split), k, progress=sys.stderr.isatty()
    )
    _write(run, output, str(config))


@app.command
def control(
    kind: Positional[Literal["popularity", "neighbours"]],
    name: Name,
    /,
    *,
    output: Path,
    split: str = "test",
    train: str = "train",
    k: int = 1000,
) -> None:
    """Write the run of a control: a ranking that reads no document, only the training judgements.

    Args:
        kind: popularity: one list for every query; neighbours: copies from the training queries most alike.
        name: The collection: a folder, `pydocs`, `ir:ID`.
        output: The run file to write.
        split: Which queries to answer.
        train: The split whose judgements it knows.
        k: How many documents to return for each query.
    """
    from gr2.baselines.controls import neighbours, popularity

    data = _open(name, show=True)
    known, queries = data.split(train), _queries(data, split)
    run = (
        popularity(known, queries, k) if kind == "popularity" else neighbours(known, data.queries, queries, k)
    )
    _write(run, output, f"{kind} from the split {train}")


@app.command
def evaluate(
    name: Name,
    runs: Runs,
    /,
    *,
    split: str = "test",
    measures: tuple[str, ...] = (),
    baseline: Path | None = None,
    exclude: Path | None = None,
    gain: Literal["linear", "exponential"] = "linear",
    max_grade: int = 4,
    test: Literal["t", "permutation"] = "t",
    style: Literal["text", "markdown", "csv", "json"] = "text",
) -> None:
    """Measure runs, seen and unseen queries apart, with significance.

    Args:
        name: The collection: a folder, `pydocs`, `ir:ID`.
        runs: TREC run files.
        split: Whose judgements to measure against.
        measures: ir_measures' names or the paper's; by default all of the paper's.
        baseline: A run to test the others against; without it every pair of runs is tested.
        exclude: A file of `qid docno` lines: documents left out of that query's ranking and judgements.
        gain: nDCG's gain of grade g: linear is g (trec_eval), exponential is 2^g − 1 (gdeval).
        max_grade: ERR's maximal grade (gdeval: 4).
        test: The paired test behind the letters; JSON holds both.
        style: How to print it; JSON has every query's values.
    """
    from gr2.evaluation import Request, report

    paths = [*runs, *([baseline] if baseline is not None and baseline not in runs else [])]
    request = Request(
        split=split,
        measures=measures,
        baseline=baseline,
        exclude=exclude,
        gain=gain,
        max_grade=max_grade,
        test=test,
    )
    print(report(_open(name), paths, request, style))


@app.command
def demo() -> None:
    """Search the documentation of your Python: the embedded collection, sample searches, and its measures."""
    from gr2.demo import demo

    for paragraph in demo():
        print(paragraph, end="\n\n", flush=True)


def _open(name: str, *, show: bool = False) -> "Collection":
    from gr2.formats import open_collection
    from gr2.info import headline

    found = open_collection(name, progress=sys.stderr.isatty())
    if show:
        print(headline(found))
    return found


def _queries(data: "Collection", split: str) -> dict[str, str]:
    return {qid: data.queries[qid] for qid in data.split(split)}


def _write(run: "Run", output: Path, how: str) -> None:
    run.write(output)
    print(f"{how}: {len(run.rankings):,} queries answered, written to {output}")


def main() -> None:
    """Run the command line; a mistake in the input is one sentence on the screen and exit code 1."""
    try:
        app.cli(prog="gr2", description="Generative retrieval with multi-graded relevance.")
    except (ValueError, OSError) as error:
        sys.exit(f"gr2: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
