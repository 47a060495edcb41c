"""A trained model, its collection and its training log → what a report says, as plain numbers.

Everything is measured here and nothing is laid out: `sections` puts it into words.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gr2.batches import padded
from gr2.data import Collection, Qrels
from gr2.embed import Vectors
from gr2.forcing import TeacherForcing
from gr2.model import GR2
from gr2.runs import Run

DEPTH = 20
BINS = 5
Curve = list[tuple[float, float]]


def loss_curves(training: Path, points: int = 60) -> dict[str, Curve]:
    """The parts of the loss over the steps of all stages, each point a mean; empty where there is no log."""
    rows: list[dict[str, float]] = []
    for stage in ("frozen", "joint", "self-negatives"):
        path = training / stage / "metrics.jsonl"
        if path.is_file():
            before = rows[-1]["step"] if rows else 0
            found = map(json.loads, path.read_text(encoding="utf-8").splitlines())
            rows += [{**row, "step": row["step"] + before} for row in found]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("step", "judged"))
    curves: dict[str, Curve] = {}
    for name in names:
        known = [(row["step"], row[name]) for row in rows if name in row]
        size = -(-len(known) // points)
        parts = [known[start : start + size] for start in range(0, len(known), size)]
        curves[name] = [(part[-1][0], float(np.mean([value for _, value in part]))) for part in parts]
    return curves


def recall_by_grade(run: Run, qrels: Qrels, depth: int = DEPTH) -> dict[int, float]:
    """Of the documents of each grade, the share that stands among the first so many."""
    found: dict[int, list[bool]] = {}
    for qid, row in qrels.items():
        first = set(run.docnos(qid)[:depth])
        for docno, grade in row.items():
            if grade > 0:
                found.setdefault(grade, []).append(docno in first)
    return {grade: float(np.mean(hits)) for grade, hits in sorted(found.items(), reverse=True)}


@dataclass(frozen=True)
class Bin:
    """Results whose probability lies between two bounds."""

    low: float
    high: float
    results: int
    relevant: float
    """Share judged relevant; what nobody judged counts as not relevant."""
    grade: float
    """Mean grade."""


def reliability(run: Run, qrels: Qrels, depth: int = DEPTH) -> list[Bin]:
    """Results of all queries in bins of like probability, as many in each: do scores mean the same?"""
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


@torch.inference_mode()
def around(model: GR2, query: str, docnos: Sequence[str]) -> Vectors:
    """f_q and then the f_id of these documents [1 + N, H], of unit length."""
    network = model.network.eval()
    ids, mask = padded(model.read([query]))
    states = network.encode(ids, mask)
    docids = torch.tensor([model.docids.index[docno] for docno in docnos])
    forced = TeacherForcing(model.tokens, model.trie, model.config.normaliser)
    f_id, _ = forced(network, states, mask, torch.zeros_like(docids), docids, represent=True)
    assert f_id is not None  # it was asked for
    both = torch.cat([network.represent_query(states, mask), f_id])
    found: Vectors = torch.nn.functional.normalize(both, dim=1).numpy()
    return found


def flat(vectors: Vectors, seed: int = 0) -> list[tuple[float, float]]:
    """Vectors [N, H] in a plane by t-SNE (paper: the figure of a query and its graded documents)."""
    try:
        from sklearn.manifold import TSNE  # type: ignore[import-untyped]
    except ImportError as error:
        raise ValueError("the t-SNE needs the extra `plots`: pip install 'gr2[plots]'") from error
    perplexity = min(30.0, max(2.0, (len(vectors) - 1) / 3))
    placed = TSNE(perplexity=perplexity, random_state=seed, init="pca").fit_transform(vectors)
    return [(float(a), float(b)) for a, b in placed]


def telling_query(qrels: Qrels) -> str:
    """The query with most grades, and among these with most documents judged relevant."""

    def worth(qid: str) -> tuple[int, int]:
        grades = [grade for grade in qrels[qid].values() if grade > 0]
        return len(set(grades)), len(grades)

    return max(sorted(qrels), key=worth)


@dataclass(frozen=True)
class Cost:
    """What an answer costs with one system."""

    milliseconds: float
    """Median of single queries."""
    fixed: int
    """Bytes that do not grow with the collection."""
    growing: int
    """Bytes that do."""


def cost_of_model(model: GR2, queries: Sequence[str]) -> Cost:
    """One query at a time, as somebody types them."""
    prior = model.network.prior
    growing = 0 if prior is None else prior.nbytes
    rows = (model.network.decoder.embed_tokens.weight, model.network.head.weight)
    weights = sum(value.nbytes for value in model.network.weights().values())
    tables = sum(row.nbytes for row in rows) + (0 if prior is None else prior.vectors.nbytes)
    flat_tokens, offsets = model.docids.flat()
    growing += sum(row.nbytes for row in rows) + model.trie.nbytes + flat_tokens.nbytes + offsets.nbytes
    return Cost(median_milliseconds(lambda text: model.search(text, 10), queries), weights - tables, growing)


def median_milliseconds(search: Callable[[str], object], queries: Sequence[str]) -> float:
    """Of single queries, one behind the other."""
    taken = []
    for text in queries:
        begun = time.perf_counter()
        search(text)
        taken.append(time.perf_counter() - begun)
    return float(np.median(taken)) * 1000


def graded_groups(
    model: GR2, collection: Collection, qid: str, split: str, others: int = 60
) -> Mapping[str, list[tuple[float, float]]]:
    """The query, its judged documents by grade and some that nobody judged, in a plane."""
    judged = {d: g for d, g in collection.split(split)[qid].items() if d in model.docids.index}
    rest = [docno for docno in model.docids.docnos if docno not in judged]
    draw = np.random.default_rng(0)
    chosen = [rest[i] for i in sorted(draw.choice(len(rest), min(others, len(rest)), replace=False).tolist())]
    docnos = [*judged, *chosen]
    places = flat(around(model, collection.queries[qid], docnos))
    groups: dict[str, list[tuple[float, float]]] = {"the query": [places[0]]}
    for grade in sorted({grade for grade in judged.values() if grade > 0}, reverse=True):
        groups[f"grade {grade}"] = []
    for docno, place in zip(docnos, places[1:], strict=True):
        grade = judged.get(docno, 0)
        groups.setdefault(f"grade {grade}" if grade > 0 else "not relevant", []).append(place)
    return groups
