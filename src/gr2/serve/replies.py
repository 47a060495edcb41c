"""What a model found, with the texts of the documents → the bodies of replies."""

from collections.abc import Mapping, Sequence

from gr2.model.searcher import SearchRequest, SearchResult
from gr2.serve.docid_path import Step
from gr2.serve.document_lookup import DocumentLookup, ResultText
from gr2.serve.matched_words import matched_words
from gr2.serve.schema import AnswerReply, Hit, RankedDocument, SnippetPart, StepReply
from gr2.serve.served_model import ServedModel

Ranked = Sequence[tuple[str, float]]
"""Docnos and scores, best first."""
DECIMALS = 3
"""Of what a view or a word contributed."""


def answer_reply(
    model: ServedModel,
    documents: DocumentLookup,
    request: SearchRequest,
    result: SearchResult,
    beside: Mapping[str, Ranked],
    *,
    explain: bool,
) -> AnswerReply:
    """The answer to one query; `beside` has the other rankings that were asked for, by name."""
    docnos = [model.docids.docnos[docid] for docid in result.docids]
    others = (docno for ranking in beside.values() for docno, _ in ranking)
    texts = documents.texts(request.text, {*docnos, *others})
    words: list[dict[str, float]] = [{} for _ in docnos]
    if explain and model.look_ahead is not None:
        words = matched_words(model.look_ahead, request.text, result.docids)
    views: Sequence[Mapping[str, float]] = result.views or [{}] * len(docnos)
    hits = [
        Hit(
            **ranked.__dict__,
            docid=model.docids.texts[docid],
            path=steps(model.paths.path(docid)),
            views=_rounded(parts),
            words=_rounded(matched),
        )
        for ranked, docid, parts, matched in zip(
            ranking_reply(list(zip(docnos, result.scores, strict=True)), texts),
            result.docids,
            views,
            words,
            strict=True,
        )
    ]
    return AnswerReply(
        query=request.text,
        results=hits,
        proven=result.proven,
        cut=result.truncated,
        allowed=None if request.allowed is None else len(request.allowed),
        **{name: ranking_reply(ranking, texts) for name, ranking in beside.items()},
    )


def ranking_reply(ranking: Ranked, texts: Mapping[str, ResultText]) -> list[RankedDocument]:
    """A ranking with titles and snippets, where they are known."""
    found = []
    for rank, (docno, score) in enumerate(ranking, 1):
        known = texts.get(docno, ResultText())
        parts = [SnippetPart(text=text, marked=marked) for text, marked in known.snippet or ()]
        found.append(
            RankedDocument(
                rank=rank, docno=docno, score=score, title=known.title, url=known.url, snippet=parts
            )
        )
    return found


def steps(path: Sequence[Step]) -> list[StepReply]:
    """A path as the HTTP API returns it."""
    return [StepReply(text=step.text, choices=step.choices) for step in path]


def _rounded(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, DECIMALS) for name, value in parts.items()}
