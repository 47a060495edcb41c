"""Movies and judged movie queries (a cut of MSRD) → a collection with splits by a hash of the query.

Movies are JSON lines with title, overview and lists of people. Judgements are a table of query_id, query,
doc_id and grade (0 or 1).
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection, Document
from gr2.data.formats.lines import FormatError
from gr2.data.formats.records import records
from gr2.data.formats.tables import table

LISTED = 10
"""Names of a list that stand in the text of a movie."""
PARTS = {
    "Genres": "genres",
    "Tags": "tags",
    "Director": "director",
    "Cast": "actors",
    "Characters": "characters",
    "Year": "year",
}
"""What stands after the overview of a movie → the field that it is read from."""


def read_movies(documents: Path, judgements: Path, *, held_out: int, seed: int) -> Collection:
    """Queries with a relevant movie: `held_out` of them in `test`, as many in `dev`, the others in `train`.

    `train` has the relevant pairs alone. `train_disjoint` has those training queries that share no relevant
    movie with a test query.
    """
    movies = tuple(_movie(documents, line, record) for line, record in records(documents))
    texts, judged = _judged(judgements, {movie.docno for movie in movies})
    order = sorted(texts, key=lambda qid: sha256(f"{seed}:{qid}".encode()).hexdigest())
    test, dev = order[:held_out], order[held_out : 2 * held_out]
    train = {qid: {docno: g for docno, g in judged[qid].items() if g > 0} for qid in order[2 * held_out :]}
    asked = {docno for qid in test for docno, grade in judged[qid].items() if grade > 0}
    splits = {
        "train": train,
        "train_disjoint": {qid: row for qid, row in train.items() if not row.keys() & asked},
        "dev": {qid: judged[qid] for qid in dev},
        "test": {qid: judged[qid] for qid in test},
    }
    return Collection(name="movies", documents=movies, queries=texts, qrels=splits)


def _movie(path: Path, line: int, record: Mapping[str, Any]) -> Document:
    if "id" not in record or not isinstance(record.get("title"), str):
        raise FormatError(path, line, "expected a movie with id and title")
    parts = [str(record.get("overview") or "")]
    for label, name in PARTS.items():
        value = record.get(name) or ""
        listed = ", ".join(map(str, value[:LISTED])) if isinstance(value, list) else str(value)
        parts += [f"{label}: {listed}."] if listed else []
    return Document(str(record["id"]), record["title"], " ".join(filter(None, parts)))


def _judged(path: Path, known: set[str]) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """The texts and the judgements of the queries for which a known movie is relevant."""
    texts: dict[str, str] = {}
    judged: dict[str, dict[str, int]] = {}
    for line, row in table(path, needs=("query_id", "query", "doc_id", "grade")):
        if row["grade"] not in ("0", "1"):
            raise FormatError(path, line, f"expected a grade of 0 or 1, found {row['grade'][:40]!r}")
        qid = row["query_id"].removeprefix("qid:")
        texts[qid] = row["query"]
        if row["doc_id"] in known:
            judged.setdefault(qid, {})[row["doc_id"]] = int(row["grade"])
    judged = {qid: found for qid, found in judged.items() if any(found.values())}
    return {qid: texts[qid] for qid in judged}, judged
