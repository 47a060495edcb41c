"""A model as other toolkits expect one: a PyTerrier transformer, and a retriever that returns texts.

Each is thin: `GR2.search` does the work. This file knows no decoding.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gr2.documents import DocumentStore
from gr2.model import GR2
from gr2.runs import Run

if TYPE_CHECKING:
    import pandas as pd


def terrier(model: GR2, k: int = 100, **options: Any) -> Any:
    """A PyTerrier transformer: `terrier(model) % 10 >> ...`, or in `pt.Experiment`.

    Args:
        model: what searches.
        k: documents for each query.
        options: of `GR2.search`, such as beams.
    """
    try:
        import pyterrier as pt
    except ImportError as error:
        raise ValueError("PyTerrier is not there: pip install 'gr2[terrier]'") from error

    class Ranking(pt.Transformer):
        """Frame with qid and query → frame with docno, score and rank as well."""

        def transform(self, topics: "pd.DataFrame") -> "pd.DataFrame":
            pt.validate.query_frame(topics, extra_columns=["query"])
            queries = dict(zip(topics["qid"].astype(str), topics["query"], strict=True))
            found: Run = model.search(queries, k, **options)
            return topics.drop_duplicates("qid").merge(found.to_frame(), on="qid")

        def __repr__(self) -> str:
            return f"GR2({len(model.docids):,} documents, k={k})"

    return Ranking()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Passage:
    """A text and what is known of it, named as LangChain names them."""

    page_content: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Retriever:
    """`invoke(query)` → the documents that answer it, best first."""

    model: GR2
    documents: DocumentStore
    k: int = 4

    def invoke(self, query: str) -> list[Passage]:
        """Search, and read the texts."""
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
