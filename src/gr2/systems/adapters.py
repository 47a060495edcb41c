"""Adapters for other toolkits: a PyTerrier transformer and a LangChain-style retriever."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gr2.data.documents import DocumentStore
from gr2.model.gr2 import GR2
from gr2.systems.generative import GenerativeSystem
from gr2.systems.registry import System

if TYPE_CHECKING:
    import pandas as pd


def terrier(system: System | GR2, k: int = 100) -> Any:
    """A PyTerrier transformer: `terrier(model) % 10 >> ...`, or in `pt.Experiment`.

    Args:
        system: a model, or any system of `gr2.systems`.
        k: documents per query.
    """
    found = GenerativeSystem(system) if isinstance(system, GR2) else system
    try:
        import pyterrier as pt
    except ImportError as error:
        raise ValueError("PyTerrier is not installed: pip install 'gr2[terrier]'") from error

    class Ranking(pt.Transformer):
        """Adds docno, score and rank to a frame with qid and query."""

        def transform(self, topics: "pd.DataFrame") -> "pd.DataFrame":
            pt.validate.query_frame(topics, extra_columns=["query"])
            queries = dict(zip(topics["qid"].astype(str), topics["query"], strict=True))
            run = found.search(queries, k)
            return topics.drop_duplicates("qid").merge(run.to_frame(), on="qid")

        def __repr__(self) -> str:
            return f"gr2({found}, k={k})"

    return Ranking()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Passage:
    """A text and its metadata, with the field names of LangChain."""

    page_content: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Retriever:
    """`invoke(query)` returns the k best documents, best first."""

    model: GR2
    documents: DocumentStore
    k: int = 4

    def invoke(self, query: str) -> list[Passage]:
        """Search, and look up the texts of the results."""
        results = self.model.search(query, self.k)
        texts = self.documents.get([result.docno for result in results])
        return [
            Passage(
                texts[r.docno].contents,
                {"docno": r.docno, "docid": r.docid, "score": r.score, "title": texts[r.docno].title},
            )
            for r in results
            if r.docno in texts
        ]
