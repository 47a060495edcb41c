"""Documents → one SQLite file to look them up in; a text and a query → a snippet with marked words.

A model stores docids, not texts, so the titles and snippets of results are read from `documents.sqlite` in
the model's folder. Documents are sorted by docno, so the same documents always give the same bytes.
"""

import re
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Literal

from gr2.data.collection import Document
from gr2.store import atomic_file
from gr2.text import WORD
from gr2.text import words as stems_of

NAME = "documents.sqlite"
"""The file's name in a model's folder."""
KIND, FORMAT = 0x47523244, 1  # SQLite's application_id ("GR2D") and user_version
# The text is the last column, so that a search in the other columns does not read it.
TABLE = "CREATE TABLE documents (docno TEXT PRIMARY KEY, title TEXT, url TEXT, text TEXT)"
INSERT = "INSERT INTO unsorted.documents VALUES (?, ?, ?, ?)"
SORT = "INSERT INTO main.documents SELECT * FROM unsorted.documents ORDER BY docno"
SELECT = "SELECT docno, title, text, url FROM documents"
AT_ONCE = 500  # docnos per statement; SQLite accepts at least 999
READ = 20_000  # characters of a text that are searched for a snippet
PIECE = re.compile(r"\S{1,30}")  # a word of a snippet; text without spaces is cut into pieces

Field = Literal["docno", "title", "url"]
Snippet = list[tuple[str, bool]]
"""Pieces of text, each with whether it is a word of the query."""


class DocumentStore:
    """The documents of a collection by docno, read from one file; safe for use by many threads."""

    def __init__(self, path: Path) -> None:
        """Open a file that `write_documents` wrote; any other file raises a ValueError."""
        self.path = path
        self._lock = Lock()
        self._connection = _opened(path)
        (self._count,) = self._connection.execute("SELECT count(*) FROM documents").fetchone()

    def __len__(self) -> int:
        """The number of documents."""
        return int(self._count)

    def __iter__(self) -> Iterator[Document]:
        """Stream all documents in the order of their docnos."""
        with closing(_opened(self.path)) as connection:
            for row in connection.execute(f"{SELECT} ORDER BY docno"):
                yield Document(*row)

    def get(self, docnos: Iterable[str]) -> dict[str, Document]:
        """Docno → document; unknown docnos are left out."""
        wanted, found = [docno for docno in docnos if _writable(docno)], {}
        for start in range(0, len(wanted), AT_ONCE):
            part = wanted[start : start + AT_ONCE]
            places = ", ".join("?" * len(part))
            for row in self._rows(f"{SELECT} WHERE docno IN ({places})", part):
                found[row[0]] = Document(*row)
        return found

    def matching(self, field: Field, text: str) -> list[str]:
        """The sorted docnos whose field contains the text; case is ignored for A-Z."""
        if field not in ("docno", "title", "url"):
            raise ValueError(f"expected the field docno, title or url, found {field!r}")
        if not _writable(text):
            return []
        command = f"SELECT docno FROM documents WHERE instr(lower({field}), lower(?)) ORDER BY docno"
        return [row[0] for row in self._rows(command, [text])]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _rows(self, command: str, values: Sequence[str]) -> list[tuple[str, ...]]:
        with self._lock:
            return self._connection.execute(command, values).fetchall()


def write_documents(documents: Iterable[Document], path: Path) -> int:
    """Write documents as one file, atomically; returns how many there are.

    The documents are streamed. A lone surrogate (half a character, found in some JSON) in a title, text or
    url becomes U+FFFD; in a docno it is an error, as is a repeated docno.
    """
    hidden = f".{path.name}."  # what a killed writer leaves must not look like the user's
    with (
        atomic_file(path) as temporary,
        tempfile.TemporaryDirectory(prefix=hidden, dir=temporary.parent) as beside,
    ):
        with closing(_fresh(temporary)) as connection:
            connection.execute("ATTACH ? AS unsorted", (f"{beside}/documents",))
            connection.execute("PRAGMA unsorted.synchronous = OFF")
            connection.execute("BEGIN")
            connection.execute(TABLE.replace("documents", "unsorted.documents"))
            _fill(connection, documents)
            connection.execute(TABLE)
            connection.execute(SORT)
            (count,) = connection.execute("SELECT count(*) FROM main.documents").fetchone()
            connection.execute("COMMIT")
    return int(count)


def snippet(text: str, query: str, words: int = 30) -> Snippet:
    """The part of a text, of `words` words, that contains most of the query's words, with these marked.

    Words are compared by their stems; stop words count only if the query has no other words.

    >>> snippet("All cats purr. A purring cat is a happy cat.", "why does my cat purr", words=4)
    [('All ', False), ('cats', True), (' ', False), ('purr', True), ('. A …', False)]
    >>> snippet("", "cat")
    []
    """
    flat = " ".join(text[:READ].split())
    places = [match.span() for match in PIECE.finditer(flat)]
    if not places:
        return []
    marks = _marks(flat, query)
    first = _best_window(places, marks, words)
    last = min(first + words, len(places)) - 1
    start, end = places[first][0], places[last][1]
    inside = [(a, b) for a, b, _ in marks if start <= a and b <= end]
    cuts = [start, *(cut for mark in inside for cut in mark), end]
    marked = set(inside)
    pieces = [(flat[a:b], (a, b) in marked) for a, b in pairwise(cuts) if a < b]
    before = [("… ", False)] if start > 0 else []
    after = [(" …", False)] if end < len(flat) or len(text) > READ else []
    return _joined([*before, *pieces, *after])


def _marks(text: str, query: str) -> list[tuple[int, int, str]]:
    """The places of the query's words in a text, with the stem of each."""
    wanted = set(stems_of(query))
    wanted = wanted - _stop_words() or wanted
    places = [match.span() for match in WORD.finditer(text)]
    stems = stems_of(" ".join(text[a:b] for a, b in places))
    if len(stems) != len(places):  # lower-casing can split a word in two, as with İ
        stems = [" ".join(stems_of(text[a:b])) for a, b in places]
    return [(a, b, stem) for (a, b), stem in zip(places, stems, strict=True) if stem in wanted]


def _best_window(places: list[tuple[int, int]], marks: list[tuple[int, int, str]], size: int) -> int:
    """Where to start a window of `size` words with the most distinct stems, its marks centred."""
    starts = [a for a, _ in places]
    at, word = [], 0  # the word in which each mark starts
    for a, _, _ in marks:
        while word + 1 < len(starts) and starts[word + 1] <= a:
            word += 1
        at.append(word)
    best, chosen = (0, 0), (0, 0)
    low = 0
    counts: dict[str, int] = {}
    for high, (_, _, stem) in enumerate(marks):
        counts[stem] = counts.get(stem, 0) + 1
        while at[high] - at[low] >= size:
            gone = marks[low][2]
            counts[gone] -= 1
            if not counts[gone]:
                del counts[gone]
            low += 1
        if (len(counts), high - low) > best:
            best, chosen = (len(counts), high - low), (at[low], at[high])
    slack = size - (chosen[1] - chosen[0] + 1)
    return max(0, min(chosen[0] - slack // 2, len(places) - size))


def _joined(pieces: Snippet) -> Snippet:
    """Merge neighbouring pieces that are not marked."""
    joined: Snippet = []
    for piece, mark in pieces:
        if joined and joined[-1][1] == mark and not mark:
            joined[-1] = (joined[-1][0] + piece, mark)
        else:
            joined.append((piece, mark))
    return joined


@cache
def _stop_words() -> frozenset[str]:
    from bm25s.stopwords import STOPWORDS_EN

    return frozenset(stems_of(" ".join(STOPWORDS_EN)))


def _fresh(path: Path) -> sqlite3.Connection:
    """A new database; no journal is needed, because after a crash the temporary file is discarded."""
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in ("page_size = 4096", "encoding = 'UTF-8'", "journal_mode = OFF", "synchronous = OFF"):
        connection.execute(f"PRAGMA {setting}")
    connection.execute("PRAGMA secure_delete = ON")  # deleted content leaves no trace in the bytes
    connection.execute(f"PRAGMA application_id = {KIND}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    return connection


def _opened(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(address, uri=True, check_same_thread=False)
    try:
        (kind,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if kind == KIND and version == FORMAT:
            return connection
        problem = (
            f"has format {version}, this version reads {FORMAT}" if kind == KIND else "holds no documents"
        )
    except sqlite3.DatabaseError as error:
        problem = f"cannot be read: {error}"
    connection.close()
    raise ValueError(f"{path}: {problem}")


def _fill(connection: sqlite3.Connection, documents: Iterable[Document]) -> None:
    """Insert the documents in the order they come."""
    newest = ""

    def rows() -> Iterator[tuple[str, str, str, str]]:
        nonlocal newest
        for document in documents:
            newest = document.docno
            yield _row(document)

    try:
        connection.executemany(INSERT, rows())
    except sqlite3.IntegrityError as error:
        raise ValueError(f"two documents have the docno {newest!r}") from error


def _row(document: Document) -> tuple[str, str, str, str]:
    if not _writable(document.docno):
        raise ValueError(f"the docno {document.docno!r} has half a character (a lone surrogate)")
    title, url, text = (
        value if _writable(value) else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for value in (document.title, document.url, document.text)
    )
    return document.docno, title, url, text


def _writable(text: str) -> bool:
    """Whether a text can be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
