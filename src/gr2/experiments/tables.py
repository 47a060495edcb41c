"""Runs of many trials → evaluations and comparisons: folds merged, seeds averaged, queries grouped.

`gather` averages a system's values over seeds for each query, so that paired tests can be applied.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gr2.data.collection import Collection
from gr2.data.formats.trec import read_pairs
from gr2.data.runs import Ranking, Run
from gr2.evaluate.leaks import Leaks, seen_and_unseen
from gr2.evaluate.measures import Convention, Evaluation, evaluate, without_pairs
from gr2.evaluate.significance import compare
from gr2.experiments.trial import Trial
from gr2.model.backbone import identity, is_own, is_static, makes_vectors
from gr2.model.config import VectorConfig
from gr2.model.document_vectors import keep_vectors, vectors_path
from gr2.model.text_encoder import load_encoder
from gr2.systems import SYSTEMS
from gr2.systems.baselines import DENSE, DEPTH, baselines
from gr2.systems.dense import Dense


def gather(
    collection: Collection,
    rows: Sequence[tuple[str, int, Run]],
    measures: Sequence[str],
    *,
    split: str = "test",
    exclude: Path | None = None,
) -> list[Evaluation]:
    """Runs as (system, seed, run) → one evaluation per system: each query's mean over the seeds.

    The folds of a seed may be separate runs; each judged query must be answered once per seed.
    """
    excluded = read_pairs(exclude)
    qrels = without_pairs(collection.split(split), excluded)
    convention = Convention.for_grades(collection.grades)
    found: dict[str, dict[int, dict[str, Ranking]]] = {}
    for system, seed, run in rows:
        found.setdefault(system, {}).setdefault(seed, {}).update(run.rankings)
    evaluations = []
    for system, seeds in found.items():
        each = [
            evaluate(Run(rankings, system).without(excluded), qrels, measures, convention)
            for rankings in seeds.values()
        ]
        evaluations.append(mean_of(each, system))
    return evaluations


def mean_of(evaluations: Sequence[Evaluation], name: str) -> Evaluation:
    """The mean of several evaluations, query by query."""
    first = evaluations[0]
    values = {
        measure: {qid: float(np.mean([e.values[measure][qid] for e in evaluations])) for qid in row}
        for measure, row in first.values.items()
    }
    return replace(first, name=name, values=values)


def baselines_over_folds(collection: Collection, split: str = "test") -> list[Run]:
    """The runs of all baselines except dense search on the queries of a split, merged over folds if any.

    The controls of a fold use the judgements of the other folds.
    """
    folds = [collection.fold(i) for i in range(len(collection.folds))] or [collection]
    found = []
    for each in baselines(folds[0]):
        parts = folds if SYSTEMS[each.system].uses_judgements else [collection]
        rankings: dict[str, Ranking] = {}
        for part in parts:
            queries = {qid: part.queries[qid] for qid in part.split(split)}
            rankings |= each.run(part, queries, 1000).rankings
        found.append(Run(rankings, each.name))
    return found


def kept_dense_run(
    collection: Collection,
    backbone: str | Path,
    out: Path,
    name: str = DENSE,
    *,
    split: str = "test",
    lead: int = 0,
) -> Run:
    """The run of the untrained encoder on the queries of a split; saved in the folder.

    Encoding the documents is expensive, so all splits but `train` are searched at once, and the vectors are
    saved for the node prior of trials in the same folder. With `lead`, only the leading tokens are encoded.
    """
    how = VectorConfig.leading(lead)
    own = identity(backbone) if is_own(backbone) or is_static(backbone) else Path(backbone).name
    start = f"dense.{own.replace(' ', '.')}.{collection.fingerprint[:12]}"
    start += f".{lead}" if lead else ""
    splits = (set(collection.qrels) - {"train"}) | {split}
    kept = {one: out / f"{start}{'' if one == 'test' else f'.{one}'}.trec" for one in splits}
    if not kept[split].exists():
        index = Dense.index(collection.documents, load_encoder(backbone), how)
        docnos = sorted(document.docno for document in collection.documents)
        keep_vectors(index.vectors, docnos, vectors_path(collection, str(backbone), out, how))
        for one, path in kept.items():
            queries = {qid: collection.queries[qid] for qid in collection.split(one)}
            index.search(queries, DEPTH).write(path)
    return Run(Run.read(kept[split]).rankings, name)


def all_baselines(
    collection: Collection, backbone: str, out: Path, split: str = "test", *, lead: int = 0
) -> list[Run]:
    """BM25 with both settings, the controls, and dense search if the backbone is a text encoder."""
    runs = baselines_over_folds(collection, split)
    if not makes_vectors(backbone):
        return runs
    return [*runs, kept_dense_run(collection, backbone, out, split=split, lead=lead)]


def query_groups(collection: Collection) -> dict[str, set[str]]:
    """The test queries: all of them, and in groups by what training reveals about them."""
    if "train" not in collection.qrels or collection.folds:
        return {"all": set(collection.split("test"))}
    leaks = Leaks(collection, "test")
    found = dict(seen_and_unseen(leaks.train_overlap))
    if leaks.near_twins:
        found["without near-twin"] = found["all"] - set(leaks.near_twins)
    return found


@dataclass(frozen=True)
class Difference:
    """The difference between two systems in one measure, with its p-value and Holm's correction."""

    system: str
    measure: str
    gain: float
    p: float
    holm: float


def differences_from(
    one: str, evaluations: Sequence[Evaluation], measures: Sequence[str]
) -> list[Difference]:
    """Every other system compared with `one`: paired tests over the queries, corrected over the systems."""
    if one not in [e.name for e in evaluations] or len(evaluations) < 2:
        return []
    found = []
    for d in compare(evaluations, baseline=one).differences:
        if d.measure in measures:
            name, gain = (d.other, -d.mean) if d.system == one else (d.system, d.mean)
            found.append(Difference(name, d.measure, gain, d.t, d.t_holm))
    return found


def trial_figures(found: Sequence[tuple[Trial, Path]]) -> dict[str, dict[str, float]]:
    """Cost, memory and agreement of each system: means over seeds and folds."""
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    for trial, folder in found:
        content: Mapping[str, Any] = json.loads((folder / "trial.json").read_text(encoding="utf-8"))
        spent = content["cost"]["cpu_seconds"] or np.nan  # null if interrupted
        minutes = {"minutes": spent / 60, "prior MB": content.get("prior_bytes", 0) / 1e6}
        agreement = content.get("agreement", {})
        known = {n: v for n, v in agreement.items() if not np.isnan(v)}  # NaN for binary grades
        rows[trial.system].append(minutes | {f"τ {name}": value for name, value in known.items()})
    return {
        system: {name: float(np.nanmean([row[name] for row in each])) for name in each[0]}
        | {"runs": len(each)}
        for system, each in rows.items()
    }
