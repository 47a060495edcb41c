"""A trained model, its collection and its training log → the results of a report; `sections` shows them."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from gr2.data.collection import Collection, Qrels
from gr2.data.runs import Run
from gr2.experiments.geometry import representations
from gr2.extras import extra
from gr2.model.config import SearchConfig
from gr2.model.encoder import Vectors
from gr2.model.gr2 import GR2
from gr2.model.look_ahead import CODEBOOKS, VOCABULARY
from gr2.training.checkpoints import METRICS
from gr2.training.fit import Stage

DEPTH = 20
BINS = 5
Curve = list[tuple[float, float]]


def loss_curves(training: Path, points: int = 60) -> dict[str, Curve]:
    """The terms of the loss over the steps of all stages, as means of intervals; empty without a log."""
    rows: list[dict[str, float]] = []
    for stage in Stage:
        path = training / stage.value / METRICS
        if path.is_file():
            before = rows[-1]["step"] if rows else 0
            found = map(json.loads, path.read_text(encoding="utf-8").splitlines())
            rows += [{**row, "step": row["step"] + before} for row in found]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("step", "validation"))
    curves: dict[str, Curve] = {}
    for name in names:
        known = [(row["step"], row[name]) for row in rows if name in row and np.isfinite(row[name])]
        if not known:
            continue
        size = -(-len(known) // points)
        parts = [known[start : start + size] for start in range(0, len(known), size)]
        curves[name] = [(part[-1][0], float(np.mean([value for _, value in part]))) for part in parts]
    return curves


def possible_recall(qrels: Qrels, depth: int = DEPTH) -> dict[int, float]:
    """The recall of each grade in an ideal ranking; below 1 if a query has more than `depth` documents."""
    counts: dict[int, list[int]] = {}
    for row in qrels.values():
        for grade, count in Counter(grade for grade in row.values() if grade > 0).items():
            counts.setdefault(grade, []).append(count)
    return {
        grade: sum(min(depth, n) for n in each) / sum(each)
        for grade, each in sorted(counts.items(), reverse=True)
    }


def recall_by_grade(run: Run, qrels: Qrels, depth: int = DEPTH) -> dict[int, float]:
    """The share of the documents of each grade that are among the first `depth` results."""
    found: dict[int, list[bool]] = {}
    for qid, row in qrels.items():
        first = set(run.docnos(qid)[:depth])
        for docno, grade in row.items():
            if grade > 0:
                found.setdefault(grade, []).append(docno in first)
    return {grade: float(np.mean(hits)) for grade, hits in sorted(found.items(), reverse=True)}


@dataclass(frozen=True)
class Bin:
    """Results whose probability is between two bounds."""

    low: float
    high: float
    results: int
    relevant: float
    """Share of relevant results; an unjudged document counts as not relevant."""
    grade: float
    """Mean grade."""


def reliability(run: Run, qrels: Qrels, depth: int = DEPTH) -> list[Bin]:
    """Results of all queries in bins of increasing probability and equal size."""
    pairs = [
        (float(np.exp(score)), qrels[qid].get(docno, 0))
        for qid in qrels
        for docno, score in run.rankings.get(qid, ())[:depth]
    ]
    pairs.sort()
    parts = [part for part in np.array_split(np.array(pairs).reshape(-1, 2), BINS) if len(part)]
    return [
        Bin(
            float(part[0, 0]),
            float(part[-1, 0]),
            len(part),
            float((part[:, 1] > 0).mean()),
            float(part[:, 1].clip(0).mean()),
        )
        for part in parts
    ]


def flat(vectors: Vectors, seed: int = 0) -> tuple[list[tuple[float, float]], str]:
    """Vectors [N, H] in two dimensions, and the method: t-SNE as in the paper, else PCA.

    PCA is used for fewer than 8 vectors, or if scikit-learn is not installed.
    """
    if len(vectors) >= 8 and find_spec("sklearn"):
        with extra("plots", "t-SNE needs scikit-learn"):
            from sklearn.manifold import TSNE  # type: ignore[import-untyped]

        perplexity = min(30.0, (len(vectors) - 1) / 3)
        placed, how = (
            TSNE(perplexity=perplexity, random_state=seed, init="pca").fit_transform(vectors),
            "t-SNE",
        )
    else:
        centred = vectors - vectors.mean(0)
        directions = np.linalg.svd(centred, full_matrices=False)[2][:2]
        placed, how = np.pad(centred @ directions.T, ((0, 0), (0, 2 - len(directions)))), "PCA"
    return [(float(a), float(b)) for a, b in placed], how


def telling_query(qrels: Qrels) -> str:
    """The query with the most different grades; among these, the one with the most relevant documents."""

    def worth(qid: str) -> tuple[int, int]:
        grades = [grade for grade in qrels[qid].values() if grade > 0]
        return len(set(grades)), len(grades)

    return max(sorted(qrels), key=worth)


@dataclass(frozen=True)
class Cost:
    """Time per query and memory of one system."""

    milliseconds: float
    """Median time of a single query."""
    fixed: int
    """Bytes that do not grow with the collection."""
    growing: int
    """Bytes that grow with the collection."""


def cost_of_model(model: GR2, queries: Sequence[str], search: SearchConfig | None = None) -> Cost:
    """The cost of a model, searched one query at a time as in interactive use."""
    prior = model.network.prior
    weights = sum(value.nbytes for value in model.network.weights().values())
    tables = model.network.decoder.embed_tokens.weight.nbytes + model.network.head.weight.nbytes
    tables += 0 if prior is None else prior.nbytes
    views = {} if model.look_ahead is None else model.look_ahead.nbytes
    fixed = sum(views.get(name, 0) for name in (CODEBOOKS, VOCABULARY))
    tokens, offsets = model.docids.flat()
    searcher = model.searcher(search)
    taken = median_milliseconds(lambda text: searcher.search(text, DEPTH), queries)
    growing = tables + sum(views.values()) - fixed + model.trie.nbytes + tokens.nbytes + offsets.nbytes
    return Cost(taken, weights - tables + fixed, growing)


def median_milliseconds(search: Callable[[str], object], queries: Sequence[str]) -> float:
    """Median time of a search, one query after the other."""
    taken = []
    for text in queries:
        begun = time.perf_counter()
        search(text)
        taken.append(time.perf_counter() - begun)
    return float(np.median(taken)) * 1000


def graded_groups(
    model: GR2, collection: Collection, qid: str, split: str, others: int = 60
) -> tuple[Mapping[str, list[tuple[float, float]]], str]:
    """A query, its documents by grade and some unjudged ones, in two dimensions; and the method."""
    judged = {d: g for d, g in collection.split(split)[qid].items() if d in model.docids.index}
    rest = [docno for docno in model.docids.docnos if docno not in judged]
    draw = np.random.default_rng(0)
    chosen = [rest[i] for i in sorted(draw.choice(len(rest), min(others, len(rest)), replace=False).tolist())]
    docnos = [*judged, *chosen]
    f_q, f_id, _ = representations(model, collection.queries[qid], docnos)
    both = torch.nn.functional.normalize(torch.cat([f_q, f_id]), dim=1).cpu().numpy()
    places, how = flat(both)
    groups: dict[str, list[tuple[float, float]]] = {"the query": [places[0]]}
    for grade in sorted({grade for grade in judged.values() if grade > 0}, reverse=True):
        groups[f"grade {grade}"] = []
    for docno, place in zip(docnos, places[1:], strict=True):
        grade = judged.get(docno, 0)
        groups.setdefault(f"grade {grade}" if grade > 0 else "grade 0 or not judged", []).append(place)
    return groups, how
