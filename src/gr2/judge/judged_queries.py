"""Queries with graded documents: what a model learns from, read from any place where people keep them.

Queries are told apart by their texts, not by their qids: two files may call the same query by different
qids, and a query that somebody judged twice must never be both learned from and measured on.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from gr2.data.collection import Qrels
from gr2.judge.imports import read_rows
from gr2.judge.judgements import qid_of
from gr2.judge.store import LOG, JudgementStore
from gr2.store import readable, typed, write_text

NAMED = 5
"""Unknown documents that an error names."""


def same_text(text: str) -> str:
    """What two queries have in common if they are the same but for case and white space.

    >>> same_text(" Sour  fruit")
    'sour fruit'
    """
    return " ".join(text.split()).casefold()


@dataclass(frozen=True)
class JudgedQueries:
    """Queries and the grades of documents for them."""

    queries: Mapping[str, str]
    """qid → text; it may have more queries than those that are judged."""
    qrels: Qrels
    """qid → docno → grade; 0 is judged, and not relevant."""

    @classmethod
    def read(cls, path: Path, queries: Path | None = None) -> "JudgedQueries":
        """Read a folder of judgements, a BEIR folder, TREC qrels or Quepid's CSV.

        Args:
            path: the folder or file.
            queries: the texts of the queries of TREC qrels.
        """
        if (path / LOG).is_file():
            store = JudgementStore(path)
            return cls(store.queries(), store.qrels())
        if not path.exists():
            raise ValueError(f"{path}: there is no such folder or file of judgements")
        texts, qrels = dict[str, str](), dict[str, dict[str, int]]()
        for row in read_rows(path, "read", queries):
            judged = row.judgement
            qid = judged.qid or qid_of(judged.query)
            texts[qid] = judged.query
            qrels.setdefault(qid, {})[judged.docno] = judged.grade
        return cls(texts, qrels)

    def check(self, docnos: Collection[str]) -> None:
        """Raise a ValueError if a query has no text, or a document is not among these."""
        if nameless := [qid for qid in self.qrels if not self.queries.get(qid, "").strip()]:
            raise ValueError(f"the query {nameless[0]!r} is judged but has no text")
        unknown = sorted({docno for row in self.qrels.values() for docno in row if docno not in docnos})
        if unknown:
            more = f" and {len(unknown) - NAMED:,} more" if len(unknown) > NAMED else ""
            names = ", ".join(map(repr, unknown[:NAMED]))
            raise ValueError(f"judged documents that the model does not have: {names}{more}")

    def over(self, earlier: "JudgedQueries | None" = None) -> "JudgedQueries":
        """These judgements merged over earlier ones: one query for each text, and the later grade counts.

        >>> old = JudgedQueries({"1": "sour fruit"}, {"1": {"lime": 1, "pear": 2}})
        >>> JudgedQueries({"a": "Sour fruit"}, {"a": {"pear": 0}}).over(old).qrels
        {'a': {'lime': 1, 'pear': 0}}
        """
        rows, named = dict[str, dict[str, int]](), dict[str, tuple[str, str]]()
        for some in filter(None, (earlier, self)):
            for qid, row in some.qrels.items():
                text = some.queries[qid]
                rows.setdefault(same_text(text), {}).update(row)
                named[same_text(text)] = qid, text
        own = set(self.keys())
        texts, qrels = dict[str, str](), dict[str, dict[str, int]]()
        for key in sorted(rows, key=lambda key: key not in own):  # these keep their qids, so they come first
            qid, text = named[key]
            qid = qid_of(text) if qid in texts else qid
            texts[qid], qrels[qid] = text, rows[key]
        return JudgedQueries(texts, qrels)

    def relevant(self) -> "JudgedQueries":
        """The queries that have a relevant document: no others can be learned from or measured on."""
        qrels = {qid: row for qid, row in self.qrels.items() if any(grade > 0 for grade in row.values())}
        return JudgedQueries({qid: self.queries[qid] for qid in qrels}, qrels)

    def without(self, keys: Collection[str]) -> "JudgedQueries":
        """The queries whose `same_text` is not among these."""
        qrels = {qid: row for qid, row in self.qrels.items() if same_text(self.queries[qid]) not in keys}
        return JudgedQueries({qid: self.queries[qid] for qid in qrels}, qrels)

    def keys(self) -> list[str]:
        """The `same_text` of each judged query, in order."""
        return [same_text(self.queries[qid]) for qid in self.qrels]

    def write(self, path: Path) -> None:
        """Write a line of JSON for each judged query, atomically."""
        lines = (
            json.dumps({"qid": qid, "text": self.queries[qid], "grades": dict(row)})
            for qid, row in self.qrels.items()
        )
        write_text(path, "".join(f"{line}\n" for line in lines))

    @classmethod
    def load(cls, path: Path) -> "JudgedQueries":
        """Read what `write` wrote."""
        with readable(path):
            values = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        rows = [typed(value, _Row, f"{path}:{number}") for number, value in enumerate(values, start=1)]
        return cls({row["qid"]: row["text"] for row in rows}, {row["qid"]: row["grades"] for row in rows})


class _Row(TypedDict):
    """A line of what `write` wrote."""

    qid: str
    text: str
    grades: dict[str, int]
