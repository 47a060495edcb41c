"""The list of baselines, shared by report, index, demo and recipes."""

from collections.abc import Mapping
from dataclasses import dataclass

from gr2.bm25 import BM25Config
from gr2.data.collection import Collection
from gr2.data.runs import Run
from gr2.model.config import VectorConfig
from gr2.systems.registry import SystemContext, build_system
from gr2.systems.rows import DenseOptions

DEPTH = 100
"""Documents per query in a baseline's run."""
DENSE = "dense, untrained"
"""Name of the untrained encoder in tables."""
BM25_SETTINGS = (BM25Config(), BM25Config(k1=1.5, b=0.75))
"""Anserini's default, and a usual setting for longer documents; compare with the better of the two."""


@dataclass(frozen=True)
class Baseline:
    """A system with its options and its name in tables."""

    name: str
    system: str
    options: object | None = None

    def run(self, collection: Collection, queries: Mapping[str, str], k: int = DEPTH) -> Run:
        """Build the system and search for the queries."""
        found = build_system(self.system, SystemContext(collection=collection), self.options)
        return Run(found.search(queries, k).rankings, self.name)


def baselines(
    collection: Collection, *, backbone: str = "", vectors: VectorConfig | None = None
) -> list[Baseline]:
    """BM25 with two settings; with training judgements, the controls; with a backbone, dense search."""
    found = [Baseline(f"BM25 k1={c.k1:g} b={c.b:g}", "bm25", c) for c in BM25_SETTINGS]
    if "train" in collection.qrels:
        found += [Baseline(name, name) for name in ("popularity", "neighbours")]
    if backbone:
        options = DenseOptions(backbone=backbone, vectors=vectors or VectorConfig())
        found.append(Baseline(DENSE, "dense", options))
    return found


def baseline_runs(
    collection: Collection, split: str, *, backbone: str = "", vectors: VectorConfig | None = None
) -> list[Run]:
    """The runs of all baselines on the queries of a split."""
    queries = {qid: collection.queries[qid] for qid in collection.split(split)}
    return [
        each.run(collection, queries) for each in baselines(collection, backbone=backbone, vectors=vectors)
    ]
