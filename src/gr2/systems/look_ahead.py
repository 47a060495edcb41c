"""Look-ahead as a system of its own: hybrid search that learns from graded judgements, without docids.

Words and vectors score every document; where the collection has judgements, cross-validation decides what is
learned from them, and on a collection where nothing carries over the result is the hybrid itself.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from gr2.data.collection import Collection
from gr2.data.runs import Run
from gr2.model.document_vectors import vectors_by_kind
from gr2.model.look_ahead import LookAhead
from gr2.model.text_encoder import TextEncoder, load_encoder
from gr2.model.vector_storage import check_storage
from gr2.schemes.clusters import residual_vectors
from gr2.systems.config import LookAheadOptions
from gr2.training.candidates import Candidate
from gr2.training.fit_look_ahead import judged_queries, learn_look_ahead
from gr2.training.plain_views import PlainViews
from gr2.training.selection import Selection

BLOCK = 64
"""Queries scored at a time."""


class LookAheadSystem:
    """φ over a collection, and the encoder that reads queries."""

    def __init__(
        self, encoder: TextEncoder, look_ahead: LookAhead, selection: Selection | None = None
    ) -> None:
        """Hold the parts; use `LookAheadSystem.build`."""
        self.encoder, self.look_ahead, self.selection = encoder, look_ahead, selection

    @classmethod
    def build(
        cls,
        collection: Collection,
        options: LookAheadOptions,
        *,
        candidates: Sequence[Candidate] | None = None,
        folder: Path | None = None,
        say: Callable[[str], None] = lambda line: None,
        progress: bool = False,
    ) -> "LookAheadSystem":
        """Encode the documents and learn from the judgements of `train` and `dev`.

        Args:
            collection: documents, queries and judgements.
            options: encoder, weights, storage, and whether to learn.
            candidates: ways to learn to choose from; None is all.
            folder: keeps the documents' vectors.
            say: called with a line for each step of the cross-validation.
            progress: whether to show bars.
        """
        documents = sorted(collection.documents, key=lambda document: document.docno)
        check_storage(options.storage, len(documents))
        docnos, encoder = [document.docno for document in documents], load_encoder(options.backbone)
        with TemporaryDirectory() as temporary:
            kept = folder or Path(temporary)
            vectors = vectors_by_kind(
                collection, docnos, options.backbone, kept, options.vectors, progress=progress
            )
        if options.codes:
            rows, _ = vectors.get("mean", next(iter(vectors.values())))
            views = PlainViews(
                documents, {"codes": (residual_vectors(rows, options.codes), None)}, options.look_ahead
            )
        else:
            views = PlainViews(documents, vectors, options.look_ahead)
        splits = judged_queries(collection, encoder) if options.learn else {}
        found, chosen = learn_look_ahead(
            views, splits, options=candidates, variant=options.variant, seed=options.seed, progress=say
        )
        return cls(encoder, found.stored(options.storage), chosen)

    def search(self, queries: Mapping[str, str], k: int) -> Run:
        """The k best documents of each query, with log P of each."""
        qids, texts = list(queries), list(queries.values())
        vectors, docnos = self.encoder.encode(texts), self.look_ahead.docnos
        found: dict[str, dict[str, float]] = {}
        for start in range(0, len(texts), BLOCK):
            part = slice(start, start + BLOCK)
            some = texts[part]
            ranked = self.look_ahead.rank(some, vectors[part], [k] * len(some), [None] * len(some))
            for qid, (places, scores, _) in zip(qids[part], ranked, strict=True):
                found[qid] = {docnos[i]: score for i, score in zip(places, scores, strict=True)}
        return Run.from_dict(found, "look-ahead")

    def __str__(self) -> str:
        """As printed with a result: the weights, and what was learned."""
        config = self.look_ahead.config
        learned = "nothing" if self.selection is None else str(self.selection.chosen)
        weights = f"scale={config.scale:g} words={config.words:g}"
        return f"look-ahead {self.encoder.name} {weights}, learned: {learned}"
