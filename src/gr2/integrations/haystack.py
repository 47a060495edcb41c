"""A model folder as a Haystack component."""

from typing import Any

from gr2.extras import extra
from gr2.integrations.text_search import TextSearch

with extra("haystack", "this component needs Haystack"):
    from haystack import Document, component


@component
class GR2Retriever:
    """`Pipeline().add_component("retriever", GR2Retriever("shop-model"))`; pipelines with it can be saved."""

    def __init__(self, model: str, top_k: int = 10) -> None:
        """Name a model folder that contains its documents, or a model on the Hugging Face hub."""
        self.model, self.top_k = model, top_k
        self._search: TextSearch | None = None

    def warm_up(self) -> None:
        """Load the model."""
        self._search = self._search or TextSearch(self.model)

    @component.output_types(documents=list[Document])
    def run(self, query: str, top_k: int | None = None) -> dict[str, Any]:
        """The best documents of a query, best first, with their scores."""
        self._search = self._search or TextSearch(self.model)
        return {
            "documents": [
                Document(
                    id=result.docno,
                    content=found.text or found.title,
                    meta={"title": found.title, "url": found.url, "docid": result.docid},
                    score=result.score,
                )
                for result, found in self._search(query, top_k or self.top_k)
            ]
        }
