"""The settings of judging.

Imports nothing heavy: the command line is made from it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gr2.judge.query_list import Order
from gr2.serve.config import RESULTS

System = Literal["model", "bm25", "dense"]


@dataclass(frozen=True, kw_only=True)
class JudgingConfig:
    """What is judged, and by whom."""

    judge: Path | None = None
    """Judge on the page and over HTTP: the folder of judgements, made if it does not exist."""
    queries: Path | None = None
    """Queries to judge: topics, a table, or a log: on each line a query, or a query, a tab and a count."""
    order: Order = "file"
    """As the file has them (a log: most frequent first), or first those on which the systems disagree most;
    then every query is asked at startup."""
    judge_as: str = ""
    """The judge's name that the page proposes; by default the page asks for it."""
    pool: tuple[System, ...] = ()
    """Whose results are judged; by default those of the model, BM25 and dense search, if there are such."""
    depth: int = 10
    """How many results of each."""
    grades: int | None = None
    """The highest grade of a new folder of judgements; 4 unless given."""
    words: tuple[str, ...] = ()
    """A word for each grade of a new folder, from 0 on; by default the numbers are shown."""

    def __post_init__(self) -> None:
        """Check the values."""
        others = (self.queries, self.judge_as, self.pool, self.grades, self.words)
        if self.judge is None and any(others):
            raise ValueError(
                "expected a folder of judgements: queries, pool, grades and words go with --judge"
            )
        if not 1 <= self.depth <= RESULTS:
            raise ValueError(f"expected a depth from 1 to {RESULTS}, found {self.depth}")
