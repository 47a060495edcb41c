"""Documents that link to each other → a graded collection for pre-training (paper, § pre-training, GR²P).

A document's query is a random sentence of its abstract. The grade of another document depends on its link:

- grade 4: the document itself
- grade 3: its See-also links
- grade 2: links of its first section
- grade 1: links of its other sections

Of each of the grades 3, 2 and 1, a few documents are drawn at random. The draw is seeded with the document's
key, so it does not depend on other documents or on their order. `gr2.data.wikipedia` finds the links in
wikitext; `graded_by_links` takes them from a table.
"""

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gr2.data.collection import Collection, Document
from gr2.data.formats.lines import FormatError, find, is_key
from gr2.data.formats.records import DocumentFile, records
from gr2.extras import extra

ITSELF, SEE_ALSO, FIRST_SECTION, OTHER_SECTIONS = 4, 3, 2, 1
_ENDED = re.compile(r"[.!?…。！？।][\"'”’»)\]]*$")
_HEADING = re.compile(r"^(?:#{1,6}\s|=+[^=\n]+=+[ \t]*$)", re.M)
_WORD = re.compile(r"\w+")

Key = TypeVar("Key", int, str)


@dataclass(frozen=True, kw_only=True)
class GradeConfig:
    """How queries and linked documents are drawn, whatever the source of the links."""

    per_grade: int = 5
    """Maximum number of documents of each of the grades 3, 2 and 1 per query."""  # paper: "several"
    queries: int = 1
    """Maximum number of queries per document: different sentences of its abstract."""
    least_words: int = 4
    """Shorter sentences do not distinguish one document from another."""
    most_words: int = 48
    """Longer ones are usually not sentences but remains of a table or list."""
    language: str = "en"
    """Two-letter code of the texts' language, used to find where sentences end."""
    seed: int = 0
    """Seed for drawing sentences and links."""

    def __post_init__(self) -> None:
        """Refuse values that could not give a single judgement."""
        if self.per_grade < 1 or self.queries < 1 or not 1 <= self.least_words <= self.most_words:
            raise ValueError(
                "per_grade, queries and least_words are at least 1, most_words at least least_words"
            )


@dataclass(frozen=True, kw_only=True)
class LinksConfig(GradeConfig):
    """How a table of links is read."""

    see_also: tuple[str, ...] = ("see_also",)
    """The kinds of link that count as See-also links. If a table has none of them, mutual links (two
    documents that link to each other) are used instead."""
    lead: int = 200
    """Maximum number of words of a first section; also its length in a text without headings."""


class Link(NamedTuple):
    """One row of a links table."""

    source: str
    target: str
    kind: str = ""
    anchor: str = ""


@dataclass
class Tally:
    """Counts that describe a graded collection."""

    documents: int = 0
    queries: int = 0
    pairs: Counter[int] = field(default_factory=Counter)
    """Judgements of each grade."""
    looked_at: int = 0
    """Documents whose links were read: those that may have queries."""
    with_see_also: int = 0
    """Those of them that have See-also links, or the links used instead."""
    called: str = "See-also links"
    """The name of these links in the summary."""
    notes: dict[str, int] = field(default_factory=dict)
    """Other counts of a source."""

    def add(self, queries: int, judged: Mapping[Any, int], *, see_also: bool | None) -> None:
        """Count one document; `see_also` is None if its links were not read."""
        self.documents += 1
        self.looked_at += see_also is not None
        self.with_see_also += bool(see_also)
        self.queries += queries
        for grade in judged.values() if queries else ():
            self.pairs[grade] += queries

    @property
    def share(self) -> float:
        """The share of documents with See-also links among those whose links were read."""
        return self.with_see_also / max(1, self.looked_at)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "documents": self.documents,
            "queries": self.queries,
            "pairs": sum(self.pairs.values()),
            "pairs_per_grade": {str(grade): self.pairs[grade] for grade in (4, 3, 2, 1)},
            "documents_looked_at": self.looked_at,
            "with_see_also": self.with_see_also,
            "share_with_see_also": round(self.share, 4),
            **self.notes,
        }

    def __str__(self) -> str:
        """A few lines for the screen."""
        see_also = f"{self.with_see_also:,} of {self.looked_at:,} documents"
        grades = ", ".join(f"grade {grade}: {self.pairs[grade]:,}" for grade in (4, 3, 2, 1))
        notes = "".join(f"\n{name.replace('_', ' ')}: {count:,}" for name, count in self.notes.items())
        return (
            f"{self.documents:,} documents, {self.queries:,} queries, {sum(self.pairs.values()):,} pairs\n"
            f"{grades}\n{see_also} ({self.share:.0%}) with {self.called}{notes}"
        )


def segmented(text: str, language: str = "en") -> list[str]:
    """Split each line into sentences by the rules of its language, with sentencex (extra `wikipedia`).

    Queries have to be whole sentences, so abbreviations and other languages must be handled;
    `gr2.text.sentences` is a simple rule without this dependency, where a rough split is enough.
    """
    with extra("wikipedia", "finding sentences needs sentencex"):
        from sentencex import segment  # type: ignore[import-not-found,import-untyped,unused-ignore]
    return [
        sentence.strip()
        for paragraph in text.splitlines()
        for sentence in segment(language, paragraph.strip())
    ]


def ask(key: str, abstract: str, config: GradeConfig) -> list[str]:
    """The queries of a document: random sentences of its abstract; none without a complete sentence."""
    able = [
        sentence
        for sentence in segmented(abstract, config.language)
        if _ENDED.search(sentence) and config.least_words <= len(sentence.split()) <= config.most_words
    ]
    able = list(dict.fromkeys(able))
    return random.Random(f"{config.seed} query {key}").sample(able, min(config.queries, len(able)))


def draw(key: str, own: Key, linked: Mapping[int, Iterable[Key]], config: GradeConfig) -> dict[Key, int]:
    """Judgements for a document's queries: itself and a few of each grade; of two grades the higher counts.

    >>> draw("Apple", "apple", {3: ["pear"], 1: ["pear", "tree", "apple"]}, GradeConfig())
    {'apple': 4, 'pear': 3, 'tree': 1}
    """
    judged, known = {own: ITSELF}, {own}
    for grade in (SEE_ALSO, FIRST_SECTION, OTHER_SECTIONS):
        fresh = sorted(set(linked.get(grade, ())) - known)
        chosen = random.Random(f"{config.seed} grade {grade} {key}").sample(
            fresh, min(config.per_grade, len(fresh))
        )
        judged.update(dict.fromkeys(chosen, grade))
        known.update(fresh)
    return judged


def graded_by_links(
    name: str, documents: Iterable[Document], links: Iterable[Link], config: LinksConfig | None = None
) -> tuple[Collection, Tally]:
    """Documents (iterated over twice) and their links → a graded collection, and counts that describe it."""
    config = config or LinksConfig()
    titles = {document.docno: document.title or document.docno for document in documents}
    tally = Tally(notes={"links_to_missing_documents": 0})
    table: dict[str, list[Link]] = {}
    for link in links:
        if link.source not in titles or link.target not in titles:
            tally.notes["links_to_missing_documents"] += 1
        elif link.source != link.target:
            table.setdefault(link.source, []).append(link)
    explicit = any(link.kind in config.see_also for row in table.values() for link in row)
    if not explicit:
        tally.called = "mutual links (the table has no See-also links)"
    ends = {docno: frozenset(link.target for link in row) for docno, row in table.items()}
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for document in documents:
        docno, lead = document.docno, first_section(document.text, config.lead)
        linked: dict[int, list[str]] = {SEE_ALSO: [], FIRST_SECTION: [], OTHER_SECTIONS: []}
        inside = f" {_words(lead)} "
        for link in table.get(docno, ()):
            mutual = not explicit and docno in ends.get(link.target, ())
            anchor = _words(link.anchor or titles[link.target])
            grade = FIRST_SECTION if anchor and f" {anchor} " in inside else OTHER_SECTIONS
            linked[SEE_ALSO if mutual or link.kind in config.see_also else grade].append(link.target)
        judged = draw(docno, docno, linked, config)
        texts = ask(docno, lead, config)
        for number, text in enumerate(texts, start=1):
            queries[f"{docno}-{number}"] = text
            qrels[f"{docno}-{number}"] = judged
        tally.add(len(texts), judged, see_also=bool(linked[SEE_ALSO]))
    return Collection(name=name, documents=documents, queries=queries, qrels={"train": qrels}), tally


def first_section(text: str, most: int) -> str:
    r"""The text before its first heading (`## ...` or `== ... ==`), cut after `most` words.

    >>> first_section("An apple. A fruit.\n## Trees\nThey grow.", 3)
    'An apple. A'
    """
    heading = _HEADING.search(text)
    lead = text[: heading.start()] if heading else text
    kept: list[str] = []
    for line in lead.splitlines():
        words = line.split()[:most]
        most -= len(words)
        kept.append(" ".join(words))
        if not most:
            break
    return "\n".join(kept).strip()


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text.replace("_", " "))).lower()


def read_links(path: Path) -> Iterator[Link]:
    """The links of a .tsv or .jsonl table (plain or .gz): source and target, optionally kind and anchor."""
    for line, record in records(path):
        values = [record.get(name, "") for name in Link._fields]
        if not all(isinstance(value, str) for value in values) or not all(map(is_key, values[:2])):
            raise FormatError(
                path, line, "expected the fields source and target (docnos), optionally kind and anchor"
            )
        yield Link(*values)


def read_linked_folder(folder: Path, config: LinksConfig | None = None) -> tuple[Collection, Tally]:
    """A folder with corpus.jsonl and links.tsv (each may be .gz) as a graded collection."""
    corpus, table = find(folder, "corpus.jsonl", "corpus.tsv"), find(folder, "links.tsv", "links.jsonl")
    if corpus is None or table is None:
        missing = "corpus.jsonl (or .tsv)" if corpus is None else "links.tsv (or .jsonl)"
        raise FormatError(folder, 0, f"expected {missing}, plain or .gz, in this folder")
    return graded_by_links(folder.resolve().name, DocumentFile(corpus), read_links(table), config)
