"""The document store: whole or not at all, the same bytes, any docno, many threads; and snippets."""

import random
import sqlite3
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gr2.data.collection import Document
from gr2.data.documents import READ, DocumentStore, snippet, write_documents

ODD = [
    "../etc/passwd",
    "a/b",
    "'; DROP TABLE documents; --",
    "%",
    "ä€😀",
    " ",
    "a\x00b",
    "A",
    "a",
    "https://x.y/?q=1#z",
]


def corpus(count: int = 300) -> list[Document]:
    draw = random.Random(0)
    rows = [Document(docno, f"title of {docno}", "x " * 40, f"https://example.org/{docno}") for docno in ODD]
    for i in range(count):
        text = " ".join(draw.choice(["red", "green", "blue"]) for _ in range(draw.choice([0, 10, 5000])))
        rows.append(Document(f"d{i:04}", f"Title {i}", text, f"https://example.org/{i % 7}"))
    return rows


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> DocumentStore:
    path = tmp_path_factory.mktemp("store") / "a folder?with #odd% name" / "documents.sqlite"
    assert write_documents(corpus(), path) == 310
    return DocumentStore(path)


def test_what_was_written_is_read_whatever_the_docno(store):
    documents = {document.docno: document for document in corpus()}
    assert len(store) == len(documents)
    assert store.get(documents) == documents
    assert store.get(["nobody", "d0003", "../../d0003", "d0003\x00", "\ud800"]) == {
        "d0003": documents["d0003"]
    }
    assert [document.docno for document in store] == sorted(documents, key=lambda docno: docno.encode())


def test_more_docnos_than_one_statement_takes(store):
    assert len(store.get([f"d{i:04}" for i in range(300)] + [f"no{i}" for i in range(3000)])) == 300


def test_the_bytes_depend_on_the_documents_alone(store, tmp_path):
    rows = corpus()
    random.Random(1).shuffle(rows)
    write_documents(iter(rows), tmp_path / "again.sqlite")
    assert (tmp_path / "again.sqlite").read_bytes() == store.path.read_bytes()
    script = """
import pathlib, sys
from gr2.data.documents import DocumentStore, write_documents
write_documents(DocumentStore(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]))
"""
    command = [sys.executable, "-c", script, str(store.path), str(tmp_path / "elsewhere.sqlite")]
    subprocess.run(command, check=True)
    assert (tmp_path / "elsewhere.sqlite").read_bytes() == store.path.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.sqlite", "elsewhere.sqlite"]


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "documents.sqlite"
    write_documents([Document("a", "first")], path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="two documents have the docno 'b'"):
        write_documents([Document("b"), Document("c"), Document("b")], path)
    with pytest.raises(ValueError, match=r"'x\\ud800' has half a character"):
        write_documents([Document("x\ud800")], path)

    def broken():
        yield Document("b")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_documents(broken(), path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["documents.sqlite"]


def test_what_a_killed_writer_would_leave_is_hidden(tmp_path):
    seen = set()

    def looking():
        yield Document("a", "first")
        seen.update(path.name for path in tmp_path.iterdir())

    write_documents(looking(), tmp_path / "documents.sqlite")
    assert len(seen) == 2 and all(name.startswith(".documents.sqlite.") for name in seen)


def test_half_characters_become_replacement_signs(tmp_path):
    write_documents([Document("a", "x\udc00y", "\ud83d\ude00")], tmp_path / "d")
    assert DocumentStore(tmp_path / "d").get(["a"])["a"][1:3] == ("x\ufffdy", "😀")


def test_an_empty_collection_is_a_store_too(tmp_path):
    assert write_documents([], tmp_path / "d") == 0
    assert len(DocumentStore(tmp_path / "d")) == 0 and list(DocumentStore(tmp_path / "d")) == []


def test_other_files_and_other_versions_are_refused(tmp_path):
    path = tmp_path / "documents.sqlite"
    with pytest.raises(ValueError, match="no such file"):
        DocumentStore(path)
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(ValueError, match=r"documents\.sqlite: cannot be read"):
        DocumentStore(path)
    path.unlink()
    sqlite3.connect(path).execute("CREATE TABLE documents (docno)")
    with pytest.raises(ValueError, match="holds no documents"):
        DocumentStore(path)
    path.unlink()
    write_documents([Document("a")], path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(ValueError, match="has format 99, this version reads 1"):
        DocumentStore(path)


def test_nothing_can_be_written_through_a_store(store):
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        store._connection.execute("DELETE FROM documents")


def test_a_field_is_searched_for_a_text_not_a_pattern(store):
    assert store.matching("title", "title 12") == ["d0012", *(f"d{i:04}" for i in range(120, 130))]
    assert store.matching("docno", "%") == ["%"]
    assert len(store.matching("url", "example.org/3")) == 43
    assert store.matching("title", "_") == store.matching("title", "\ud800") == []
    with pytest.raises(ValueError, match="expected the field"):
        store.matching("text", "red")


def test_many_threads_ask_at_once(store):
    expected, wrong = store.get(["d0001", "d0200"]), []

    def ask():
        wrong.extend(1 for _ in range(200) if store.get(["d0001", "d0200"]) != expected)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_snippet_shows_the_place_with_most_of_the_querys_words():
    text = "sour " + "filler " * 100 + "the sour fruits are here " + "filler " * 100
    pieces = snippet(text, "a sour fruit", words=10)
    assert [piece for piece, marked in pieces if marked] == ["sour", "fruits"]
    shown = "".join(piece for piece, _ in pieces)
    assert shown.startswith("… ") and shown.endswith(" …") and len(shown.split()) == 12


def test_stop_words_are_marked_only_if_there_is_nothing_else():
    assert [piece for piece, marked in snippet("the cat and the hat", "the cat") if marked] == ["cat"]
    assert [piece for piece, marked in snippet("the cat and the hat", "the") if marked] == ["the", "the"]


def test_without_a_word_of_the_query_the_beginning_is_shown():
    assert snippet("one two three four", "zebra", words=2) == [("one two …", False)]


def test_text_without_spaces_and_of_any_length_stays_short():
    assert len("".join(piece for piece, _ in snippet("漢" * 100_000, "漢", words=5))) <= 5 * 30 + 2
    assert snippet("a" * READ + " needle", "needle", words=3)[0][1] is False


@given(st.text(max_size=300), st.text(max_size=40), st.integers(1, 20))
def test_a_snippet_is_a_part_of_the_text_and_marks_words(text, query, words):
    pieces = snippet(text, query, words)
    flat = " ".join(text.split())
    shown = "".join(piece for piece, _ in pieces)
    inner = shown.removeprefix("… ") if shown.startswith("… ") and not flat.startswith("… ") else shown
    inner = inner.removesuffix(" …") if inner not in flat else inner
    assert inner in flat and bool(pieces) == bool(flat)
    assert all(piece for piece, _ in pieces)
    assert all(not any(c.isspace() for c in piece) for piece, marked in pieces if marked)
