"""The queries that went best and worst, each with what was put first and what should have been."""

from collections.abc import Callable, Mapping

from gr2.data.collection import Collection, Document, Qrels
from gr2.data.documents import snippet
from gr2.data.runs import Run
from gr2.report.layout import Card, Cards, Entry, Section

BEST, WORST = 3, 5
"""Queries that are listed."""
SHOWN = 3
"""Documents that are listed of each."""
WORDS = 24
"""Of a snippet."""
Views = Callable[[str], Mapping[str, Mapping[str, float]]]
"""A query → what each view contributed to the documents found; empty without look-ahead."""


def queries_section(
    collection: Collection,
    qrels: Qrels,
    run: Run,
    values: Mapping[str, float],
    docids: Mapping[str, str],
    views: Views,
) -> Section:
    """The queries with the lowest and the highest nDCG@20; `docids` has the docid of each document."""
    order = sorted(values, key=lambda qid: (values[qid], qid))
    worst = order[: min(WORST, -(-len(order) // 2))]
    best = [qid for qid in reversed(order) if qid not in worst][:BEST]
    first = {qid: list(run.docnos(qid)) for qid in (*worst, *best)}
    ideal = {qid: _ideal(qrels[qid]) for qid in first}
    wanted = {docno for lists in (first, ideal) for row in lists.values() for docno in row[:SHOWN]}
    documents = {each.docno: each for each in collection.documents if each.docno in wanted}

    def card(qid: str) -> Card:
        text, grades = collection.queries[qid], qrels[qid]
        why = views(text)
        ranks = {docno: rank for rank, docno in enumerate(first[qid], 1)}

        def entry(docno: str, note: str) -> Entry:
            document = documents.get(docno, Document(docno, "", ""))
            title = document.title or docids.get(docno) or docno
            parts = [docno if title != docno else "", note]
            shown = snippet(document.text, text, words=WORDS)
            return Entry(
                max(0, grades.get(docno, 0)), title, document.url, shown, " · ".join(filter(None, parts))
            )

        found = [entry(docno, _parts(why.get(docno, {}))) for docno in first[qid][:SHOWN]]
        judged = [entry(docno, _rank(ranks.get(docno), len(ranks))) for docno in ideal[qid][:SHOWN]]
        columns = [("Put first", found), ("Judged best", judged)]
        return Card(text, f"nDCG@20 {values[qid]:.3f}", columns)

    cards = [Cards("The worst", list(map(card, worst)))]
    cards += [Cards("The best", list(map(card, best)))] if best else []
    return Section(
        "Best and worst queries",
        [
            f"By nDCG@20. On the left the first {SHOWN} results, on the right the documents with the highest "
            "grades; the number before a title is its grade, where 0 may also mean that nobody judged it.",
            *cards,
        ],
    )


def _ideal(grades: Mapping[str, int]) -> list[str]:
    """The relevant documents, best first."""
    return sorted((docno for docno, grade in grades.items() if grade > 0), key=lambda d: (-grades[d], d))


def _rank(rank: int | None, depth: int) -> str:
    return f"found at rank {rank}" if rank else f"not among the first {depth}"


def _parts(views: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in views.items() if abs(value) >= 0.05)
