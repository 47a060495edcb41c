"""Ranked results: a `Run` ↔ TREC file, dictionary, or frame in PyTerrier's columns.

Ties are broken as in trec_eval: higher score first, equal scores by docno in descending order. The rule is
applied once, when a run is made. Written scores are strictly decreasing, so every evaluator keeps our order.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gr2.data.formats.trec import read_run
from gr2.extras import extra
from gr2.store import atomic_file

if TYPE_CHECKING:
    import pandas as pd

Ranking = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Run:
    """What a system returned: qid → ((docno, score), ...), best first.

    >>> run = Run.from_dict({"q1": {"d1": 0.5, "d2": 2.0, "d3": 0.5}}, name="toy")
    >>> run.docnos("q1")
    ('d2', 'd3', 'd1')
    >>> print(run.to_trec(), end="")
    q1 Q0 d2 1 2.0 toy
    q1 Q0 d3 2 0.5 toy
    q1 Q0 d1 3 0.49999997 toy
    """

    rankings: Mapping[str, Ranking]
    name: str = "run"

    @classmethod
    def from_dict(cls, scores: Mapping[str, Mapping[str, float]], name: str = "run") -> "Run":
        """A run from `{qid: {docno: score}}`, the form of BEIR and MTEB."""
        rankings: dict[str, Ranking] = {}
        for qid, row in scores.items():
            by_docno = sorted(((docno, float(score)) for docno, score in row.items()), reverse=True)
            rankings[qid] = tuple(sorted(by_docno, key=lambda pair: pair[1], reverse=True))
        return cls(rankings, name)

    @classmethod
    def from_frame(cls, frame: "pd.DataFrame", name: str = "run") -> "Run":
        """A run from a frame with PyTerrier's columns qid, docno and score."""
        missing = {"qid", "docno", "score"} - set(frame.columns)
        if missing:
            raise ValueError(
                f"expected a frame with the columns qid, docno and score; missing: {sorted(missing)}"
            )
        scores: dict[str, dict[str, float]] = {}
        for qid, docno, score in zip(frame["qid"], frame["docno"], frame["score"], strict=True):
            scores.setdefault(str(qid), {})[str(docno)] = float(score)
        return cls.from_dict(scores, name)

    @classmethod
    def read(cls, path: Path) -> "Run":
        """A run from a TREC file, plain or .gz; it is named after the file."""
        return cls.from_dict(read_run(path), name=path.name.removesuffix(".gz").rsplit(".", 1)[0])

    def docnos(self, qid: str) -> tuple[str, ...]:
        """The documents returned for a query, best first; empty if the run does not have the query."""
        return tuple(docno for docno, _ in self.rankings.get(qid, ()))

    def without(self, excluded: Mapping[str, Collection[str]]) -> "Run":
        """The run without excluded query-document pairs, such as the source document of each query."""
        kept = {
            qid: tuple(pair for pair in ranking if pair[0] not in excluded.get(qid, ()))
            for qid, ranking in self.rankings.items()
        }
        return Run(kept, self.name)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """`{qid: {docno: score}}`."""
        return {qid: dict(ranking) for qid, ranking in self.rankings.items()}

    def to_frame(self, queries: Mapping[str, str] | None = None) -> "pd.DataFrame":
        """A frame with PyTerrier's columns qid, query (if given), docno, score and rank (from 0)."""
        with extra("frames", "frames need pandas"):
            import pandas as pd

        rows = [
            (qid, docno, score, rank)
            for qid, ranking in self.rankings.items()
            for rank, (docno, score) in enumerate(ranking)
        ]
        frame = pd.DataFrame(rows, columns=["qid", "docno", "score", "rank"])
        if queries is not None:
            frame.insert(1, "query", frame["qid"].map(queries))
        return frame

    def to_trec(self) -> str:
        """The text of a TREC run file; ranks count from 1."""
        tag = "-".join(self.name.split()) or "run"
        return "".join(
            f"{qid} Q0 {docno} {rank} {score} {tag}\n"
            for qid, ranking in self.rankings.items()
            for rank, (docno, score) in enumerate(_decreasing(ranking), start=1)
        )

    def write(self, path: Path) -> None:
        """Write a TREC run file, whole or not at all."""
        with atomic_file(path) as temporary:
            temporary.write_text(self.to_trec(), encoding="utf-8")


def _decreasing(ranking: Ranking) -> Iterator[tuple[str, str]]:
    """Docnos and scores as text, strictly decreasing even when read as 32-bit floats.

    trec_eval keeps scores in 32 bits: it takes two that differ only beyond that for a tie and would reorder
    them.
    """
    limit, least = np.float32(np.inf), np.float32(-np.inf)
    largest = np.float32(3e38)  # below the largest float, so that scores can still step below it
    for docno, score in ranking:
        value = np.float32(np.clip(score, -largest, largest))
        limit = value if value < limit else np.nextafter(limit, least)
        yield docno, str(limit)
