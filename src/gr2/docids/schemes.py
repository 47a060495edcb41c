"""The docid schemes by name. A new one is a function from `Making` to docids and a row of `SCHEMES`.

Schemes that read a docid off the document are functions in `text`; those that cluster vectors are in
`clusters`; those that a trained model writes are in `writing`. All are settled by one clash rule.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gr2.baselines.dense import document_vectors
from gr2.data import Collection
from gr2.docids import Docids, Proposals, settle
from gr2.docids.clusters import kmeans_paths, product_codes, residual_codes
from gr2.docids.codes import code_tokeniser, count, written
from gr2.docids.text import numbers, summaries, term_sets, titles, tokeniser, urls
from gr2.docids.writing import Writer, WritingConfig
from gr2.embed import Vectors
from gr2.progress import shown


@dataclass(frozen=True, kw_only=True)
class Making:
    """What a scheme may use; each uses what it needs."""

    collection: Collection
    backbone: str
    """Folder or hub name of a checkpoint: its tokenizer reads text docids."""
    encoder: str = ""
    """Folder or hub name of the checkpoint that makes the vectors to cluster; empty: the backbone."""
    folder: Path
    """For what is kept between interruptions."""
    words: int = 12
    """Words at which a docid is cut that is read off the document."""
    branches: int = 10
    """Clusters of a level of k-means. DSI: 10. NCI: 30."""
    leaf: int = 100
    """Documents of a cluster that is not split again. DSI: 100. NCI: 30."""
    places: int = 0
    """Codes of a quantised docid; 0 is the scheme's own: 24 (pq, Ultron) or 32 (rq, RIPOR)."""
    codes: int = 256
    """Codes to choose from at each place, a power of 2."""
    generator: str = ""
    """Folder or hub name of the checkpoint that learns to write docids; empty: the backbone."""
    writing: WritingConfig = WritingConfig()
    """How it learns and writes."""
    seed: int = 0
    resume: bool = False
    progress: bool = False
    known_vectors: Vectors | None = None
    """The documents' vectors in the order of docnos, where they are at hand."""

    @cached_property
    def docnos(self) -> list[str]:
        """In order."""
        return sorted(document.docno for document in self.collection.documents)

    def vectors(self) -> Vectors:
        """[N, width] the documents' vectors in the order of docnos, made once."""
        if self.known_vectors is not None:
            return self.known_vectors
        return document_vectors(
            self.collection, self.docnos, self.encoder or self.backbone, self.folder, progress=self.progress
        )

    @property
    def reads(self) -> str:
        """What the encoder is called."""
        return Path(self.encoder or self.backbone).name

    def about(self, scheme: str, **more: Any) -> dict[str, Any]:
        """What is kept with docids."""
        own = {"backbone": Path(self.backbone).name, "fingerprint": self.collection.fingerprint}
        return {"scheme": scheme, **own, **more}


Scheme = Callable[[Making], Docids]


def build(scheme: str, making: Making) -> Docids:
    """The docids of a scheme by name; an unknown name lists the known ones."""
    if scheme not in SCHEMES:
        raise ValueError(f"no docid scheme is called {scheme!r}; there are: {', '.join(SCHEMES)}")
    if not making.docnos:
        raise ValueError(f"{making.collection.name} has no documents, so there is nothing to name")
    return SCHEMES[scheme](making)


def _text(name: str, propose: Callable[..., Proposals]) -> Scheme:
    def make(making: Making) -> Docids:
        proposals = propose(making.collection.documents, words=making.words)
        return settle(proposals, tokeniser(making.backbone), making.about(name, words=making.words))

    return make


def _number(making: Making) -> Docids:
    proposals = numbers(making.collection.documents)
    sizes = [10] * len(str(len(making.docnos) - 1))
    return settle(proposals, code_tokeniser(sizes), making.about("number", codes=count(sizes), choices=10))


def _kmeans(making: Making) -> Docids:
    paths = kmeans_paths(making.vectors(), branches=making.branches, leaf=making.leaf, seed=making.seed)
    sizes = [max(making.branches, making.leaf)] * max(map(len, paths))
    about = making.about("kmeans", branches=making.branches, leaf=making.leaf, seed=making.seed)
    about |= {"codes": count(sizes), "choices": sizes[0], "encoder": making.reads}
    return settle(_coded(making.docnos, paths), code_tokeniser(sizes), about)


def _quantised(name: str, quantise: Callable[..., tuple[Any, Vectors]], usual: int) -> Scheme:
    def make(making: Making) -> Docids:
        places = making.places or usual
        codes, rows = quantise(making.vectors(), places=places, codes=making.codes)
        sizes = [making.codes] * places
        about = making.about(name, places=places, codes=count(sizes), choices=making.codes)
        about |= {"encoder": making.reads}
        docids = settle(_coded(making.docnos, codes.tolist()), code_tokeniser(sizes), about)
        digits = np.zeros((count(sizes) - len(rows), rows.shape[1]), np.float32)
        return replace(docids, code_vectors=np.concatenate([rows, digits]))

    return make


def _written(name: str, *, regularised: bool) -> Scheme:
    def make(making: Making) -> Docids:
        fusion = replace(making.writing.fusion, regularised=regularised)
        writer = learned(replace(making, writing=replace(making.writing, fusion=fusion)))
        texts = {document.docno: document.contents for document in making.collection.documents}
        kept = making.folder / writer.written

        def propose(docnos: Iterable[str], attempt: int) -> Proposals:
            wanted = {docno: texts[docno] for docno in docnos}
            return writer.propose(wanted, kept, attempt=attempt, progress=making.progress)

        about = making.about(name, seed=making.seed, targets=writer.pairs.targets)
        about |= {"generator": Path(making.generator or making.backbone).name}
        of_fusion = ("fusion", "radius", "tries")
        about |= {n: v for n, v in asdict(writer.config).items() if regularised or n not in of_fusion}
        return settle(
            propose(texts, 0),
            tokeniser(making.backbone),
            about,
            again=propose,
            tries=making.writing.tries if regularised and making.writing.radius else 0,
        )

    return make


def learned(making: Making) -> Writer:
    """The trained model that writes docids; its checkpoints lie in the folder of the making."""
    generator = making.generator or making.backbone
    writer = Writer.of(making.collection, generator, making.writing, seed=making.seed)
    run = writer.learn(making.folder / "generator", resume=making.resume)
    for _ in shown(run, "docid model", making.writing.steps, show=making.progress):
        pass
    return writer


def _coded(docnos: Iterable[str], paths: Iterable[Sequence[int]]) -> Proposals:
    return {docno: [(written(path), 0.0)] for docno, path in zip(docnos, paths, strict=True)}


SCHEMES: Mapping[str, Scheme] = {
    "title": _text("title", titles),
    "url": _text("url", urls),
    "summary": _text("summary", summaries),
    "terms": _text("terms", term_sets),
    "query": _written("query", regularised=False),
    "fusion": _written("fusion", regularised=True),
    "number": _number,
    "kmeans": _kmeans,
    "pq": _quantised("pq", product_codes, 24),
    "rq": _quantised("rq", residual_codes, 32),
}
