"""Look-ahead as a system of its own: hybrid search that learns from graded judgements, without a decoder.

Words and vectors score every document; where the collection has training judgements, cross-validation decides
what is learned from them, and on a collection where nothing carries over the result is the hybrid itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from gr2.data.collection import Collection, Qrels
from gr2.data.runs import Ranking, Run
from gr2.model.document_vectors import DECIMALS, document_vectors
from gr2.model.encoder import Encoder
from gr2.model.look_ahead import Floats, LookAhead
from gr2.systems.config import LookAheadOptions
from gr2.training.selection import Candidate, Selection, TrainingSet, learn, select

BLOCK = 64
"""Queries scored at a time."""


class LookAheadSystem:
    """φ over a collection, and the encoder that reads queries."""

    def __init__(self, encoder: Encoder, look_ahead: LookAhead, selection: Selection | None = None) -> None:
        """Hold the parts; use `LookAheadSystem.build`."""
        self.encoder, self.look_ahead, self.selection = encoder, look_ahead, selection

    @classmethod
    def build(
        cls,
        collection: Collection,
        options: LookAheadOptions,
        *,
        judgements: Qrels | None = None,
        candidates: Sequence[Candidate] | None = None,
        folder: Path | None = None,
        say: Callable[[str], None] = lambda line: None,
        progress: bool = False,
    ) -> "LookAheadSystem":
        """Encode the documents and learn from the judgements.

        Args:
            collection: documents and queries.
            options: encoder, weights, and whether to learn.
            judgements: what may be learned from.
            candidates: ways to learn to choose from; None is all.
            folder: keeps the documents' vectors.
            say: called with a line for each step of the cross-validation.
            progress: whether to show bars.
        """
        documents = sorted(collection.documents, key=lambda document: document.docno)
        docnos = [document.docno for document in documents]
        encoder = Encoder.load(options.backbone)
        with TemporaryDirectory() as temporary:
            vectors = document_vectors(
                collection,
                docnos,
                options.backbone,
                folder or Path(temporary),
                options.vectors,
                progress=progress,
            )
        plain = LookAhead.build(documents, vectors, options.look_ahead)
        judged = {qid: row for qid, row in (judgements or {}).items() if any(g > 0 for g in row.values())}
        if not options.learn or len(judged) < 2:
            return cls(encoder, plain)
        texts = [collection.queries[qid] for qid in judged]
        queries = TrainingSet(texts, encoder.encode(texts, progress=progress), list(judged.values()))
        chosen = select(plain, queries, options=candidates, seed=options.seed, progress=say)
        plain = plain.with_config(replace(plain.config, words=chosen.words))
        return cls(encoder, learn(plain, queries, chosen.chosen), chosen)

    def search(self, queries: Mapping[str, str], k: int) -> Run:
        """The k best documents of each query; every document has a score."""
        texts, docnos = list(queries.values()), self.look_ahead.docnos
        vectors = self.encoder.encode(texts)
        rankings: dict[str, Ranking] = {}
        for start in range(0, len(texts), BLOCK):
            part = slice(start, start + BLOCK)
            scores = self.look_ahead.scores(texts[part], vectors[part]).round(DECIMALS)
            for qid, row in zip(list(queries)[part], scores, strict=True):
                rankings[qid] = _best(row, docnos, k)
        return Run(rankings, "look-ahead")

    def __str__(self) -> str:
        """As printed with a result: the weights, and what was learned."""
        config = self.look_ahead.config
        learned = "nothing" if self.selection is None else str(self.selection.chosen)
        weights = f"scale={config.scale:g} words={config.words:g}"
        return f"look-ahead {self.encoder.name} {weights}, learned: {learned}"


def _best(scores: Floats, docnos: Sequence[str], k: int) -> Ranking:
    """The k best documents; ties by docno, descending, as in every run."""
    found = np.arange(len(scores))
    if len(scores) > k:
        found = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    order = np.lexsort((-found, -scores[found]))  # docnos ascend, so a later place is a larger docno
    return tuple((docnos[i], float(scores[i])) for i in found[order][:k])
