"""Run files and a collection → the page that `gr2 evaluate` prints.

All judged queries come first; if there is a train split, seen and unseen queries follow separately, because a
system may rank seen ones well from memory (see `leaks`). A run of another collection or split is an error; a
note warns if a part of it seems to be.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
PAIRS_SHOWN = 5
"""Excluded pairs that match nothing and are named."""


@dataclass(frozen=True)
class Page:
    """What is printed, and the notes that its style has no place for: CSV has rows alone."""

    text: str
    notes: tuple[str, ...] = ()


def report(
    collection: Collection, paths: Sequence[Path], config: EvaluateConfig, style: Style = "text"
) -> Page:
    """Measure the runs and format the figures; a run that answers no query of the split is an error."""
    if not paths:
        raise ValueError("expected at least one run file")
    excluded = read_pairs(config.exclude)
    names = _names(paths)
    runs = [Run(Run.read(path).rankings, name) for path, name in zip(paths, names, strict=True)]
    for path, run in zip(paths, runs, strict=True):
        _check_belongs(path, run, collection, config.split)
    baseline = names[list(paths).index(config.baseline)] if config.baseline else None
    groups = compare_groups(collection, [run.without(excluded) for run in runs], config, excluded, baseline)
    notes = [note for run in runs for note in doubts(run, collection, config.split)]
    notes += _notes_on_queries(collection, config.split, excluded)
    if config.exclude:
        notes += _notes_on_excluded(collection, config.split, excluded, config.exclude)
    head = _head(collection, groups["all"], config, baseline)
    if style == "json":
        about = {"collection": collection.name, "fingerprint": collection.fingerprint, "split": config.split}
        content = about | {"notes": notes} | {group: c.to_json() for group, c in groups.items()}
        return Page(json.dumps(content, indent=1, sort_keys=True))
    if style == "csv":
        return Page(_csv(groups), (*head, *(f"note: {note}" for note in notes)))
    return Page(_tables(groups, [*head, *(f"note: {note}" for note in notes)], style))


def _tables(groups: dict[str, Comparison], head: list[str], style: Literal["text", "markdown"]) -> str:
    # Two spaces keep Markdown from joining the lines.
    lines = [f"{line}  " for line in head] if style == "markdown" else list(head)
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
    """Signs that a part of a run belongs to another collection or split."""
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


def _check_belongs(path: Path, run: Run, collection: Collection, split: str) -> None:
    """Refuse a run without results, or whose queries or documents are all foreign: its figures would be 0."""
    if not any(run.rankings.values()):
        raise ValueError(f"{path}: this run has no results")
    answered = [qid for qid in collection.split(split) if run.docnos(qid)]
    if not answered:
        raise ValueError(
            f"{path}: answers none of the {len(collection.split(split)):,} queries of {collection.name}, "
            f"split {split}; its first query is {next(iter(run.rankings))!r}"
        )
    if not any(docno in collection.docnos for qid in answered for docno in run.docnos(qid)):
        raise ValueError(
            f"{path}: returns no document of {collection.name}; its first one is "
            f"{run.docnos(answered[0])[0]!r}"
        )


def _notes_on_queries(collection: Collection, split: str, excluded: Pairs) -> list[str]:
    judged = without_pairs(collection.split(split), excluded)
    nothing = sum(not any(grade > 0 for grade in row.values()) for row in judged.values())
    if not nothing:
        return []
    return [
        f"queries without a relevant document: {nothing:,} of {len(judged):,}; they count as 0, and are "
        "neither seen nor unseen"
    ]


def _notes_on_excluded(collection: Collection, split: str, excluded: Pairs, path: Path) -> list[str]:
    """How many pairs name a query of the split and a document of the collection, and which do not."""
    pairs = [(qid, docno) for qid, docnos in excluded.items() for docno in sorted(docnos)]
    judged = collection.split(split)
    unknown = [pair for pair in pairs if pair[0] not in judged or pair[1] not in collection.docnos]
    notes = [f"query-document pairs of {path.name} that are left out: {len(pairs) - len(unknown):,}"]
    if unknown:
        shown = ", ".join(" ".join(pair) for pair in unknown[:PAIRS_SHOWN])
        more = f" and {len(unknown) - PAIRS_SHOWN:,} more" if len(unknown) > PAIRS_SHOWN else ""
        notes.append(
            f"pairs of {path.name} with no query of the split {split} or no document: {len(unknown):,} "
            f"({shown}{more})"
        )
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
    header = ["queries", "letter", "system", "measure", "mean", "better_than", "gain", "max_grade"]
    rows = [
        [group, comparison.letter(e.name), e.name, measure, f"{mean:.6f}", comparison.beaten(e.name, measure)]
        + [e.convention.gain, str(e.convention.max_grade)]
        for group, comparison in groups.items()
        for e in comparison.evaluations
        for measure, mean in e.means.items()
    ]
    return render(header, rows, "csv")
