"""Run files and a collection → the page that `gr2 evaluate` prints.

All judged queries come first; if there is a train split, seen and unseen queries follow separately, because a
system may rank seen ones well from memory (see `leaks`). A note warns if a run seems to belong to another
collection or split.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from gr2.data.collection import Collection, Qrels
from gr2.data.formats.trec import read_pairs
from gr2.data.runs import Run
from gr2.evaluate.config import EvaluateConfig
from gr2.evaluate.describe import headline
from gr2.evaluate.leaks import seen_and_unseen, train_overlap
from gr2.evaluate.measures import PAPER, Convention, evaluate, without_pairs
from gr2.evaluate.significance import Comparison, compare
from gr2.evaluate.tables import comparison_table, render

Style = Literal["text", "markdown", "csv", "json"]
Pairs = Mapping[str, set[str]]


def report(
    collection: Collection, paths: Sequence[Path], config: EvaluateConfig, style: Style = "text"
) -> str:
    """Measure the runs and format the figures."""
    if not paths:
        raise ValueError("expected at least one run file")
    excluded = read_pairs(config.exclude)
    names = _names(paths)
    runs = [Run(Run.read(path).rankings, name) for path, name in zip(paths, names, strict=True)]
    baseline = names[list(paths).index(config.baseline)] if config.baseline else None
    groups = compare_groups(collection, [run.without(excluded) for run in runs], config, excluded, baseline)
    notes = [note for run in runs for note in doubts(run, collection, config.split)]
    if config.exclude:
        pairs = sum(map(len, excluded.values()))
        notes.append(f"{pairs:,} query-document pairs of {config.exclude.name} left out")
    if style == "json":
        about = {"collection": collection.name, "fingerprint": collection.fingerprint, "split": config.split}
        content = about | {"notes": notes} | {group: c.to_json() for group, c in groups.items()}
        return json.dumps(content, indent=1, sort_keys=True)
    if style == "csv":
        return _csv(groups)
    lines = [*_head(collection, groups["all"], config, baseline), *(f"note: {note}" for note in notes)]
    if style == "markdown":
        lines = [f"{line}  " for line in lines]  # two spaces keep Markdown from joining the lines
    for group, comparison in groups.items():
        count = len(next(iter(comparison.evaluations[0].values.values())))
        lines += ["", f"{group} queries ({count:,})", *([""] if style == "markdown" else [])]
        lines.append(comparison_table(comparison, style))
    return "\n".join(lines)


def compare_groups(
    collection: Collection, runs: Sequence[Run], config: EvaluateConfig, excluded: Pairs, baseline: str | None
) -> dict[str, Comparison]:
    """The comparison over all queries, and over seen and unseen ones if there are both."""
    judged = without_pairs(collection.split(config.split), excluded)
    if config.max_grade is None:
        convention = Convention.for_grades(collection.grades, gain=config.gain)
    else:
        convention = Convention(gain=config.gain, max_grade=config.max_grade)
    evaluations = [evaluate(run, judged, config.measures or PAPER, convention) for run in runs]
    return {
        group: compare([each.only(qids) for each in evaluations], baseline=baseline, test=config.significance)
        for group, qids in _groups(collection, config.split, judged).items()
    }


def doubts(run: Run, collection: Collection, split: str) -> list[str]:
    """Signs that a run belongs to another collection or split."""
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


def _head(
    collection: Collection, whole: Comparison, config: EvaluateConfig, baseline: str | None
) -> list[str]:
    lines = [headline(collection), f"split {config.split}; {whole.evaluations[0].convention}"]
    if len(whole.evaluations) > 1:
        test = "t-test" if config.significance == "t" else "permutation test"
        lines.append(
            f"letters: significantly better than that system (paired {test}, Holm, p ≤ {whole.level})"
        )
        lines += [f"baseline: {baseline}; only differences from it are tested"] if baseline else []
    return lines


def _groups(collection: Collection, split: str, qrels: Qrels) -> dict[str, set[str]]:
    if split == "train" or "train" not in collection.qrels:
        return {"all": set(qrels)}
    return seen_and_unseen(train_overlap(collection.split("train"), qrels))


def _names(paths: Sequence[Path]) -> list[str]:
    """File names without extensions; full paths if those are not distinct."""
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
