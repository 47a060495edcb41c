"""Run files and a collection → the page that `gr2 evaluate` prints.

All judged queries first; then, where there is a train split, those whose relevant documents it has seen apart
from those it has not, because a system may rank the first kind well by remembering. What looks like a run of
another collection or split is said, since its figures would look like any others.
"""

import json
from collections.abc import Mapping, Sequence
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
Pairs = Mapping[str, set[str]]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to measure, and how."""

    split: str = "test"
    measures: Sequence[str] = ()
    baseline: Path | None = None
    exclude: Path | None = None
    gain: Gain = "linear"
    max_grade: int | None = None
    """ERR's maximal grade; None is gdeval's 4, or the collection's highest if that is more."""
    test: Test = "t"


def report(collection: Collection, paths: Sequence[Path], request: Request, style: Style = "text") -> str:
    """Measure the runs and lay the figures out."""
    if not paths:
        raise ValueError("expected at least one run file")
    excluded = read_pairs(request.exclude)
    names = _names(paths)
    runs = [Run(Run.read(path).rankings, name) for path, name in zip(paths, names, strict=True)]
    baseline = names[list(paths).index(request.baseline)] if request.baseline else None
    groups = compare_groups(collection, [run.without(excluded) for run in runs], request, excluded, baseline)
    notes = [note for run in runs for note in doubts(run, collection, request.split)]
    if request.exclude:
        pairs = sum(map(len, excluded.values()))
        notes.append(f"{pairs:,} query-document pairs of {request.exclude.name} left out")
    if style == "json":
        about = {"collection": collection.name, "fingerprint": collection.fingerprint, "split": request.split}
        content = about | {"notes": notes} | {group: c.to_json() for group, c in groups.items()}
        return json.dumps(content, indent=1, sort_keys=True)
    if style == "csv":
        return _csv(groups)
    lines = [*_head(collection, groups["all"], request, baseline), *(f"note: {note}" for note in notes)]
    if style == "markdown":
        lines = [f"{line}  " for line in lines]  # two spaces keep Markdown from joining the lines
    for group, comparison in groups.items():
        count = len(next(iter(comparison.evaluations[0].values.values())))
        lines += ["", f"{group} queries ({count:,})", *([""] if style == "markdown" else [])]
        lines.append(comparison_table(comparison, style))
    return "\n".join(lines)


def compare_groups(
    collection: Collection, runs: Sequence[Run], request: Request, excluded: Pairs, baseline: str | None
) -> dict[str, Comparison]:
    """The comparison over all queries, and over seen and unseen ones if there are both."""
    qrels = collection.split(request.split)
    judged = {
        qid: {d: g for d, g in row.items() if d not in excluded.get(qid, ())} for qid, row in qrels.items()
    }
    most = max(4, collection.grades) if request.max_grade is None else request.max_grade
    convention = Convention(gain=request.gain, max_grade=most)
    evaluations = [evaluate(run, judged, request.measures or PAPER, convention) for run in runs]
    return {
        group: compare([each.only(qids) for each in evaluations], baseline=baseline, test=request.test)
        for group, qids in _groups(collection, request.split, judged).items()
    }


def doubts(run: Run, collection: Collection, split: str) -> list[str]:
    """What makes a run look as if it belonged to another collection or split."""
    asked = collection.split(split)
    answered = [qid for qid in asked if run.docnos(qid)]
    strange = len({qid for qid in run.rankings if qid not in collection.queries})
    unknown = len({docno for qid in answered for docno in run.docnos(qid) if docno not in collection.docnos})
    notes = []
    if len(answered) < len(asked):
        notes.append(f"{run.name} answers {len(answered):,} of {len(asked):,} queries; the others count as 0")
    if strange:
        notes.append(f"{run.name} answers {strange:,} queries that {collection.name} does not have")
    if unknown:
        notes.append(f"{run.name} returns {unknown:,} documents that {collection.name} does not have")
    return notes


def read_pairs(path: Path | None) -> dict[str, set[str]]:
    """Read `qid docno` lines: documents to leave out of a query's ranking and judgements."""
    pairs: dict[str, set[str]] = {}
    for line, text in text_lines(path) if path is not None else ():
        cells = text.split()
        if len(cells) != 2:
            raise FormatError(path or Path(), line, f"expected `qid docno`, found {len(cells)} columns")
        pairs.setdefault(cells[0], set()).add(cells[1])
    return pairs


def _head(collection: Collection, whole: Comparison, request: Request, baseline: str | None) -> list[str]:
    lines = [headline(collection), f"split {request.split}; {whole.evaluations[0].convention}"]
    if len(whole.evaluations) > 1:
        test = "t-test" if request.test == "t" else "permutation test"
        lines.append(
            f"letters: significantly better than that system (paired {test}, Holm, p ≤ {whole.level})"
        )
        lines += [f"baseline: {baseline}; only differences from it are tested"] if baseline else []
    return lines


def _groups(collection: Collection, split: str, qrels: Qrels) -> dict[str, set[str]]:
    if split == "train" or "train" not in collection.qrels:
        return {"all": set(qrels)}
    return seen_and_unseen(memory(collection.split("train"), qrels))


def _names(paths: Sequence[Path]) -> list[str]:
    """File names without their ending; whole paths where those are not distinct."""
    stems = [path.name.removesuffix(".gz").rsplit(".", 1)[0] for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]


def _csv(groups: dict[str, Comparison]) -> str:
    header = ["queries", "letter", "system", "measure", "mean", "better_than"]
    rows = [
        [group, comparison.letter(e.name), e.name, measure, f"{mean:.6f}", comparison.beaten(e.name, measure)]
        for group, comparison in groups.items()
        for e in comparison.evaluations
        for measure, mean in e.means.items()
    ]
    return render(header, rows, "csv")
