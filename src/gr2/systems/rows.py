"""The rows of the registry: each function builds a system, with heavy imports inside."""

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gr2.bm25 import BM25Config
from gr2.data.runs import Run
from gr2.model.config import BACKBONE, SearchConfig, VectorConfig
from gr2.systems.config import GenerativeConfig, LookAheadOptions
from gr2.systems.registry import NoOptions, System, SystemContext, register_system

if TYPE_CHECKING:
    from collections.abc import Mapping


@register_system("bm25", "BM25 over title and text", options=BM25Config)
def _bm25(context: SystemContext, options: BM25Config) -> System:
    from gr2.bm25 import BM25

    return BM25.index(context.collection.documents, options, progress=context.progress)


@dataclass(frozen=True, kw_only=True)
class DenseOptions:
    """Dense retrieval."""

    backbone: str = BACKBONE
    """gr2-mini, or folder or hub name of the checkpoint that encodes documents and queries;
    a model2vec folder is a static encoder."""
    vectors: VectorConfig = VectorConfig()


@register_system(
    "dense", "a pretrained text encoder without training", options=DenseOptions, needs=("a backbone",)
)
def _dense(context: SystemContext, options: DenseOptions) -> System:
    from gr2.model.text_encoder import load_encoder
    from gr2.systems.dense import Dense

    encoder = load_encoder(options.backbone)
    return Dense.index(context.collection.documents, encoder, options.vectors, progress=context.progress)


class _Control:
    """A control that ranks by training judgements only, without reading documents."""

    def __init__(self, context: SystemContext, kind: str) -> None:
        self.context, self.kind = context, kind
        self.judgements = context.judgements

    def search(self, queries: "Mapping[str, str]", k: int) -> Run:
        from gr2.evaluate.controls import neighbours, popularity

        if self.kind == "popularity":
            return popularity(self.judgements, queries, k)
        return neighbours(self.judgements, self.context.collection.queries, queries, k)

    def __str__(self) -> str:
        return f"{self.kind} from the split {self.context.train}"


@register_system("popularity", "one list for every query, by training judgements", uses_judgements=True)
def _popularity(context: SystemContext, options: NoOptions) -> System:
    return _Control(context, "popularity")


@register_system("neighbours", "relevant documents of similar training queries", uses_judgements=True)
def _neighbours(context: SystemContext, options: NoOptions) -> System:
    return _Control(context, "neighbours")


@register_system(
    "look-ahead",
    "words and vectors, and what judgements teach; no decoder",
    options=LookAheadOptions,
    needs=("a backbone",),
    learns=True,
)
def _look_ahead(context: SystemContext, options: LookAheadOptions) -> System:
    from gr2.systems.look_ahead import LookAheadSystem

    collection = context.collection
    if context.train != "train" and options.learn:
        collection = replace(collection, qrels={**collection.qrels, "train": context.judgements})
    return LookAheadSystem.build(collection, options, folder=context.folder, progress=context.progress)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """A trained model."""

    folder: Path
    """Model folder written by `gr2 train` or `gr2 index`."""
    search: SearchConfig = field(default_factory=SearchConfig)
    device: str = "auto"
    """Device to search on: auto takes cuda, then mps, else cpu."""


@register_system("model", "a trained model folder", options=ModelOptions, needs=("a model folder",))
def _model(context: SystemContext, options: ModelOptions) -> System:
    from gr2.model.gr2 import GR2
    from gr2.systems.generative import GenerativeSystem

    model = GR2.from_pretrained(options.folder, device=options.device)
    known = context.collection.docnos
    if strange := [docno for docno in model.docids.docnos if docno not in known]:
        raise ValueError(
            f"{options.folder} has {len(strange):,} documents that {context.collection.name} does not have, "
            f"such as {strange[0]!r}: it is a model of another collection"
        )
    return GenerativeSystem(model, options.search, options.folder.resolve().name)


@register_system(
    "gr2",
    "GR²: makes docids, trains, searches",
    options=GenerativeConfig,
    needs=("a backbone", "training"),
    learns=True,
)
def _gr2(context: SystemContext, options: GenerativeConfig) -> System:
    from gr2.systems.generative import GenerativeSystem, train

    collection = context.collection
    if context.train != "train":
        collection = replace(collection, qrels={**collection.qrels, "train": context.judgements})
    if context.resume and context.folder is None:
        raise ValueError("there is nothing to resume without a folder: name it with --work")
    if context.folder is not None:
        model = train(collection, context.folder, options, resume=context.resume, progress=context.progress)
        return GenerativeSystem(model, options.search)
    with tempfile.TemporaryDirectory() as folder:
        model = train(collection, Path(folder) / "model", options, progress=context.progress)
    return GenerativeSystem(model, options.search)
