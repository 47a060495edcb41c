"""Natural Questions' simplified JSONL → NQ320K: pages as documents, questions as queries.

Each line is a question with the page that answers it, as whitespace-separated tokens and HTML tags. A page
becomes a document: its heading is the title, and its first paragraph moves to the front of the text. Pages
are de-duplicated by title. Published counts of NQ320K differ, so compare the collection's fingerprint.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection, Document
from gr2.data.formats.lines import FormatError, is_key
from gr2.data.formats.records import records

HEADING = re.compile(r"<H1>(.*?)</H1>", re.DOTALL)
PARAGRAPH = re.compile(r"<P>(.*?)</P>", re.DOTALL)
SITE = re.compile(" - wikipedia", re.IGNORECASE)
TAG = re.compile(r"</?[A-Z][A-Za-z0-9]*(?:\s[^<>]*)?>")
FIELDS = {"example_id": (int, str), "question_text": (str,), "document_text": (str,)}


@dataclass(frozen=True)
class Pages:
    """The distinct pages of some files; each iteration streams them again."""

    paths: tuple[Path, ...]

    def __iter__(self) -> Iterator[Document]:
        """Yield each page at its first occurrence."""
        seen: set[str] = set()
        for path in self.paths:
            for _, _, page in _examples(path):
                if page.docno not in seen:
                    seen.add(page.docno)
                    yield page


def read_natural_questions(files: Mapping[str, Path]) -> Collection:
    """A collection from one simplified JSONL file per split, e.g. train and test (NQ's dev file)."""
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, dict[str, int]]] = {split: {} for split in files}
    for split, path in files.items():
        for line, record, page in _examples(path):
            qid = str(record["example_id"])
            if qid in queries:
                raise FormatError(path, line, f"example_id {qid} occurs twice")
            queries[qid] = record["question_text"]
            qrels[split][qid] = {page.docno: 1}
    return Collection(name="nq320k", documents=Pages(tuple(files.values())), queries=queries, qrels=qrels)


def page_of(record: Mapping[str, Any]) -> Document:
    """The page of an example.

    >>> page_of({"document_text": "A <H1> Cat </H1> <Table> x </Table> <P> Cats purr . </P> <P> More </P>"})
    Document(docno='Cat', title='Cat', text='Cats purr . A x More', url='')
    """
    tokens = record["document_text"]
    heading, paragraph = HEADING.search(tokens), PARAGRAPH.search(tokens)
    title = (heading and _clean(heading[1])) or _clean(SITE.split(tokens, 1)[0])[:200]
    rest = HEADING.sub(" ", tokens, count=1)
    rest = PARAGRAPH.sub(" ", rest, count=1)
    text = f"{_clean(paragraph[1]) if paragraph else ''} {_clean(rest)}".strip()
    docno = "".join(letter for letter in "_".join(title.split()) if letter.isprintable())
    return Document(docno, title, text, str(record.get("document_url") or ""))


def _examples(path: Path) -> Iterator[tuple[int, Mapping[str, Any], Document]]:
    for line, record in records(path):
        for name, kinds in FIELDS.items():
            if not isinstance(record.get(name), kinds):
                raise FormatError(path, line, f"expected NQ's simplified format with the field {name!r}")
        if not is_key(str(record["example_id"])):
            raise FormatError(path, line, "expected 'example_id' to be a key without white space")
        page = page_of(record)
        if not page.docno:
            raise FormatError(path, line, "expected a page with a heading <H1> or a text")
        yield line, record, page


def _clean(tokens: str) -> str:
    return " ".join(TAG.sub(" ", tokens).split())
