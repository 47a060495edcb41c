"""A collection folder → what is wrong with its files, and what can be read but is probably not meant.

A *problem* is what every reader refuses. A *warning* is a query without text, or a document with the same
title and text as an earlier one: judgements of one of them do not count for the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from gr2.data.collection import Collection
from gr2.data.formats.folder import read_folder
from gr2.data.formats.lines import FormatError, Problems
from gr2.data.formats.records import DocumentFile


@dataclass(frozen=True)
class Checked:
    """What was found; the collection is None if it could not be read to its end."""

    collection: Collection | None
    problems: Problems
    warnings: Problems


def check_folder(folder: Path, *, most: int, progress: bool = False) -> Checked:
    """Read a whole folder and keep up to `most` problems, and as many warnings."""
    problems, warnings = Problems(most), Problems(most)
    try:
        found = read_folder(folder, problems, progress=progress)
    except FormatError as error:  # what follows this problem in the file cannot be read at all
        problems(error.path, error.line, error.message)
        return Checked(None, problems, warnings)
    if not problems.count:
        for path, line, message in _doubtful(found, folder):
            warnings(path, line, message)
    return Checked(found, problems, warnings)


def _doubtful(collection: Collection, folder: Path) -> Iterator[tuple[Path, int, str]]:
    for qid, text in collection.queries.items():
        if not text.strip():
            yield folder, 0, f"query {qid!r} has no text"
    if not isinstance(collection.documents, DocumentFile):
        raise TypeError(f"{folder}: expected the documents of a folder to be a file")
    first: dict[bytes, str] = {}
    for line, document in collection.documents.numbered():
        key = blake2b(document.contents.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        earlier = first.setdefault(key, document.docno)
        if earlier != document.docno and document.contents:
            message = f"document {document.docno!r} has the same title and text as {earlier!r}"
            yield collection.documents.path, line, message
