"""Queries → ranked documents: the single search path of library, service, report and experiments.

A model with look-ahead scores all documents at once. Any other is decoded: encode the queries, score the trie
nodes, decode docids by beam or exact search, and optionally add the similarity of representations to the
score. The decoder is prepared once and cached while the network stays in evaluation mode. A `Searcher` is not
thread-safe.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gr2.data.runs import Run
from gr2.decode import Ranked, beam, exact
from gr2.docids.docids import Docids
from gr2.docids.trie import Trie
from gr2.model.bounded_search import Floats, Places, Similarity
from gr2.model.config import GR2Config, SearchConfig
from gr2.model.docid_reader import DocidReader
from gr2.model.encoder import QUERY_TOKENS
from gr2.model.look_ahead import LookAhead
from gr2.model.network import Network
from gr2.model.padding import padded
from gr2.model.query_encoder import QueryEncoder

logger = logging.getLogger(__name__)
Views = Mapping[str, float]
"""What each view of look-ahead contributes to a document's score."""


class Searchable(Protocol):
    """What a searcher needs from a model."""

    network: Network
    docids: Docids
    config: GR2Config
    tokenizer: Any
    look_ahead: LookAhead | None

    @property
    def query_encoder(self) -> QueryEncoder:
        """What turns queries into vectors for look-ahead."""

    @property
    def trie(self) -> Trie:
        """The prefix tree of all docids."""

    @property
    def tokens(self) -> list[list[int]]:
        """Each docid in the decoder's own vocabulary."""

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts → source tokens, truncated to the model's limit."""


@dataclass(frozen=True)
class Result:
    """One retrieved document: its docno, its docid, and its score (log P of the docid)."""

    docno: str
    docid: str
    score: float
    views: Views = field(default_factory=dict)
    """What each view of look-ahead contributes to φ; empty without look-ahead."""


@dataclass(frozen=True)
class SearchRequest:
    """One query, the number of documents wanted, and the documents allowed."""

    text: str
    k: int = 10
    allowed: tuple[int, ...] | None = None
    """Docid indices; None allows all documents."""


@dataclass(frozen=True)
class SearchResult:
    """The answer to a request: docid indices and scores, best first."""

    docids: tuple[int, ...]
    scores: tuple[float, ...]
    proven: bool
    """Whether it is certain that no other allowed document has a better score."""
    truncated: bool
    """Whether the query was longer than the model's limit and only its beginning was used."""
    views: tuple[Views, ...] = ()
    """Of each docid; empty without look-ahead."""


class Searcher:
    """A model prepared for many searches."""

    def __init__(self, model: Searchable, config: SearchConfig | None = None) -> None:
        """Search `model` with the settings of `config`."""
        self.model, self.config = model, config or SearchConfig()
        self._reader: DocidReader | None = None

    def search(self, query: str, k: int = 10, *, allowed: Iterable[str] | None = None) -> list[Result]:
        """The k best documents of a query, best first; `allowed` restricts them to these docnos."""
        (found,) = self.answer([SearchRequest(query, k, self.indices(allowed))])
        self._warn_of_cut({"the query": found})
        return self._results(found)

    def search_many(
        self,
        queries: Mapping[str, str],
        k: int = 10,
        *,
        allowed: Iterable[str] | None = None,
        name: str = "gr2",
    ) -> Run:
        """The k best documents of each query (qid → text), as a run."""
        indices = self.indices(allowed)
        answers = self.answer([SearchRequest(text, k, indices) for text in queries.values()])
        self._warn_of_cut(dict(zip(queries, answers, strict=True)))
        docnos = self.model.docids.docnos
        scores = {
            qid: {docnos[i]: score for i, score in zip(answer.docids, answer.scores, strict=True)}
            for qid, answer in zip(queries, answers, strict=True)
        }
        return Run.from_dict(scores, name)

    def indices(self, docnos: Iterable[str] | None) -> tuple[int, ...] | None:
        """The docid indices of these docnos, ascending, without unknown ones; None gives None."""
        if docnos is None:
            return None
        index = self.model.docids.index
        return tuple(sorted({index[docno] for docno in docnos if docno in index}))

    @torch.inference_mode()
    def answer(self, requests: Sequence[SearchRequest]) -> list[SearchResult]:
        """Answer requests; those with the same beams and the same filter are decoded together."""
        for request in requests:
            if request.k < 1:
                raise ValueError(f"expected k of at least 1, found {request.k}")
        if self.model.network.training:
            self.model.network.eval()
        if self.model.look_ahead is not None:
            return self._look_ahead(self.model.look_ahead, requests)
        rows = self.model.read([request.text for request in requests])
        found = [SearchResult((), (), proven=True, truncated=False)] * len(requests)
        groups: dict[tuple[int, tuple[int, ...] | None], list[int]] = {}
        for place, (request, row) in enumerate(zip(requests, rows, strict=True)):
            if row and request.allowed != ():  # a text without tokens gets an empty answer
                groups.setdefault((max(self.config.beams, request.k), request.allowed), []).append(place)
        for (beams, allowed), group in groups.items():
            for start in range(0, len(group), self.config.batch):
                places = group[start : start + self.config.batch]
                most = max(requests[place].k for place in places)
                ranked = self._decode([rows[place] for place in places], beams, most, allowed)
                for at, place in enumerate(places):
                    request = requests[place]
                    docids, scores = (part[: request.k].tolist() for part in ranked[at])
                    cut = self._is_cut(request.text, rows[place])
                    proven = bool(ranked.proven[at])
                    found[place] = SearchResult(tuple(docids), tuple(scores), proven, cut)
        return found

    def _look_ahead(self, look_ahead: LookAhead, requests: Sequence[SearchRequest]) -> list[SearchResult]:
        """Rank by φ, and what the decoder adds if it is a residual: exact, as if every document was read."""
        found: list[SearchResult] = []
        for start in range(0, len(requests), self.config.batch):
            some = requests[start : start + self.config.batch]
            texts = [request.text for request in some]
            ranked = look_ahead.rank(
                texts,
                self.model.query_encoder.encode(texts),
                [request.k for request in some],
                [request.allowed for request in some],
                self._similarities(texts) if look_ahead.config.residual else None,
            )
            for text, (docids, scores, views) in zip(texts, ranked, strict=True):
                cut = len(text) > QUERY_TOKENS and self._query_tokens(look_ahead, text) > QUERY_TOKENS
                found.append(SearchResult(docids, scores, proven=True, truncated=cut, views=views))
        return found

    def _similarities(self, texts: Sequence[str]) -> list[Similarity]:
        """For each query, what the decoder says of documents: sim(f_q, f_id) by one teacher-forced pass."""
        network = self.model.network
        ids, mask = padded(self.model.read(texts), device=network.device)
        states = network.encode(ids, mask) if ids.numel() else None
        if self._reader is None:
            self._reader = DocidReader(self.model.tokens, network.device)
        reader = self._reader

        def similarity(row: int, places: Places) -> Floats:
            if states is None or not bool(mask[row].any()):
                return np.zeros(len(places), np.float32)
            own = slice(row, row + 1)
            docids = torch.from_numpy(places).to(network.device)
            found = reader.similarities(network, states[own], mask[own], torch.zeros_like(docids), docids)
            near: Floats = found.clamp(0.0, 1.0).cpu().numpy()
            return near

        return [partial(similarity, row) for row in range(len(texts))]

    def _decode(self, rows: list[list[int]], beams: int, k: int, allowed: Sequence[int] | None) -> Ranked:
        network, config = self.model.network, self.config
        ids, mask = padded(rows, device=network.device)
        states = network.encode(ids, mask)
        weight = config.similarity_weight
        wanted = max(beams, k) if weight else k
        project = network.project_docid if weight else None
        decoder, trie = network.decoder_for_search(), self.model.trie
        prior, normaliser = network.prior_scores(ids, states, mask), self.model.config.normaliser
        if config.mode == "beam":
            ranked = beam(
                decoder,
                trie,
                states,
                mask,
                beams=beams,
                k=wanted,
                normaliser=normaliser,
                prior=prior,
                project=project,
                allowed=allowed,
            )
        else:
            ranked = exact(
                decoder,
                trie,
                states,
                mask,
                k=wanted,
                budget=config.budget,
                normaliser=normaliser,
                prior=prior,
                project=project,
                allowed=allowed,
            )
        return self._with_similarity(ranked, states, mask)

    def _with_similarity(self, ranked: Ranked, states: Tensor, mask: Tensor) -> Ranked:
        """Rerank each query's docids by log P + weight · sim(f_q, f_id), with sim the cosine."""
        if ranked.vectors is None:
            return ranked
        counts = np.diff(ranked.offsets)
        owner = np.repeat(np.arange(len(counts)), counts)
        f_q = self.model.network.represent_query(states, mask)[torch.from_numpy(owner).to(states.device)]
        near = torch.cosine_similarity(f_q, ranked.vectors, dim=1).cpu().numpy()
        scores = (ranked.scores + self.config.similarity_weight * near).astype(np.float32)
        order = np.lexsort((ranked.docids, -scores, owner))
        return replace(ranked, docids=ranked.docids[order], scores=scores[order], vectors=None)

    def _is_cut(self, text: str, row: list[int]) -> bool:
        most = self.model.config.max_tokens
        return len(row) >= most and self._tokens(text) > most

    def _query_tokens(self, look_ahead: LookAhead, text: str) -> int:
        static = look_ahead.encoder
        return self._tokens(text) if static is None else len(static.read([text])[0])

    def _tokens(self, text: str) -> int:
        return len(self.model.tokenizer(text)["input_ids"])

    def _warn_of_cut(self, answers: Mapping[str, SearchResult]) -> None:
        """Log how many queries were truncated."""
        cut = [name for name, answer in answers.items() if answer.truncated]
        if cut:
            message = "%d of %d queries are longer than %d tokens and were truncated, for example %s"
            most = self.model.config.max_tokens if self.model.look_ahead is None else QUERY_TOKENS
            logger.warning(message, len(cut), len(answers), most, cut[0])

    def _results(self, found: SearchResult) -> list[Result]:
        docids = self.model.docids
        views: Sequence[Views] = found.views or [{}] * len(found.docids)
        return [
            Result(docids.docnos[i], docids.texts[i], score, each)
            for i, score, each in zip(found.docids, found.scores, views, strict=True)
        ]
