"""Docids that are read off the document: its title (GENRE's), or where it has none its leading words."""

from typing import Any

from gr2.data import Collection, Document
from gr2.docids import Docids, Tokenise, settle


def title_docids(
    collection: Collection, tokenise: Tokenise, *, words: int = 12, backbone: str = ""
) -> Docids:
    """Every document's title, cut at so many words; those who share one are numbered."""
    proposals = {document.docno: [(_title(document, words), 0.0)] for document in collection.documents}
    about = {"scheme": "title", "words": words, "backbone": backbone, "fingerprint": collection.fingerprint}
    return settle(proposals, tokenise, about)


def tokeniser(backbone: str, *, longest: int = 32) -> Tokenise:
    """The backbone's tokenizer as docids need it: no special tokens, at most so many tokens."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(backbone)

    def tokenise(texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
        # A number behind a text keeps apart those who share it, so what is cut is the middle.
        return [row if len(row) <= longest else [*row[: longest - 4], *row[-4:]] for row in map(list, rows)]

    return tokenise


def _title(document: Document, words: int) -> str:
    text = document.title or document.text or document.docno
    return " ".join(text.split()[:words])
