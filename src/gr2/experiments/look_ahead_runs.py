"""A look-ahead and queries → a run; the queries' vectors are kept in a file beside the documents'.

The strongest control is here too: words, vectors and the judgements of similar queries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from gr2.data.collection import Collection
from gr2.data.runs import Run
from gr2.model.config import VectorConfig
from gr2.model.document_vectors import vectors_path
from gr2.model.encoder import Vectors
from gr2.model.look_ahead import LookAhead
from gr2.model.query_encoder import QueryEncoder
from gr2.model.text_encoder import load_encoder
from gr2.store import atomic_file
from gr2.training.candidates import GATES, Candidate
from gr2.training.judged import Unencoded
from gr2.training.learner import Learner
from gr2.training.plain_views import PlainViews
from gr2.training.selection import Selection, select

DEPTH = 100
"""Documents in each ranking."""
MEMORY_ALONE = [Candidate(), *(Candidate(memory=w, gate=gate) for w in (0.2, 0.5, 1.0) for gate in GATES)]


class KnownQueries:
    """The vectors of a collection's judged queries, encoded once and kept in a file."""

    def __init__(self, collection: Collection, backbone: str, out: Path, how: VectorConfig) -> None:
        """Read the file, or encode the queries and write it."""
        name = vectors_path(collection, backbone, out, how).name
        path = out / name.replace("vectors", "queries")
        texts = sorted({collection.queries[qid] for split in collection.qrels.values() for qid in split})
        if not path.exists():
            with atomic_file(path) as temporary:
                save_file({"queries": load_encoder(backbone).encode(texts)}, temporary)
        self.rows = dict(zip(texts, load_file(path)["queries"], strict=True))

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Their vectors."""
        return np.stack([self.rows[text] for text in texts])


def look_ahead_run(
    look_ahead: LookAhead, queries: Mapping[str, str], encoder: QueryEncoder, name: str
) -> Run:
    """The run of a look-ahead."""
    texts = list(queries.values())
    ranked = look_ahead.rank(texts, encoder.encode(texts), [DEPTH] * len(texts), [None] * len(texts))
    found = {
        qid: {look_ahead.docnos[i]: score for i, score in zip(places, scores, strict=True)}
        for qid, (places, scores, _) in zip(queries, ranked, strict=True)
    }
    return Run.from_dict(found, name)


def with_memory(views: PlainViews, splits: Mapping[str, Unencoded]) -> tuple[LookAhead, Selection | None]:
    """The strongest control: words, vectors and memory, weighted as is best in random folds."""
    if "train" not in splits:
        return views.at(views.usual), None
    found = select(views, splits, options=MEMORY_ALONE, with_prior=False)
    best = max(found.rows, key=lambda row: row.random).candidate
    return Learner(views.at(found.weights)).learn(splits["train"].encoded(), best), replace(
        found, chosen=best
    )
