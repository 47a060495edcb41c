"""A folder ↔ a collection. The layout is BEIR's, but each part may have another format.

    corpus.jsonl | .tsv | .csv                   documents
    queries.jsonl | .tsv | .csv | topics.txt     queries (topics.txt: TREC, either form)
    qrels/SPLIT.tsv | .csv | .txt | .qrels       judgements of one split, BEIR's or TREC's columns
    folds*.json                                  {"0": [qid, ...], ...}, if there are folds

Each file may be gzipped. Documents are streamed: one pass checks them and keeps only their docnos.
"""

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import orjson

from gr2.data.collection import Collection, Qrels, Scan
from gr2.data.formats.lines import FormatError, Report, find, kind, numbered_lines, refuse, small
from gr2.data.formats.records import IMPORT, TABLES, USUAL_NAMES, DocumentFile, read_queries
from gr2.data.formats.trec import numbered_qrels, read_topics
from gr2.store import atomic_folder

Columns = Mapping[str, str]
CORPUS_NAMES = ("corpus.jsonl", "corpus.tsv", "corpus.csv")
QUERY_NAMES = ("queries.jsonl", "queries.tsv", "queries.csv", "topics.txt")
LEFT_OUT = "source_docs.tsv"
"""Query-document pairs that no evaluation should count, in the folder of a collection."""
QRELS_KINDS = (".tsv", ".csv", ".txt", ".qrels")


def read_folder(folder: Path, report: Report = refuse, *, progress: bool = False) -> Collection:
    """Read a collection from a folder; errors name the file and line."""
    if not folder.is_dir():
        raise FormatError(folder, 0, "no such folder (expected one with corpus.jsonl, queries.jsonl, qrels/)")
    corpus, queries = find(folder, *CORPUS_NAMES), find(folder, *QUERY_NAMES)
    if corpus is None or queries is None:
        names = CORPUS_NAMES if corpus is None else QUERY_NAMES
        raise FormatError(folder, 0, f"expected {' or '.join(names)} in this folder; it may be .gz")
    name, splits, folds = folder.resolve().name, _splits(folder), _fold_file(folder)
    return read_files(name, corpus, queries, splits, folds, report=report, progress=progress)


def read_files(
    name: str,
    corpus: Path,
    queries: Path | None,
    qrels: Mapping[str, Path],
    folds: Path | None = None,
    *,
    columns: Columns | None = None,
    qrels_columns: Columns | None = None,
    report: Report = refuse,
    progress: bool = False,
) -> Collection:
    """Read a collection from separate files; `columns` maps our fields to a table's own column names.

    `qrels_columns` does so for the judgements, whose fields are qid, docno and grade. Without a file of
    queries the collection has none.
    """
    unknown = sorted((columns or {}).keys() - USUAL_NAMES.keys())
    if unknown:
        raise ValueError(f"no field is called {unknown[0]!r}; the fields are {', '.join(USUAL_NAMES)}")
    documents, of_documents, of_queries = DocumentFile(corpus, columns or {}), _Noted(report), _Noted(report)
    scanned = _scan(documents, of_documents, progress)
    texts = {} if queries is None else read_query_file(queries, columns, of_queries)
    # If nothing could be read, that is the problem, and not each line that refers to it.
    docnos = None if of_documents.problem and not scanned.docnos else scanned.docnos
    qids = None if of_queries.problem and not texts else texts.keys()
    return Collection(
        name=name,
        documents=documents,
        queries=texts,
        qrels={split: _judged(path, qids, docnos, report, qrels_columns) for split, path in qrels.items()},
        folds=() if folds is None else _read_folds(folds, qids, report),
        scanned=scanned,
    )


class _Noted:
    """A report that passes problems on and remembers that there was one."""

    def __init__(self, report: Report) -> None:
        """Pass them on to this one."""
        self.report, self.problem = report, False

    def __call__(self, path: Path, line: int, message: str) -> None:
        """Pass a problem on."""
        self.problem = True
        self.report(path, line, message)


def read_query_file(path: Path, columns: Columns | None = None, report: Report = refuse) -> dict[str, str]:
    """Read qid → text from a table (.jsonl, .tsv, .csv) or from TREC topics (anything else)."""
    if kind(path) in (".jsonl", *TABLES):
        return read_queries(path, columns, report)
    return read_topics(path, report=report)


def write_folder(
    collection: Collection, folder: Path, *, left_out: Mapping[str, Iterable[str]] | None = None
) -> Collection:
    """Write a collection as a BEIR folder (plus folds.json), atomically and with a manifest.

    `left_out`, query → documents, is written as source_docs.tsv for `gr2 evaluate --exclude`.

    The folder is read back before it gets its name, so anything that a reader would refuse (a docno with a
    space, a judgement of an unknown document, ...) is refused here. Returns the collection as read back.
    """
    with atomic_folder(folder) as temporary:
        _write_records(
            temporary / "corpus.jsonl",
            (
                {"_id": docno, "title": title, "text": text} | ({"url": url} if url else {})
                for docno, title, text, url in collection.documents
            ),
        )
        _write_records(
            temporary / "queries.jsonl",
            ({"_id": qid, "text": text} for qid, text in collection.queries.items()),
        )
        (temporary / "qrels").mkdir()
        for split, qrels in collection.qrels.items():
            _write_qrels(temporary / "qrels", split, qrels)
        if collection.folds:
            folds = {str(number): list(qids) for number, qids in enumerate(collection.folds)}
            (temporary / "folds.json").write_text(json.dumps(folds, indent=1) + "\n", encoding="utf-8")
        if left_out:
            pairs = [f"{qid}\t{docno}" for qid, docnos in left_out.items() for docno in sorted(docnos)]
            content = "\n".join(["query-id\tcorpus-id", *pairs]) + "\n"
            (temporary / LEFT_OUT).write_text(content, encoding="utf-8")
        try:
            written = read_folder(temporary)
        except FormatError as error:
            problem = f"{error.path.name}:{error.line}: {error.message}"
            raise ValueError(f"{collection.name} cannot be written as a folder: {problem}") from None
    return replace(written, name=collection.name, documents=DocumentFile(folder / "corpus.jsonl"))


def _write_records(path: Path, records: Iterable[Mapping[str, str]]) -> None:
    with path.open("wb") as stream:
        for record in records:
            try:
                stream.write(orjson.dumps(record) + b"\n")
            except orjson.JSONEncodeError as error:
                raise ValueError(f"{record['_id']!r} cannot be written as JSON: {error}") from None


def _write_qrels(folder: Path, split: str, qrels: Qrels) -> None:
    if not split or "/" in split:
        raise ValueError(f"the split {split!r} cannot be used as a file name")
    rows = (f"{qid}\t{docno}\t{grade}" for qid, judged in qrels.items() for docno, grade in judged.items())
    lines = "\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n"
    (folder / f"{split}.tsv").write_text(lines, encoding="utf-8")


def _scan(documents: DocumentFile, report: _Noted, progress: bool) -> Scan:
    from tqdm import tqdm

    scan = Scan()
    bar = {
        "desc": documents.path.name,
        "unit": " documents",
        "delay": 1,
        "leave": False,
        "disable": not progress,
    }
    for line, document in tqdm(documents.numbered(report), **bar):
        if not scan.add(document):
            report(documents.path, line, f"docno {document.docno!r} was already used by an earlier line")
    if not scan.docnos and not report.problem:
        report(documents.path, 0, "expected at least one document")
    return scan


def _judged(
    path: Path,
    qids: Container[str] | None,
    docnos: Container[str] | None,
    report: Report,
    columns: Columns | None,
) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for line, qid, docno, grade in numbered_qrels(path, report, columns, option=f"{IMPORT} --qrels-columns"):
        if qids is not None and qid not in qids:
            report(path, line, f"judges the query {qid!r}, which is not among the queries")
        elif docnos is not None and docno not in docnos:
            report(path, line, f"judges the document {docno!r}, which is not in the corpus")
        else:
            qrels.setdefault(qid, {})[docno] = grade
    return qrels


def _splits(folder: Path) -> dict[str, Path]:
    files = [path for path in sorted((folder / "qrels").glob("*")) if kind(path) in QRELS_KINDS]
    splits: dict[str, Path] = {}
    for path in files:
        split = path.name.removesuffix(".gz").removesuffix(kind(path))
        if split in splits:
            raise FormatError(
                path, 0, f"expected one file for the split {split!r}, not {splits[split].name} too"
            )
        splits[split] = path
    return splits


def _fold_file(folder: Path) -> Path | None:
    files = [path for path in sorted(folder.glob("folds*")) if kind(path) == ".json"]
    if len(files) > 1:
        raise FormatError(
            folder, 0, f"expected one folds file, found {', '.join(path.name for path in files)}"
        )
    return files[0] if files else None


def _read_folds(path: Path, qids: Container[str] | None, report: Report) -> tuple[tuple[str, ...], ...]:
    form = '{"0": [qid, ...], "1": [...], ...}'
    try:
        whole = bytearray()
        for _, line in small(path, numbered_lines(path, report), report):
            whole += line + b"\n"
        content = orjson.loads(whole)
    except orjson.JSONDecodeError as error:
        report(path, 0, f"expected {form}: {error}")
        return ()
    if not isinstance(content, dict) or not all(_is_fold(i, pair) for i, pair in enumerate(content.items())):
        report(path, 0, f"expected {form}")
        return ()
    seen: set[str] = set()
    for fold in content.values():
        for qid in fold:
            if qid in seen or (qids is not None and qid not in qids):
                why = "is in two folds" if qid in seen else "is not among the queries"
                report(path, 0, f"query {qid!r} {why}")
            seen.add(qid)
    return tuple(tuple(fold) for fold in content.values())


def _is_fold(number: int, pair: tuple[str, object]) -> bool:
    return (
        pair[0] == str(number) and isinstance(pair[1], list) and all(isinstance(qid, str) for qid in pair[1])
    )
