"""How runs are measured. Imports nothing heavy, because the command line is made from it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Gain = Literal["linear", "exponential"]
Significance = Literal["t", "permutation"]
GAIN: Gain = "exponential"
"""The gain of nDCG wherever none is chosen: that of the paper and of every table of ours."""


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """What to measure, and how."""

    split: str = "test"
    """Whose judgements to measure against."""
    measures: tuple[str, ...] = ()
    """Measures by ir_measures' names or the paper's; by default all of the paper's."""
    baseline: Path | None = None
    """A run to test the others against; without it every pair of runs is tested."""
    exclude: Path | None = None
    """A file of `qid docno` lines, or a table with these columns: documents left out of that query's ranking
    and judgements."""
    gain: Gain = GAIN
    """Gain of nDCG for grade g: exponential is 2^g − 1 (gdeval), linear is g (trec_eval)."""
    max_grade: int | None = None
    """Maximal grade of ERR; by default 4 (gdeval's), or the collection's highest grade if that is more."""
    significance: Significance = "t"
    """Paired test behind the letters: t-test or permutation test; JSON has both."""
