"""One folder of every kind that gr2 writes, how it is written, and how it is read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gr2.bm25 import BM25
from gr2.docids.docids import Docids
from gr2.docids.trie import Trie
from gr2.judge.judgements import Judgement
from gr2.judge.store import JudgeConfig, JudgementStore
from gr2.model.backbone import FreshDecoder, parts_of, tokenizer_of
from gr2.model.gr2 import GR2
from gr2.model.look_ahead_io import load_look_ahead
from gr2.model.word_weights import WordWeights
from gr2.store import MANIFEST, write_manifest
from gr2.systems.config import GenerativeConfig
from gr2.systems.generative import train
from gr2.training import checkpoints
from gr2.workflows.pretrain import export
from helpers import tiny


@dataclass(frozen=True)
class Kind:
    """A kind of folder."""

    folder: Path
    load: Callable[[Path], Any]


def _resume(folder: Path, network: Any) -> Any:
    """Read a checkpoint as a resumed training does."""
    optimiser = torch.optim.AdamW(network.parameters())
    return checkpoints.restore(folder.parent, network, optimiser, {"steps": 3})


def _judgements(folder: Path) -> None:
    store = JudgementStore(folder, JudgeConfig(grades=2, words=("no", "partly", "yes")))
    store.append([Judgement("sour fruit", "d1", 2, "ann"), Judgement("hot", "d2", 1, "bob")])
    store.undo("bob")


def make_all(place: Path) -> dict[str, Kind]:
    """Write one folder of every kind below `place`."""
    backbone = tiny.save_checkpoint(place / "checkpoint", "encoder", width=36)
    model = train(tiny.graded(), place / "model", GenerativeConfig(backbone=str(backbone)))
    own = GR2.fresh(backbone, model.docids, model.config)
    export(own.network, str(backbone), place / "backbone", {"made from": {}})
    optimiser = torch.optim.AdamW(own.network.parameters())
    state = checkpoints.State(step=3, mean={"a": torch.ones(2)}, best_value=0.5)
    checkpoints.save(place / "run", own.network, optimiser, state, {"steps": 3})
    _judgements(place / "judgements")
    WordWeights.of(BM25.load(place / "model" / "look_ahead" / "bm25"), 4).save(place / "words")
    return {
        "model": Kind(place / "model", GR2.from_pretrained),
        "docids": Kind(place / "model" / "docids", Docids.load),
        "trie": Kind(place / "model" / "trie", Trie.load),
        "look-ahead": Kind(place / "model" / "look_ahead", load_look_ahead),
        "bm25": Kind(place / "model" / "look_ahead" / "bm25", BM25.load),
        "words": Kind(place / "words", WordWeights.load),
        "backbone": Kind(
            place / "backbone", lambda folder: (parts_of(folder, FreshDecoder()), tokenizer_of(folder))
        ),
        "checkpoint": Kind(place / "run" / "checkpoint-00000003", lambda path: _resume(path, own.network)),
        "judgements": Kind(place / "judgements", JudgementStore),
    }


def seal(folder: Path) -> None:
    """Write every manifest of a folder anew, the inner ones first: a change that no checksum can show."""
    inner = sorted(folder.rglob(MANIFEST), key=lambda path: -len(path.parts))
    for path in inner:
        write_manifest(path.parent)
