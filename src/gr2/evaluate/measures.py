"""A run and judgements → measures per query.

Computed with ir_measures; all its measure names work, and so do the paper's (MRR@k is RR@k, Hits@k is
Success@k). ERR is our own, because the only provider is a Perl script that takes numeric query ids alone. The
gain of nDCG and the maximal grade of ERR are stated with every figure. A judged query that a run does not
answer counts as 0.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gr2.data.collection import Qrels
from gr2.data.runs import Run
from gr2.evaluate.config import GAIN, Gain

GRADED = ("nDCG@5", "nDCG@20", "P@20", "ERR@20")
BINARY = ("MRR@3", "MRR@20", "Hits@1", "Hits@10")
PAPER = GRADED + BINARY
ALIASES = {"MRR": "RR", "Hits": "Success"}
CUTOFF = re.compile(r"[1-9][0-9]*")
ERR = re.compile(rf"ERR(?:@({CUTOFF.pattern}))?")


@dataclass(frozen=True, kw_only=True)
class Convention:
    """The choices that must be equal for two figures to be comparable."""

    gain: Gain = GAIN
    """nDCG's gain of grade g: exponential is gdeval's 2^g − 1, linear is trec_eval's g."""
    max_grade: int = 4
    """The grade at which ERR's user is almost surely satisfied; 4 is gdeval's."""

    @classmethod
    def for_grades(cls, highest: int, *, gain: Gain = GAIN) -> "Convention":
        """The convention for judgements up to a highest grade: gdeval's maximum of 4, or more if needed.

        >>> Convention.for_grades(3).max_grade, Convention.for_grades(5).max_grade
        (4, 5)
        """
        return cls(gain=gain, max_grade=max(4, highest))

    def __str__(self) -> str:
        """As printed above a table."""
        gain = "2^g − 1 (gdeval)" if self.gain == "exponential" else "g (trec_eval)"
        return f"nDCG gain {gain}, ERR maximal grade {self.max_grade}"


@dataclass(frozen=True)
class Evaluation:
    """The figures of one run: measure → qid → value, over every judged query."""

    name: str
    values: Mapping[str, Mapping[str, float]]
    convention: Convention = field(default_factory=Convention)

    @cached_property
    def means(self) -> dict[str, float]:
        """Measure → mean over the queries."""
        return {measure: sum(row.values()) / len(row) for measure, row in self.values.items()}

    def only(self, qids: Collection[str]) -> "Evaluation":
        """The same evaluation over some of the queries."""
        values = {
            measure: {qid: value for qid, value in row.items() if qid in qids}
            for measure, row in self.values.items()
        }
        return Evaluation(self.name, values, self.convention)


def without_pairs(qrels: Qrels, excluded: Mapping[str, Collection[str]]) -> dict[str, dict[str, int]]:
    """Judgements without excluded query-document pairs; `Run.without` does the same for a run.

    >>> without_pairs({"q1": {"d1": 1, "d2": 2}}, {"q1": {"d1"}})
    {'q1': {'d2': 2}}
    """
    return {
        qid: {docno: grade for docno, grade in judged.items() if docno not in excluded.get(qid, ())}
        for qid, judged in qrels.items()
    }


def evaluate(
    run: Run, qrels: Qrels, measures: Sequence[str] = PAPER, convention: Convention | None = None
) -> Evaluation:
    """Measure a run against judgements.

    >>> run = Run.from_dict({"q1": {"d1": 2.0, "d2": 1.0}})
    >>> evaluate(run, {"q1": {"d2": 1}, "q2": {"d1": 1}}, ["MRR@20", "Hits@1"]).means
    {'MRR@20': 0.25, 'Hits@1': 0.0}
    """
    convention = convention or Convention()
    if not qrels:
        raise ValueError("there are no judged queries to measure a run against")
    own = {name: match for name in measures if (match := ERR.fullmatch(name))}
    foreign = {name: _ir_measure(name, qrels, convention) for name in measures if name not in own}
    values = {name: dict.fromkeys(qrels, 0.0) for name in measures}
    for name, match in own.items():
        cutoff = int(match[1]) if match[1] else None
        for qid, judged in qrels.items():
            grades = [judged.get(docno, 0) for docno in run.docnos(qid)]
            values[name][qid] = expected_reciprocal_rank(grades, cutoff, convention.max_grade)
    for name, qid, value in _by_ir_measures(foreign, run, qrels):
        values[name][qid] = value
    return Evaluation(run.name, values, convention)


def expected_reciprocal_rank(grades: Sequence[int], cutoff: int | None = None, max_grade: int = 4) -> float:
    """ERR of a ranking's grades (Chapelle et al. 2009): Σ_r R_r/r Π_{i<r} (1 − R_i), R = (2^g − 1)/2^max.

    >>> expected_reciprocal_rank([4, 0, 2])
    0.94140625
    """
    total, unsatisfied = 0.0, 1.0
    for rank, grade in enumerate(grades[:cutoff], start=1):
        if grade > max_grade:
            raise ValueError(
                f"ERR with maximal grade {max_grade} cannot take grade {grade}; set a higher maximum"
            )
        satisfied = (2**grade - 1) / 2**max_grade
        total += unsatisfied * satisfied / rank
        unsatisfied *= 1 - satisfied
    return total


def _ir_measure(name: str, qrels: Qrels, convention: Convention) -> Any:
    import ir_measures

    stem, at, rest = name.partition("@")
    if at and not CUTOFF.fullmatch(rest):
        raise ValueError(f"measure {name!r}: expected a whole number of at least 1 after the @")
    try:
        measure = ir_measures.parse_measure(ALIASES.get(stem, stem) + at + rest)
    except (NameError, ValueError, SyntaxError, KeyError) as error:
        raise ValueError(f"unknown measure {name!r}; expected one such as {', '.join(PAPER)}") from error
    if stem == "nDCG" and convention.gain == "exponential":
        top = max((grade for judged in qrels.values() for grade in judged.values()), default=0)
        if top > 20:
            raise ValueError(f"the exponential gain cannot take grade {top}; use gain='linear'")
        gains = {grade: 2**grade - 1 for grade in range(top + 1)}
        measure = ir_measures.nDCG(gains=gains, **measure.params)
    return measure


def _by_ir_measures(measures: Mapping[str, Any], run: Run, qrels: Qrels) -> Iterator[tuple[str, str, float]]:
    import ir_measures

    # The score is minus the rank, so that no evaluator's float width or tie rule can change our order.
    ranked = {qid: {docno: -float(rank) for rank, docno in enumerate(run.docnos(qid))} for qid in qrels}
    answered = {qid: row for qid, row in ranked.items() if row}
    if measures and answered:
        judged = {qid: dict(row) for qid, row in qrels.items()}
        for metric in ir_measures.iter_calc(set(measures.values()), judged, answered):
            for name in (name for name, measure in measures.items() if measure == metric.measure):
                yield name, metric.query_id, float(metric.value)
