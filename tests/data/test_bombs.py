"""Small files that hold gigabytes: each is refused at a stated limit, and memory stays small."""

import bz2
import gzip
import subprocess
import sys

import pytest

from gr2.data.formats import FormatError, read_folder
from gr2.data.formats.lines import LINE_BYTES, numbered_lines
from gr2.data.formats.tables import rows
from gr2.data.formats.trec import read_topics
from gr2.data.wikipedia import dump

MEGABYTES = 300
"""What a reader may take; `MANY` times this many bytes are in each file."""
MANY = 512 << 20
BLOCK = 16 << 20

READ = """
import re, sys
from pathlib import Path
from gr2.data.formats.folder import _read_folds
from gr2.data.formats.lines import FormatError
from gr2.data.formats.records import DocumentFile, read_queries
from gr2.data.formats.trec import read_qrels, read_run, read_topics
from gr2.data.wikipedia.dump import Dump
from gr2.judge.click_log import read_ubi
problems = []
def keep(path, line, message):
    problems.append(message)
readers = {
    "documents": lambda path: list(DocumentFile(path).numbered(keep)),
    "queries": lambda path: read_queries(path, None, keep),
    "topics": lambda path: read_topics(path, report=keep),
    "qrels": lambda path: read_qrels(path, keep),
    "run": lambda path: read_run(path, keep),
    "folds": lambda path: _read_folds(path, {}, keep),
    "ubi": lambda path: read_ubi([path]),
    "dump": lambda path: [page.id for page in Dump(path)],
}
try:
    readers[sys.argv[1]](Path(sys.argv[2]))
except FormatError as error:
    problems.append(str(error))
# The peak of this process alone: ru_maxrss keeps that of the process that started it.
status = Path("/proc/self/status").read_text()
print(int(re.search("VmHWM:[^0-9]*([0-9]+)", status)[1]) // 1024, *problems[:1])
"""
HEAD = b"<mediawiki><siteinfo></siteinfo><page><title>A</title><id>1</id>"
BOMBS = {
    "documents-zeros.jsonl": (b"", b"\0"),
    "documents-objects.jsonl": (b'{"_id": "d", "text": [', b"{},"),
    "queries-zeros.tsv": (b"qid\tquery\n", b"a"),
    "topics-zeros.txt": (b"", b"\0"),
    "topics-tags.txt": (b"<top>\n", b"a" * 63 + b"\n"),
    "qrels-zeros.qrels": (b"", b"\0"),
    "run-zeros.run": (b"", b"1"),
    "folds-zeros.json": (b"[", b"1"),
    "folds-lines.json": (b"[", b"1," * 31 + b"1\n"),
    "ubi-zeros.jsonl": (b"", b"["),
    "dump-text.xml": (HEAD + b"<revision><text>", b"a"),
    "dump-attribute.xml": (HEAD + b"<redirect title='", b"a"),
    "dump-elements.xml": (HEAD, b"<a>"),
}


def save_bomb(path, start: bytes, unit: bytes) -> None:
    """A file of `MANY` bytes, compressed; several members of a gzip file are one text."""
    pack = bz2.compress if path.suffix == ".bz2" else lambda data: gzip.compress(data, 1)
    block = pack(unit * (BLOCK // len(unit)))
    path.write_bytes(pack(start) + block * (MANY // BLOCK))


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_a_limit_with_little_memory(tmp_path, name):
    path = tmp_path / f"{name}.gz"
    save_bomb(path, *BOMBS[name])
    assert path.stat().st_size < MANY / 100
    command = [sys.executable, "-c", READ, name.partition("-")[0], str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-1000:]
    memory, _, problem = done.stdout.partition(" ")
    assert any(words in problem for words in ("at most", "nested deeper than 100")), problem[:300]
    assert int(memory) < MEGABYTES


def test_the_limit_of_a_line_is_exact(tmp_path):
    path = tmp_path / "file"
    for more, lines in (0, 2), (1, 1):
        path.write_bytes(b"first\n" + b"a" * (LINE_BYTES + more - 1) + b"\n")
        if not more:
            assert len(list(numbered_lines(path))) == lines
            continue
        with pytest.raises(FormatError, match=r"file:2: expected a line of at most 8,388,608 bytes"):
            list(numbered_lines(path))
        assert len(list(numbered_lines(path, lambda *problem: None))) == lines


def test_the_lines_of_a_csv_file_have_the_same_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("gr2.data.formats.lines.LINE_BYTES", 20)
    path = tmp_path / "file.csv"
    path.write_bytes(b'a,"two\r\nlines"\r\n' + b"b" * 21)
    found, problems = [], []
    found.extend(rows(path, lambda *problem: problems.append(problem)))
    assert found == [(1, ["a", "two\r\nlines"])]
    assert problems == [(path, 3, "expected a line of at most 20 bytes")]


def test_the_limit_of_a_file_that_is_read_whole_is_stated(tmp_path):
    path = tmp_path / "topics"
    path.write_text("<top>\n<num> 1\n<title> a\n</top>\n" + f"{'x' * 63}\n" * (LINE_BYTES // 64))
    with pytest.raises(FormatError, match=r"topics:\d+: expected a file of at most 8,388,608 bytes"):
        read_topics(path)


def test_a_topic_file_of_two_columns_may_be_as_large_as_it_wants(tmp_path, monkeypatch):
    monkeypatch.setattr("gr2.data.formats.lines.LINE_BYTES", 100)
    (tmp_path / "topics").write_text("".join(f"q{number} sour fruit\n" for number in range(100)))
    assert len(read_topics(tmp_path / "topics")) == 100


def test_a_page_of_a_dump_may_be_long_but_not_longer(tmp_path, monkeypatch):
    text = "a" * (3 * dump.BLOCK)
    page = f"<title>A</title><id>1</id><revision><text>{text}</text></revision></page></mediawiki>"
    (tmp_path / "dump.xml").write_text("<mediawiki><page>" + page)
    monkeypatch.setattr(dump, "LONGEST_TEXT", 3 * dump.BLOCK)
    assert [len(found.text) for found in dump.Dump(tmp_path / "dump.xml")] == [3 * dump.BLOCK]
    monkeypatch.setattr(dump, "LONGEST_TEXT", dump.BLOCK)
    with pytest.raises(FormatError, match=r"at most 262,144 bytes until a text or tag ends, at byte"):
        list(dump.Dump(tmp_path / "dump.xml"))


@pytest.mark.parametrize("element", ["namespace", "sitename"])
def test_an_element_inside_a_text_is_refused(tmp_path, element):
    inside = f"<siteinfo><namespaces><{element} key='1'><b>x</b></{element}></namespaces></siteinfo>"
    if element == "sitename":
        inside = "<siteinfo><sitename><b>x</b></sitename></siteinfo>"
    (tmp_path / "dump.xml").write_text(f"<mediawiki>{inside}</mediawiki>")
    with pytest.raises(FormatError, match=rf"expected text in <{element}>, found <b>, at byte"):
        list(dump.Dump(tmp_path / "dump.xml"))


def test_a_check_of_a_file_with_millions_of_problems_keeps_the_first(tmp_path, gr2, monkeypatch):
    monkeypatch.setattr("gr2.cli.collections.PROBLEMS_SHOWN", 3)
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "text": "x"}\n' + "wrong\n" * 1000)
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "x"}\n')
    with pytest.raises(SystemExit, match=r"1,0\d\d problems, \d+ of them not shown"):
        gr2("collection", "check", tmp_path)
    with pytest.raises(FormatError):
        read_folder(tmp_path)


def test_a_machine_without_enough_memory_is_one_sentence(gr2, monkeypatch, tmp_path):
    def exhausted(*_arguments, **_options):
        raise MemoryError

    monkeypatch.setattr("gr2.data.formats.open_collection", exhausted)
    with pytest.raises(SystemExit, match="gr2: the memory of this machine does not suffice"):
        gr2("collection", "info", "pydocs")
