"""Documents → a BM25 index that scores them for queries and returns a run.

`BM25` wraps the library bm25s and adds stemming, trec_eval's tie rule and a folder with a manifest. bm25s is
imported only when documents are indexed or an index is loaded, so `BM25Config` alone is cheap to import.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from gr2.data.collection import Document
from gr2.data.runs import Ranking, Run
from gr2.store import atomic_folder, read_json, readable, steady, verify, write_json


@dataclass(frozen=True, kw_only=True)
class BM25Config:
    """The settings of BM25. Results depend on all of them, so they are printed with every figure."""

    k1: float = 0.9
    """Term-frequency saturation: the lower, the less repeated terms count; 0.9 is Anserini's default."""
    b: float = 0.4
    """Length normalisation: the higher, the more long documents are discounted; 0.4 is Anserini's default."""
    method: Literal["lucene", "robertson", "atire", "bm25l", "bm25+"] = "lucene"
    """The variant of the formula, by its name in bm25s."""
    language: str = "english"
    """The Snowball stemmer, or "none"; English stop words go with the English stemmer."""
    title_weight: int = 1
    """How often a document's title is counted; above 1, words of titles count more than words of texts."""

    def __post_init__(self) -> None:
        """Check the values."""
        import Stemmer

        if self.k1 < 0 or not 0 <= self.b <= 1:
            raise ValueError(
                f"BM25 takes k1 of at least 0 and b from 0 to 1, not k1={self.k1:g} b={self.b:g}"
            )
        if self.title_weight < 1:
            raise ValueError(f"expected title_weight of at least 1, found {self.title_weight}")
        if self.language not in (known := ["none", *Stemmer.algorithms()]):
            raise ValueError(f"no stemmer is called {self.language!r}; there are: {', '.join(known)}")

    def __str__(self) -> str:
        """As printed with every result."""
        title = f" title_weight={self.title_weight}" if self.title_weight != 1 else ""
        return f"BM25 {self.method} k1={self.k1:g} b={self.b:g} stemmer={self.language}{title}"


class BM25:
    """A BM25 index of a corpus."""

    def __init__(self, config: BM25Config, docnos: list[str], retriever: Any) -> None:
        """Wrap an existing index; use `BM25.index` or `BM25.load` instead."""
        self.config, self.docnos, self._retriever = config, docnos, retriever

    @classmethod
    def index(
        cls, documents: Iterable[Document], config: BM25Config | None = None, *, progress: bool = False
    ) -> "BM25":
        """Index the title and text of each document."""
        import bm25s

        config = config or BM25Config()
        docnos, texts = [], []
        for document in documents:
            docnos.append(document.docno)
            texts.append(" ".join([document.title] * (config.title_weight - 1) + [document.contents]))
        if not docnos:
            raise ValueError("BM25 needs at least one document")
        retriever = bm25s.BM25(k1=config.k1, b=config.b, method=config.method)
        retriever.index(_tokenise(texts, config, progress), show_progress=progress, leave_progress=False)
        return cls(config, docnos, retriever)

    def __str__(self) -> str:
        """Every setting, as printed with a result."""
        return str(self.config)

    def search(
        self, queries: Mapping[str, str], k: int = 1000, *, name: str = "bm25", progress: bool = False
    ) -> Run:
        """The k best documents of each query; documents that share no term with it are left out."""
        if k < 1:
            raise ValueError(f"expected k of at least 1, found {k}")
        if not queries:
            return Run({}, name)
        from tqdm import tqdm

        words = _tokenise(list(queries.values()), self.config, progress, ids=False)
        pairs = tqdm(zip(queries, words, strict=True), total=len(queries), leave=False, disable=not progress)
        return Run({qid: self._best(terms, k) for qid, terms in pairs}, name)

    def scores(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The score of every document, in the order of `docnos`, for each query text [Q, N]."""
        found = np.zeros((len(texts), len(self.docnos)), np.float32)
        for row, terms in enumerate(query_terms(texts, self.config)):
            if ids := self._known(terms):
                found[row] = self._retriever.get_scores_from_ids(ids)
        return found

    def weights(self) -> Any:
        """The CSR matrix of each term's weight in each document [N, terms]; a score is a sum of weights."""
        from scipy import sparse

        parts = self._retriever.scores
        shape = (len(self.docnos), len(parts["indptr"]) - 1)
        return sparse.csc_matrix((parts["data"], parts["indices"], parts["indptr"]), shape=shape).tocsr()

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """Term → its column in `weights`."""
        known: Mapping[str, int] = self._retriever.vocab_dict
        return known

    @property
    def nbytes(self) -> int:
        """The size of the postings in bytes."""
        return sum(
            int(part.nbytes) for part in self._retriever.scores.values() if isinstance(part, np.ndarray)
        )

    def _known(self, terms: Sequence[str]) -> list[int]:
        return [self.vocabulary[term] for term in terms if term in self.vocabulary]

    def _best(self, terms: list[str], k: int) -> Ranking:
        """The k best documents by score and our tie rule; bm25s breaks ties at the cutoff arbitrarily."""
        if not (ids := self._known(terms)):
            return ()
        scores = self._retriever.get_scores_from_ids(ids)
        found = np.flatnonzero(scores > 0)
        if len(found) > k:
            found = found[scores[found] >= np.partition(scores[found], -k)[-k]]
        best = found[np.lexsort((self._tie_order[found], -scores[found]))][:k]
        return tuple((self.docnos[i], float(scores[i])) for i in best)

    @cached_property
    def _tie_order(self) -> NDArray[np.int64]:
        """The position of each document when docnos are sorted in descending order."""
        place = np.empty(len(self.docnos), np.int64)
        place[sorted(range(len(self.docnos)), key=self.docnos.__getitem__, reverse=True)] = np.arange(
            len(place)
        )
        return place

    def save(self, folder: Path) -> None:
        """Write the index as a folder with a manifest."""
        with atomic_folder(folder) as temporary:
            self._retriever.save(temporary, show_progress=False)
            write_json(temporary / "gr2.json", {"config": asdict(self.config), "docnos": self.docnos})

    @classmethod
    def load(cls, folder: Path) -> "BM25":
        """Read an index that `save` wrote; a changed byte is refused.

        The postings are memory-mapped: loading copies nothing, and processes share their pages.
        """
        return steady(folder, cls._read)

    @classmethod
    def _read(cls, folder: Path) -> "BM25":
        import bm25s

        verify(folder, "gr2.json", "params.index.json")
        content = read_json(folder / "gr2.json", _Content)
        with readable(folder):
            retriever = bm25s.BM25.load(folder, load_corpus=False, mmap=True)
        for name in ("data", "indices", "indptr"):  # slices of a plain array are cheaper than of a memmap
            retriever.scores[name] = np.asarray(retriever.scores[name])
        return cls(content["config"], content["docnos"], retriever)


class _Content(TypedDict):
    """What gr2.json holds."""

    config: BM25Config
    docnos: list[str]


def query_terms(texts: Sequence[str], config: BM25Config) -> list[list[str]]:
    """The stemmed words of each text, with repetitions.

    >>> query_terms(["sour fruits", ""], BM25Config())
    [['sour', 'fruit'], []]
    """
    found: list[list[str]] = _tokenise(list(texts), config, False, ids=False) if texts else []
    return found


def _tokenise(texts: list[str], config: BM25Config, progress: bool, *, ids: bool = True) -> Any:
    import bm25s
    import Stemmer

    stemmer = None if config.language == "none" else Stemmer.Stemmer(config.language)
    stop_words = "en" if config.language == "english" else []
    return bm25s.tokenize(
        texts, stopwords=stop_words, stemmer=stemmer, return_ids=ids, show_progress=progress, leave=False
    )
