"""`gr2 bm25`, `gr2 dense`, `gr2 control`, `gr2 evaluate`, `gr2 demo`: systems to beat, and measuring runs."""

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from gr2.cli.app import BACKBONE, Name, Runs, app, open_named, progress, queries_of, write_run


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
        language: The Snowball stemmer (english, german, ...), or `none`; English has stop words too.
    """
    from gr2.baselines.sparse import BM25, BM25Config
    from gr2.store import writable

    config, _ = BM25Config(k1=k1, b=b, language=language), writable(output)
    data = open_named(name, show=True)
    run = BM25.index(data.documents, config, progress=progress()).search(
        queries_of(data, split), k, progress=progress()
    )
    write_run(run, output, str(config))


@app.command
def dense(
    name: Name, /, *, output: Path, backbone: str = BACKBONE, split: str = "test", k: int = 1000
) -> None:
    """Search with a pretrained encoder as it is, without training, and write a TREC run.

    Args:
        name: The collection: a folder, `pydocs`, `ir:ID`.
        backbone: gr2-mini, or folder or hub name of the checkpoint that reads documents and queries.
        output: The run file to write.
        split: Which queries to answer.
        k: How many documents to return for each query.
    """
    from gr2.baselines.dense import Dense
    from gr2.embed import Encoder
    from gr2.store import writable

    encoder, _ = Encoder.load(backbone), writable(output)
    data = open_named(name, show=True)
    queries = queries_of(data, split)
    index = Dense.index(data.documents, encoder, progress=progress())
    write_run(index.search(queries, k, progress=progress()), output, str(index))


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
    from gr2.store import writable

    if split == train:
        raise ValueError(
            f"a control that knows the judgements of {train!r} says nothing about {train!r} itself"
        )
    writable(output)
    data = open_named(name, show=True)
    known, queries = data.split(train), queries_of(data, split)
    run = (
        popularity(known, queries, k) if kind == "popularity" else neighbours(known, data.queries, queries, k)
    )
    write_run(run, output, f"{kind} from the split {train}")


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
    max_grade: int | None = None,
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
        max_grade: ERR's maximal grade; by default 4 (gdeval's), or the collection's highest if that is more.
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
    print(report(open_named(name), paths, request, style))


@app.command
def demo(*, fast: bool = False, out: Path | None = None) -> None:
    """Make a search engine of the documentation of your Python, and show what it finds: the whole walk.

    Interrupted, it goes on where it was; at its end `gr2 serve OUT` opens a page to search with.

    Args:
        fast: In a minute and a half instead of five: fewer steps, and no MLE to compare with.
        out: The model's folder to write, with report.html; without it gr2-demo, or gr2-demo-fast.
    """
    from gr2.demo import demo

    folder = out or Path("gr2-demo-fast" if fast else "gr2-demo")
    for paragraph in demo(folder, BACKBONE, fast=fast, progress=progress()):
        print(paragraph, end="\n\n", flush=True)
