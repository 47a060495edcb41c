"""Thousands of broken files: each is read correctly or refused with a FormatError, and nothing else happens.

What is read is checked, too: a report that collects finds no problem in it, and what is written again from
it reads back the same.
"""

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from helpers.mutations import STEPS, broken, mutate
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gr2.data.formats import FormatError, read_folder, write_folder
from gr2.data.formats.folder import _read_folds
from gr2.data.formats.lines import is_key
from gr2.data.formats.natural_questions import read_natural_questions
from gr2.data.formats.records import DocumentFile, read_queries
from gr2.data.formats.trec import read_qrels, read_run, read_topics
from gr2.data.runs import Run

TRIED: Counter[str] = Counter()
REFUSED: Counter[str] = Counter()
LEAST = 10_000


def thorough(count):
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing here has to outlive a power cut."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


# --- the formats

CORPUS = (
    '{"_id": "d1", "title": "Cats", "text": "purr – «süß»", "url": "http://x/1"}\n'
    '{"_id": "d2", "title": null, "text": "bark \\"loud\\""}\n'
    '{"_id": 3, "text": "", "metadata": {"a": [1, 2.5, null]}}\n'
).encode()
CORPUS_TSV = (
    b"\xef\xbb\xbfdocno\ttitle\ttext\turl\r\nd1\tCats\tpurr\thttp://x/1\r\nd2\t\tbark\t\r\n3\t\tmoo\t\r\n"
)
QUERIES = (
    b'{"_id": "q1", "text": "purring animal"}\n{"_id": "q2", "text": "loud \\u00e4nimal", "metadata": {}}\n'
)
QUERIES_TSV = b"qid\tquery\nq1\tpurring animal\nq2\tloud animal\n"
SGML = (
    b"<top>\n\n<num> Number: q1\n<title> Topic: purring\nanimal\n\n<desc> Description:\nWhich?\n</top>\n\n"
    b"<TOP><NUM>q2</NUM><TITLE>loud animal</TITLE><NARR>None.</NARR></TOP>\n"
)
TWO_COLUMNS = b"q1\tpurring animal\nq2 loud animal\n"
QRELS = b"query-id\tcorpus-id\tscore\nq1\td1\t3\nq1\td2\t-2\nq2\td2\t0\n"
QRELS_TREC = b"q1 0 d1 3\r\nq1 0 d2 -2\r\n\r\nq2 0 d2 0\r\n"
RUN = b"q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 2.5 tag\nq2\tQ0\td2\t1\t-1e-3\ttag\n"
FOLDS = b'{\n "0": ["q1"],\n "1": ["q2"]\n}\n'
PAGES = (
    b'{"example_id": 1, "question_text": "what purrs", "document_url": "u", "document_text": '
    b'"Cats - Wikipedia <H1> Cats </H1> <Table> x </Table> <P> A cat purrs . </P> <P> More </P>"}\n'
    b'{"example_id": "2", "question_text": "what barks", "document_text": "Dogs - Wikipedia <P> Woof </P>"}\n'
)


@dataclass(frozen=True)
class Kind:
    """A format: how its files are called, valid ones, how they are read, and how that is written again."""

    name: str
    samples: tuple[bytes, ...]
    read: Any
    write: Any

    def __str__(self):
        return self.name


def read_documents(path, report):
    documents = [document for _, document in DocumentFile(path).numbered(report)]
    assert all(is_key(document.docno) for document in documents)
    assert all(isinstance(part, str) for document in documents for part in document)
    return documents


def write_documents(path, documents):
    rows = [json.dumps({"_id": d.docno, "title": d.title, "text": d.text, "url": d.url}) for d in documents]
    path.with_suffix(".jsonl").write_text("\n".join(rows))
    return path.with_suffix(".jsonl")


def write_queries(path, queries):
    rows = [json.dumps({"_id": qid, "text": text}) for qid, text in queries.items()]
    path.with_suffix(".jsonl").write_text("\n".join(rows))
    return path.with_suffix(".jsonl")


def write_topics(path, topics):
    text = "".join(f"<top>\n<num> Number: {q}\n<title> Title: {text}\n</top>\n" for q, text in topics.items())
    columns = "".join(f"{qid}\t{text}\n" for qid, text in topics.items())
    sgml = path.read_text(encoding="utf-8-sig").lstrip().startswith("<")
    path.write_text(text if sgml else columns, newline="")
    return path


def write_qrels(path, qrels):
    rows = [f"{qid}\t{docno}\t{grade}\n" for qid, row in qrels.items() for docno, grade in row.items()]
    path.write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return path


def write_run(path, scores):
    run = Run.from_dict(scores)
    run.write(path)
    again = Run.read(path)
    assert {qid: again.docnos(qid) for qid in scores} == {qid: run.docnos(qid) for qid in scores}
    path.write_text("".join(f"{q} Q0 {d} 1 {s!r} t\n" for q, row in scores.items() for d, s in row.items()))
    return path


def write_folds(path, folds):
    path.write_text(json.dumps({str(number): qids for number, qids in enumerate(folds)}))
    return path


def topics(path, report):
    found = read_topics(path, report=report)
    assert all(is_key(qid) and text.strip() == text != "" for qid, text in found.items())
    return found


KINDS_OF_FILES = [
    Kind("corpus.jsonl", (CORPUS,), read_documents, write_documents),
    Kind("corpus.tsv", (CORPUS_TSV,), read_documents, write_documents),
    Kind("queries.jsonl", (QUERIES,), lambda p, report: read_queries(p, None, report), write_queries),
    Kind("queries.tsv", (QUERIES_TSV,), lambda p, report: read_queries(p, None, report), write_queries),
    Kind("topics.txt", (SGML,), topics, write_topics),
    Kind("topics-two.txt", (TWO_COLUMNS,), topics, write_topics),
    Kind("test.qrels", (QRELS, QRELS_TREC), read_qrels, write_qrels),
    Kind("a.run", (RUN,), read_run, write_run),
    Kind("folds.json", (FOLDS,), lambda p, report: _read_folds(p, {"q1": "", "q2": ""}, report), write_folds),
]


def raising(path, line, message):
    raise FormatError(path, line, message)


def read_both_ways(path, read):
    """What a reader makes of a file, or None if it refuses it; a report that collects must agree."""
    problems = []

    def keep(path, line, message):
        problems.append((path, line, message))

    try:
        value = read(path, raising)
    except FormatError as error:
        assert str(error.path) in str(error)
        assert error.message
        first = (error.path, error.line, error.message)
        try:
            read(path, keep)
        except FormatError as last:
            problems.append((last.path, last.line, last.message))
        assert problems[0] == first
        return None
    assert read(path, keep) == value
    assert not problems
    return value


@pytest.mark.parametrize("kind", KINDS_OF_FILES, ids=str)
def test_a_broken_file_is_read_correctly_or_refused(place, kind):
    @given(broken(*kind.samples))
    @thorough(900)
    def check(data):
        TRIED[kind.name] += 1
        path = place / kind.name
        path.write_bytes(data)
        value = read_both_ways(path, kind.read)
        if value is None:
            REFUSED[kind.name] += 1
        else:
            assert kind.read(kind.write(path, value), raising) == value

    for sample in kind.samples:
        (place / kind.name).write_bytes(sample)
        assert kind.read(place / kind.name, raising), "the valid file is valid"
    check()
    assert REFUSED[kind.name] > 100, "some inputs were broken"
    assert TRIED[kind.name] - REFUSED[kind.name] > 30, "and some were not"


@pytest.mark.parametrize("kind", KINDS_OF_FILES, ids=str)
def test_a_broken_gzip_file_gives_what_was_compressed_or_is_refused(place, kind):
    name = f"{kind.name}.gz"
    whole = gzip.compress(kind.samples[0], mtime=0)
    flips = st.lists(st.tuples(st.just("flip"), st.integers(0, len(whole)), st.integers(0, 7)), max_size=3)
    cut = st.integers(0, len(whole))
    (place / kind.name).write_bytes(kind.samples[0])
    expected = kind.read(place / kind.name, raising)

    @given(flips, cut | st.just(len(whole)))
    @thorough(250)
    def check(steps, length):
        TRIED[name] += 1
        (place / name).write_bytes(mutate(whole, steps)[:length])
        value = read_both_ways(place / name, kind.read)
        if value is None:
            REFUSED[name] += 1
        assert value in (None, expected)

    check()
    assert REFUSED[name] > 100


@given(data=broken(PAGES), zipped=st.booleans(), length=st.integers(0, 400) | st.none())
@thorough(900)
def test_broken_natural_questions_are_read_correctly_or_refused(place, data, zipped, length):
    TRIED["nq"] += 1
    path = place / ("nq.jsonl.gz" if zipped else "nq.jsonl")
    path.write_bytes(gzip.compress(data)[:length] if zipped else data)
    try:
        made = read_natural_questions({"train": path})
    except FormatError as error:
        assert error.path == path
        REFUSED["nq"] += 1
        return
    if not made.queries:
        return
    write_folder(made, place / "nq")
    again = read_folder(place / "nq")
    assert again.fingerprint == made.fingerprint
    assert again.qrels == made.qrels


FOLDER = {
    "corpus.jsonl": CORPUS,
    "corpus.tsv": CORPUS_TSV,
    "queries.jsonl": QUERIES,
    "queries.tsv": QUERIES_TSV,
    "topics.txt": SGML,
    "qrels/test.tsv": QRELS,
    "qrels/train.qrels": QRELS_TREC,
    "folds.json": FOLDS,
}


@given(
    corpus=st.sampled_from(["corpus.jsonl", "corpus.tsv"]),
    queries=st.sampled_from(["queries.jsonl", "queries.tsv", "topics.txt"]),
    zipped=st.sets(st.sampled_from(sorted(FOLDER))),
    dropped=st.sampled_from(["", "", "", *FOLDER]),
    steps=st.dictionaries(st.sampled_from(sorted(FOLDER)), STEPS, max_size=2),
)
@thorough(900)
def test_a_broken_folder_is_read_correctly_or_refused(place, corpus, queries, zipped, dropped, steps):
    TRIED["folder"] += 1
    folder = place / f"folder-{TRIED['folder']}"
    parts = {corpus, queries, "qrels/test.tsv", "qrels/train.qrels", "folds.json"} - {dropped}
    (folder / "qrels").mkdir(parents=True)
    for name in parts:
        data = mutate(FOLDER[name], steps.get(name, []))
        path = folder / (f"{name}.gz" if name in zipped else name)
        path.write_bytes(gzip.compress(data) if name in zipped else data)

    def read(path, report):
        made = read_folder(path, report)
        return made.fingerprint, made.queries, made.qrels, made.folds

    value = read_both_ways(folder, read)
    if value is None:
        REFUSED["folder"] += 1
        return
    write_folder(read_folder(folder), place / "folder")
    assert read(place / "folder", raising) == value


def test_enough_inputs_were_tried():
    names = {kind.name for kind in KINDS_OF_FILES}
    if not names | {f"{name}.gz" for name in names} | {"nq", "folder"} <= TRIED.keys():
        pytest.skip("only after all the others of this file")
    assert TRIED.total() >= LEAST
    assert REFUSED.total() >= LEAST // 3
