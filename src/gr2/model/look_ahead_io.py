"""Look-ahead ↔ a folder: arrays, settings, the index of words, and the static encoder if it has one."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse

from gr2.bm25 import BM25
from gr2.model.config import LookAheadConfig
from gr2.model.document_vectors import Pieces
from gr2.model.look_ahead import LookAhead, Memory
from gr2.model.query_encoder import WordMap
from gr2.model.static_encoder import StaticEncoder
from gr2.model.vector_storage import Arrays, CodeVectors, read_stored
from gr2.model.word_weights import WordWeights
from gr2.store import atomic_folder, read_json, readable, steady, verify, write_json

WORDS: Mapping[type[BM25] | type[WordWeights], str] = {BM25: "bm25", WordWeights: "words"}
"""The folder of each kind of words."""


def save_look_ahead(look_ahead: LookAhead, folder: Path) -> None:
    """Write everything as a folder with a manifest."""
    pieces = look_ahead.pieces
    content = {
        "config": asdict(look_ahead.config),
        "docnos": list(look_ahead.docnos),
        "mix": None if pieces is None else pieces.mix,
    }
    with atomic_folder(folder) as temporary:
        save_file(_arrays(look_ahead), temporary / "look_ahead.safetensors")
        write_json(temporary / "look_ahead.json", content)
        if look_ahead.bm25 is not None:
            look_ahead.bm25.save(temporary / WORDS[type(look_ahead.bm25)])
        if look_ahead.encoder is not None:
            look_ahead.encoder.save(temporary / "encoder")


class _Content(TypedDict):
    """What look_ahead.json holds."""

    config: LookAheadConfig
    docnos: tuple[str, ...]
    mix: float | None


def load_look_ahead(folder: Path) -> LookAhead:
    """Read what `save_look_ahead` wrote; a changed byte is refused. Words stay on disk, memory-mapped."""
    return steady(folder, _read)


def _read(folder: Path) -> LookAhead:
    verify(folder, "look_ahead.json", "look_ahead.safetensors")
    content = read_json(folder / "look_ahead.json", _Content)
    words = (kind.load(folder / name) for kind, name in WORDS.items() if (folder / name).exists())
    encoder = StaticEncoder.load(folder / "encoder") if (folder / "encoder").exists() else None
    with readable(folder / "look_ahead.safetensors"):
        found = _of_arrays(content, load_file(folder / "look_ahead.safetensors"))
    return replace(found, bm25=next(words, None), encoder=encoder)


def _of_arrays(content: _Content, arrays: Mapping[str, NDArray[Any]]) -> LookAhead:
    """Look-ahead without the words and the encoder, which have folders of their own."""
    if "offsets.code_vectors" in arrays:  # of the same codes, which are saved once
        arrays = {**arrays, "offsets.sequences": arrays["vectors.sequences"]}
    vectors, parts, mix = read_stored(arrays, "vectors"), read_stored(arrays, "parts"), content["mix"]
    if vectors is None:
        raise ValueError("there are no vectors of documents")
    if (parts is None) != (mix is None):
        raise ValueError("look_ahead.json must have a mix if, and only if, there are pieces")
    return LookAhead(
        content["config"],
        content["docnos"],
        vectors,
        None if parts is None or mix is None else Pieces(parts, arrays["starts"], mix),
        offsets=read_stored(arrays, "offsets"),
        memory=_memory(arrays, len(content["docnos"])),
        centre=arrays.get("centre"),
        word_map=WordMap(arrays["map.centre"], arrays["map.turn"]) if "map.turn" in arrays else None,
        prior=arrays.get("prior"),
    )


def _arrays(look_ahead: LookAhead) -> Arrays:
    """All arrays by name."""
    found = look_ahead.vectors.arrays("vectors")
    if look_ahead.pieces is not None:
        found |= look_ahead.pieces.parts.arrays("parts") | {"starts": look_ahead.pieces.starts}
    if look_ahead.offsets is not None:
        found |= look_ahead.offsets.arrays("offsets")
        if isinstance(look_ahead.offsets, CodeVectors):
            found.pop("offsets.sequences")
    if look_ahead.prior is not None:
        found["prior"] = look_ahead.prior
    if look_ahead.centre is not None:
        found["centre"] = np.ascontiguousarray(look_ahead.centre)
    if look_ahead.word_map is not None:
        found |= {"map.centre": look_ahead.word_map.centre, "map.turn": look_ahead.word_map.turn}
    if look_ahead.memory is not None:
        gains = look_ahead.memory.gains
        found |= {"queries": look_ahead.memory.queries, "gains.data": gains.data}
        found |= {"gains.indices": gains.indices, "gains.indptr": gains.indptr}
    return found


def _memory(arrays: Mapping[str, NDArray[Any]], documents: int) -> Memory | None:
    if "queries" not in arrays:
        return None
    gains = (arrays["gains.data"], arrays["gains.indices"], arrays["gains.indptr"])
    shape = (len(arrays["queries"]), documents)
    return Memory(arrays["queries"], sparse.csr_matrix(gains, shape=shape))
