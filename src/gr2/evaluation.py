"""Run files and a collection → the page that `gr2 evaluate` prints.

All judged queries first; then, where there is a train split, those whose relevant documents it has seen
apart from those it has not, because a system may rank the first kind well by remembering.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gr2.compare import Comparison, Test, compare
from gr2.data import Collection, Qrels
from gr2.formats.lines import FormatError, text_lines
from gr2.info import headline
from gr2.leaks import memory, seen_and_unseen
from gr2.measures import PAPER, Convention, Gain, evaluate
from gr2.runs import Run
from gr2.tables import comparison_table, render

Style = Literal["text", "markdown", "csv", "json"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to measure, and how."""

    split: str = "test"
    measures: Sequence[str] = ()
    baseline: Path | None = None
    exclude: Path | None = None
    gain: Gain = "linear"
    max_grade: int = 4
    test: Test = "t"


def report(collection: Collection, paths: Sequence[Path], request: Request, style: Style = "text") -> str:
    """Measure the runs and lay the figures out."""
    if not paths:
        raise ValueError("expected at least one run file")
    groups = dict(compare_groups(collection, paths, request))
    if style == "json":
        content = {
            "collection": collection.name,
            "fingerprint": collection.fingerprint,
            "split": request.split,
        }
        return json.dumps(
            content | {group: c.to_json() for group, c in groups.items()}, indent=1, sort_keys=True
        )
    if style == "csv":
        return _csv(groups)
    whole = groups["all"]
    test = "t-test" if request.test == "t" else "permutation test"
    lines = [headline(collection), f"split {request.split}; {whole.evaluations[0].convention}"]
    if len(paths) > 1:
        lines.append(
            f"letters: significantly better than that system (paired {test}, Holm, p ≤ {whole.level})"
        )
    for group, comparison in groups.items():
        count = len(next(iter(comparison.evaluations[0].values.values())))
        lines += ["", f"{group} queries ({count:,})", comparison_table(comparison, style)]
    return "\n".join(lines)


def compare_groups(
    collection: Collection, paths: Sequence[Path], request: Request
) -> Iterator[tuple[str, Comparison]]:
    """Yield the comparison over all queries, then over seen and unseen ones if there are both."""
    qrels, excluded = collection.split(request.split), read_pairs(request.exclude)
    judged = {
        qid: {d: g for d, g in row.items() if d not in excluded.get(qid, ())} for qid, row in qrels.items()
    }
    convention = Convention(gain=request.gain, max_grade=request.max_grade)
    evaluations = [
        evaluate(Run(run.rankings, name), judged, request.measures or PAPER, convention)
        for run, name in zip(_runs(paths, excluded), _names(paths), strict=True)
    ]
    baseline = _names(paths)[list(paths).index(request.baseline)] if request.baseline else None
    for group, qids in _groups(collection, request.split, judged).items():
        part = [evaluation.only(qids) for evaluation in evaluations]
        yield group, compare(part, baseline=baseline, test=request.test)


def _groups(collection: Collection, split: str, qrels: Qrels) -> dict[str, set[str]]:
    if split == "train" or "train" not in collection.qrels:
        return {"all": set(qrels)}
    return seen_and_unseen(memory(collection.split("train"), qrels))


def _runs(paths: Sequence[Path], excluded: dict[str, set[str]]) -> Iterator[Run]:
    return (Run.read(path).without(excluded) for path in paths)


def _names(paths: Sequence[Path]) -> list[str]:
    """File names without their ending; whole paths where those are not distinct."""
    stems = [path.name.removesuffix(".gz").rsplit(".", 1)[0] for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]


def read_pairs(path: Path | None) -> dict[str, set[str]]:
    """Read `qid docno` lines: documents to leave out of a query's ranking and judgements."""
    pairs: dict[str, set[str]] = {}
    for line, text in text_lines(path) if path is not None else ():
        cells = text.split()
        if len(cells) != 2:
            raise FormatError(path or Path(), line, f"expected `qid docno`, found {len(cells)} columns")
        pairs.setdefault(cells[0], set()).add(cells[1])
    return pairs


def _csv(groups: dict[str, Comparison]) -> str:
    header = ["queries", "letter", "system", "measure", "mean", "better_than"]
    rows = [
        [group, comparison.letter(e.name), e.name, measure, f"{mean:.6f}", comparison.beaten(e.name, measure)]
        for group, comparison in groups.items()
        for e in comparison.evaluations
        for measure, mean in e.means.items()
    ]
    return render(header, rows, "csv")
