"""A network with its tokenizer, docids and trie: one folder that holds everything needed to search.

`save_pretrained` writes the folder, `from_pretrained` reads it, and `search` goes through `Searcher`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from gr2.data.collection import Document
from gr2.data.documents import write_documents
from gr2.data.runs import Run
from gr2.docids.docids import Docids
from gr2.docids.trie import Trie
from gr2.judge.judged_queries import JudgedQueries
from gr2.model.backbone import tokeniser, tokenizer_of
from gr2.model.card import FIGURES, Measured, card
from gr2.model.config import GR2Config, SearchConfig
from gr2.model.device import device_of
from gr2.model.encoder import Encoder
from gr2.model.families import Family
from gr2.model.hub import located
from gr2.model.look_ahead import LookAhead
from gr2.model.look_ahead_io import load_look_ahead, save_look_ahead
from gr2.model.network import END, FIRST, Network
from gr2.model.query_encoder import QueryEncoder, WordEncoder
from gr2.model.searcher import Result, Searcher
from gr2.model.tokenizer_files import save_tokenizer
from gr2.store import (
    MANIFEST,
    atomic_folder,
    read_json,
    readable,
    steady,
    typed,
    verify,
    write_json,
    write_text,
)

FORMAT = 2
"""Format of a model folder. Format 1 had other names in config.json; `from_pretrained` still reads it."""
JUDGED = "judged.jsonl"
"""The judgements that look-ahead learned from, in a model folder."""
RENAMED = {"longest": "max_tokens", "loud": "unit_norm_head"}
"""Names of fields of config.json in format 1 → their current names."""

NEEDED = (
    *("config.json", "network.safetensors", "encoder/config.json", "decoder/config.json"),
    *(f"docids/{MANIFEST}", f"trie/{MANIFEST}", "tokenizer/tokenizer_config.json"),
)
"""Files without which a folder is no model."""


class GR2:
    """A generative retrieval model: query in, docids out, best first."""

    def __init__(
        self,
        network: Network,
        tokenizer: Any,
        docids: Docids,
        config: GR2Config,
        provenance: Mapping[str, Any],
    ) -> None:
        """Store the parts; use `GR2.fresh` or `GR2.from_pretrained` to get a model."""
        self.network, self.tokenizer, self.docids = network, tokenizer, docids
        self.config, self.provenance = config, dict(provenance)
        self.look_ahead: LookAhead | None = None
        self.judged: JudgedQueries | None = None
        """What look-ahead learned from; None if that is not known, as in folders of earlier versions."""
        self.alphabet = alphabet_of(docids)

    @classmethod
    def fresh(cls, backbone: str | Path, docids: Docids, config: GR2Config, *, seed: int = 0) -> "GR2":
        """An untrained model from a backbone; docid tokens are the backbone's tokens, or new codes."""
        alphabet = alphabet_of(docids)
        if docids.codes is not None:
            network = Network.build(backbone, len(alphabet), config.network, seed=seed)
            if docids.code_vectors is not None:
                network.attach_code_vectors(torch.from_numpy(docids.code_vectors[alphabet]))
        else:
            _check_tokens(docids, str(backbone))
            network = Network.build(backbone, alphabet.tolist(), config.network, seed=seed)
        tokenizer = tokenizer_of(backbone)
        return cls(network, tokenizer, docids, config, {"backbone": Path(backbone).name, "seed": seed})

    @cached_property
    def tokens(self) -> list[list[int]]:
        """Each docid in the decoder's own vocabulary: `FIRST` + the token's index in the alphabet."""
        flat, offsets = self.docids.flat()
        compact = np.searchsorted(self.alphabet, flat) + FIRST
        return [compact[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]

    @cached_property
    def trie(self) -> Trie:
        """The prefix tree of all docids."""
        return Trie.from_sequences(self.tokens, end=END)

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts → source tokens, truncated to the model's limit."""
        if not texts:
            return []
        rows = self.tokenizer(list(texts), truncation=True, max_length=self.config.max_tokens)["input_ids"]
        return [list(row) for row in rows]

    @cached_property
    def query_encoder(self) -> QueryEncoder:
        """What turns queries into vectors for look-ahead."""
        if self.look_ahead is not None and self.look_ahead.encoder is not None:
            return self.look_ahead.encoder
        if self.look_ahead is None or self.look_ahead.word_map is None:
            return Encoder(str(self.provenance.get("backbone", "")), self.network.encoder, self.tokenizer)
        table = self.network.encoder.get_input_embeddings().weight.detach().cpu().numpy()
        return WordEncoder(table, self.tokenizer, self.look_ahead.word_map, self.config.max_tokens)

    def with_look_ahead(self, look_ahead: LookAhead | None) -> "GR2":
        """The same model with another look-ahead, or with none."""
        model = GR2(self.network, self.tokenizer, self.docids, self.config, self.provenance)
        model.look_ahead, model.trie, model.judged = look_ahead, self.trie, self.judged
        return model

    def searcher(self, config: SearchConfig | None = None) -> Searcher:
        """A searcher over this model."""
        return Searcher(self, config)

    def search(self, query: str, k: int = 10, config: SearchConfig | None = None) -> list[Result]:
        """The k best documents of a query, best first."""
        return Searcher(self, config).search(query, k)

    def search_many(
        self,
        queries: Mapping[str, str],
        k: int = 10,
        config: SearchConfig | None = None,
        *,
        name: str = "gr2",
    ) -> Run:
        """The k best documents of each query (qid → text), as a run."""
        return Searcher(self, config).search_many(queries, k, name=name)

    def save_pretrained(self, folder: Path, *, documents: Iterable[Document] = ()) -> None:
        """Write everything needed to search into one folder, with a manifest.

        Documents, if given, are saved too, so that `gr2 serve` can show them with results.
        """
        with atomic_folder(folder) as temporary:
            if documents:
                write_documents(documents, temporary / "documents.sqlite")
            save_file(
                {n: w.cpu() for n, w in self.network.weights().items()}, temporary / "network.safetensors"
            )
            self.network.encoder.config.save_pretrained(temporary / "encoder")
            self.network.decoder.config.save_pretrained(temporary / "decoder")
            save_tokenizer(self.tokenizer, temporary / "tokenizer")
            self.docids.save(temporary / "docids")
            self.trie.save(temporary / "trie")
            self.save_learned(temporary)

    def save_learned(self, folder: Path) -> None:
        """Write the part of a model folder that changes when look-ahead learns."""
        if self.look_ahead is not None:
            save_look_ahead(self.look_ahead, folder / "look_ahead")
        if self.judged is not None:
            self.judged.write(folder / JUDGED)
        self.save_description(folder)

    def save_description(self, folder: Path) -> None:
        """Write config.json and the model card, with the figures in the folder's `measures.json` if any."""
        content = {"format": FORMAT, "family": self.network.family, "config": asdict(self.config)}
        self.provenance["gr2"] = version("gr2")
        write_json(folder / "config.json", content | {"provenance": self.provenance})
        path = folder / FIGURES
        measured = read_json(path, Measured) if path.is_file() else None
        write_text(folder / "README.md", card(self.facts(), self.provenance, measured))

    def facts(self) -> dict[str, Any]:
        """The model's own facts for the model card."""
        lengths, prior = [len(row) for row in self.tokens], self.network.prior
        return {
            "documents": len(self.docids),
            "scheme": self.docids.about.get("scheme", "of an unnamed scheme"),
            "mean": float(np.mean(lengths)),
            "longest": max(lengths),
            "family": self.network.family,
            "weights": sum(weight.numel() for weight in self.network.weights().values()),
            "prior_weights": 0 if prior is None else prior.vectors.numel(),
            "prior_bytes": 0 if prior is None else prior.nbytes,
            "normaliser": self.config.normaliser,
            "cut": self.config.max_tokens,
            "look_ahead": {} if self.look_ahead is None else self.look_ahead.nbytes,
        }

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, device: str = "auto") -> "GR2":
        """Load a folder that `save_pretrained` wrote; a damaged file or an unknown format is an error.

        A name such as `owner/model`, if it is no folder, is a model on the Hugging Face hub.
        """
        return steady(located(folder), lambda folder: cls._read(folder, device))

    @classmethod
    def _read(cls, folder: Path, device: str) -> "GR2":
        from transformers import AutoTokenizer

        verify(folder, *NEEDED)
        content = _content(folder)
        config, docids = content["config"], Docids.load(folder / "docids")
        with readable(folder / "tokenizer"):
            tokenizer: Any = AutoTokenizer.from_pretrained(folder / "tokenizer")
        with readable(folder / "encoder", folder / "decoder"):
            network = Network.empty(
                content["family"],
                folder / "encoder",
                folder / "decoder",
                FIRST + len(alphabet_of(docids)),
                config.network,
            )
        with readable(folder / "network.safetensors"):
            network.load(load_file(folder / "network.safetensors"))
        network.to(device_of(device))
        model = cls(network, tokenizer, docids, config, content["provenance"])
        model.trie = Trie.load(folder / "trie")  # otherwise it would be built from the docids on first use
        if (folder / "look_ahead").is_dir():
            model.look_ahead = load_look_ahead(folder / "look_ahead")
        if (folder / JUDGED).is_file():
            model.judged = JudgedQueries.load(folder / JUDGED)
        return model


class _Content(TypedDict):
    """What config.json holds."""

    format: int
    family: Family
    config: GR2Config
    provenance: dict[str, Any]


def _content(folder: Path) -> _Content:
    path = folder / "config.json"
    content = read_json(path, dict[str, Any])
    if content.get("format") not in (1, FORMAT):
        raise ValueError(f"{folder}: has format {content.get('format')}, this version reads {FORMAT}")
    content["config"] = _renamed(content.get("config"))
    found = typed(content, _Content, path)
    typed(found["provenance"].get("training", {}), dict[str, Any], path, "provenance.training")
    return found


def _renamed(value: object) -> object:
    """An object with the current names of its fields, at every depth."""
    if not isinstance(value, dict):
        return value
    return {RENAMED.get(name, name): _renamed(each) for name, each in value.items()}


def _check_tokens(docids: Docids, backbone: str, *, some: int = 100) -> None:
    """Reject text docids made with a different tokenizer, whose token ids mean other words here."""
    step = max(1, len(docids) // some)
    texts, tokens = list(docids.texts[::step]), docids.tokens[::step]
    for text, read, stored in zip(texts, tokeniser(backbone)(texts), tokens, strict=True):
        if tuple(read) != stored:
            theirs = docids.about.get("backbone", "another backbone")
            raise ValueError(
                f"the docids were built for the tokens of {theirs}, but {backbone} tokenises "
                f"{text!r} differently; rebuild them with --backbone {backbone}"
            )


def alphabet_of(docids: Docids) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The tokens that occur in docids, ascending: the decoder's vocabulary after start and end."""
    return np.unique(docids.flat()[0])
