"""A model folder as a LangChain retriever."""

from typing import Any

from gr2.extras import extra
from gr2.integrations.text_search import TextSearch

with extra("langchain", "this retriever needs LangChain"):
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import PrivateAttr


class GR2Retriever(BaseRetriever):
    """`GR2Retriever(model="shop-model").invoke("sour fruit")` returns the k best documents, best first."""

    model: str
    """A model folder that contains its documents, or a name on the Hugging Face hub."""
    k: int = 4
    _search: TextSearch = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Load the model."""
        self._search = TextSearch(self.model)

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [
            Document(
                id=result.docno,
                page_content=found.text or found.title,
                metadata={
                    "title": found.title,
                    "url": found.url,
                    "score": result.score,
                    "docid": result.docid,
                },
            )
            for result, found in self._search(query, self.k)
        ]
