"""One folder of every kind that gr2 writes, how it is written, and how it is read."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gr2.bm25 import BM25, BM25Config
from gr2.data.documents import DocumentStore, write_documents
from gr2.data.formats import read_folder, write_folder
from gr2.data.runs import Run
from gr2.docids.docids import Docids
from gr2.docids.trie import Trie
from gr2.judge.exports import export as export_judgements
from gr2.judge.judged_queries import JudgedQueries
from gr2.judge.judgements import Judgement
from gr2.judge.store import JudgeConfig, JudgementStore
from gr2.model.backbone import FreshDecoder, parts_of, tokenizer_of
from gr2.model.config import LookAheadConfig
from gr2.model.gr2 import GR2
from gr2.model.look_ahead import LookAhead
from gr2.model.look_ahead_io import load_look_ahead, save_look_ahead
from gr2.model.static_encoder import StaticEncoder
from gr2.model.vector_storage import FullVectors, stored_as
from gr2.model.word_weights import WordWeights
from gr2.store import MANIFEST, verify, write_manifest
from gr2.systems.config import GenerativeConfig
from gr2.systems.generative import train
from gr2.training import checkpoints
from gr2.workflows.config import QuestionsConfig
from gr2.workflows.export import write_vectors
from gr2.workflows.generator import train_generator
from gr2.workflows.pretrain import export
from gr2.workflows.versions import published, versions
from helpers import tiny

Write = Callable[[Path, int], object]
"""Writes a folder or file in its version 0 or 1."""


@dataclass(frozen=True)
class Kind:
    """A kind of folder or file."""

    folder: Path
    load: Callable[[Path], Any]
    write: Write | None = None
    """None if only another kind is written by itself."""


def make_all(place: Path) -> dict[str, Kind]:
    """Write one of every kind that has checksums below `place`."""
    backbone = tiny.save_checkpoint(place / "checkpoint", "encoder", width=36)
    data = tiny.graded()
    model = train(data, place / "model", GenerativeConfig(backbone=str(backbone)))
    own = GR2.fresh(backbone, model.docids, model.config)
    bm25 = BM25.load(place / "model" / "look_ahead" / "bm25")
    quantised = _quantised(place)

    def write_model(path: Path, version: int) -> None:
        model.provenance["version"] = version
        model.save_pretrained(path, documents=data.documents)

    def write_look_ahead(path: Path, version: int) -> None:
        config = replace(model.look_ahead.config, scale=10.0 + version)
        save_look_ahead(model.look_ahead.with_config(config), path)

    kinds = {
        "model": Kind(place / "model", GR2.from_pretrained, write_model),
        "docids": Kind(
            place / "model" / "docids",
            Docids.load,
            lambda path, version: replace(model.docids, about={"version": version}).save(path),
        ),
        "codes": Kind(place / "codes", Docids.load, lambda path, version: _codes(version).save(path)),
        "trie": Kind(
            place / "model" / "trie",
            Trie.load,
            lambda path, version: (model.trie.remove([0]) if version else model.trie).save(path),
        ),
        "look-ahead": Kind(place / "model" / "look_ahead", load_look_ahead, write_look_ahead),
        "quantised": Kind(
            place / "quantised",
            load_look_ahead,
            lambda path, version: save_look_ahead(
                quantised.with_config(LookAheadConfig(scale=10.0 + version)), path
            ),
        ),
        "bm25": Kind(
            place / "model" / "look_ahead" / "bm25",
            BM25.load,
            lambda path, version: BM25.index(data.documents, BM25Config(k1=1.0 + version)).save(path),
        ),
        "words": Kind(
            place / "words",
            WordWeights.load,
            lambda path, version: WordWeights.of(bm25, 4 + version).save(path),
        ),
        "backbone": Kind(
            place / "backbone",
            _backbone,
            lambda path, version: export(
                own.network, str(backbone), path, {"made from": {"version": version}}
            ),
        ),
        "generator": Kind(_generator(place), _backbone),
        "version": Kind(_version(place), GR2.from_pretrained),
        "checkpoint": Kind(_checkpoint(place, own), lambda path: _resume(path, own.network)),
        "judgements": Kind(place / "judgements", JudgementStore),
    }
    for name in ("codes", "quantised", "words", "backbone"):
        kinds[name].write(kinds[name].folder, 0)
    _judgements(place / "judgements")
    return kinds


def other_outputs(look_ahead: LookAhead) -> dict[str, Kind]:
    """What gr2 writes for people and other tools, without checksums: names, and nothing written yet."""
    turned = replace(look_ahead, docnos=look_ahead.docnos[::-1])

    def scored(version: int) -> Run:
        return Run.from_dict({"q1": {"d1": 2.0 + version, "d2": 1.0}})

    return {
        "collection": Kind(
            Path("shop"), read_folder, lambda path, version: write_folder(tiny.graded(30 + version), path)
        ),
        "exported judgements": Kind(
            Path("judged"),
            JudgedQueries.read,
            lambda path, version: export_judgements(
                {"q1": "sour fruit"}, {"q1": {"d1": 1 + version}}, path, "beir"
            ),
        ),
        "exported vectors": Kind(
            Path("vectors"),
            verify,
            lambda path, version: write_vectors(turned if version else look_ahead, path),
        ),
        "documents": Kind(
            Path("documents.sqlite"),
            lambda path: DocumentStore(path).close(),
            lambda path, version: write_documents(tiny.graded(30 + version).documents, path),
        ),
        "run": Kind(Path("a.run"), Run.read, lambda path, version: scored(version).write(path)),
    }


def _resume(folder: Path, network: Any) -> Any:
    """Read a checkpoint as a resumed training does."""
    optimiser = torch.optim.AdamW(network.parameters())
    return checkpoints.restore(folder.parent, network, optimiser, {"steps": 3})


def _checkpoint(place: Path, model: GR2) -> Path:
    state = checkpoints.State(step=3, mean={"a": torch.ones(2)}, best_value=0.5)
    optimiser = torch.optim.AdamW(model.network.parameters())
    checkpoints.save(place / "run", model.network, optimiser, state, {"steps": 3})
    return place / "run" / "checkpoint-00000003"


def _judgements(folder: Path) -> None:
    store = JudgementStore(folder, JudgeConfig(grades=2, words=("no", "partly", "yes")))
    store.append([Judgement("sour fruit", "d1", 2, "ann"), Judgement("hot", "d2", 1, "bob")])
    store.undo("bob")


def _backbone(folder: Path) -> Any:
    return parts_of(folder, FreshDecoder()), tokenizer_of(folder)


def _generator(place: Path) -> Path:
    """A generator that has learned to ask about thirty texts."""
    texts = [tiny.some_words(number) for number in range(30)]
    pairs = [(text, " ".join(text.split()[:2])) for text in texts]
    backbone = tiny.save_checkpoint(place / "t5", "t5")
    train_generator(pairs, str(backbone), place / "generator", QuestionsConfig(steps=2, batch=4))
    return place / "generator"


def _version(place: Path) -> Path:
    """An earlier version of a model."""
    folder = shutil.copytree(place / "model", place / "published")
    with published(folder) as temporary:
        (temporary / "README.md").unlink()
    return versions(folder)[0].folder


def _codes(version: int) -> Docids:
    """Docids of codes with vectors."""
    vectors = np.full((4, 8), version, np.float32)
    about = {"codes": 4, "version": version}
    return Docids(("d1", "d2"), ("0-2", "1-3"), ((0, 2), (1, 3)), {"rank 1": 2}, about, 2, vectors)


def _quantised(place: Path) -> LookAhead:
    """Look-ahead in product-quantised vectors, with weights of words and a static encoder."""
    documents = tiny.graded(300).documents
    encoder = StaticEncoder.load(tiny.save_static_encoder(place / "static"))
    vectors = FullVectors(encoder.encode([document.text for document in documents]))
    words = WordWeights.of(BM25.index(documents), 4)
    docnos = tuple(document.docno for document in documents)
    return LookAhead(LookAheadConfig(), docnos, stored_as(vectors, "pq"), bm25=words, encoder=encoder)


def seal(folder: Path) -> None:
    """Write every manifest of a folder anew, the inner ones first: a change that no checksum can show."""
    inner = sorted(folder.rglob(MANIFEST), key=lambda path: -len(path.parts))
    for path in inner:
        write_manifest(path.parent)
