"""A trained network with its tokenizer, docids and trie: one folder, and `search`.

`save_pretrained` writes everything needed to search into one folder; `from_pretrained` needs that folder
alone. This file knows no training.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gr2.backbone import tokenizer_of
from gr2.batches import padded
from gr2.card import card
from gr2.data import Document
from gr2.decode import Normaliser, Ranked, beam, exact
from gr2.docids import Docids
from gr2.docids.text import tokeniser
from gr2.documents import write_documents
from gr2.network import END, FIRST, Network, NetworkConfig
from gr2.runs import Run
from gr2.store import atomic_folder, verify, write_json, write_text
from gr2.trie import Trie

FORMAT = 1
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class GR2Config:
    """What a folder has to say besides weights and docids."""

    network: NetworkConfig
    normaliser: Normaliser = "vocabulary"
    """What the model was trained with, hence searched with."""
    longest: int = 64
    """Source tokens at which a query is cut."""


@dataclass(frozen=True)
class Result:
    """One answer: the document, the identifier it was reached by, and log P of that identifier."""

    docno: str
    docid: str
    score: float


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
        """Put the parts together; use `GR2.fresh` or `GR2.from_pretrained` to get one."""
        self.network, self.tokenizer, self.docids = network, tokenizer, docids
        self.config, self.provenance = config, dict(provenance)
        self.alphabet = alphabet_of(docids)

    @classmethod
    def fresh(cls, backbone: str | Path, docids: Docids, config: GR2Config, *, seed: int = 0) -> "GR2":
        """An untrained model from a backbone; docid tokens are its own, or codes that it has to learn."""
        alphabet = alphabet_of(docids)
        if "codes" in docids.about:
            network = Network.build(backbone, len(alphabet), config.network, seed=seed)
            if docids.code_vectors is not None:
                network.take_codes(torch.from_numpy(docids.code_vectors[alphabet]))
        else:
            _check_tokens(docids, str(backbone))
            network = Network.build(backbone, alphabet.tolist(), config.network, seed=seed)
        tokenizer = tokenizer_of(backbone)
        return cls(network, tokenizer, docids, config, {"backbone": Path(backbone).name, "seed": seed})

    @cached_property
    def tokens(self) -> list[list[int]]:
        """Each docid in the decoder's own vocabulary: `FIRST` + its place in the alphabet."""
        flat, offsets = self.docids.flat()
        compact = np.searchsorted(self.alphabet, flat) + FIRST
        return [compact[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]

    @cached_property
    def trie(self) -> Trie:
        """All docids as paths."""
        return Trie.from_sequences(self.tokens, end=END)

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts → source tokens, cut at the model's limit."""
        if not texts:
            return []
        rows = self.tokenizer(list(texts), truncation=True, max_length=self.config.longest)["input_ids"]
        return [list(row) for row in rows]

    def search(self, queries: str | Mapping[str, str], k: int = 10, **options: Any) -> Any:
        """The k best documents of a query (a list of results), or of many (a run).

        Options: `beams` (default 20 or k), `batch` (16), `mode` ("beam" or "exact"), `name`, and `weight`
        (0): what is found is ranked by log P + weight · sim(f_q, f_id).
        """
        if isinstance(queries, str):
            found = self._results({"q": queries}, k, **options)
            return found["q"]
        name = options.pop("name", "gr2")
        found = self._results(queries, k, **options)
        return Run.from_dict({qid: {r.docno: r.score for r in row} for qid, row in found.items()}, name)

    @torch.inference_mode()
    def _results(
        self,
        queries: Mapping[str, str],
        k: int,
        *,
        beams: int = 20,
        batch: int = 16,
        mode: Literal["beam", "exact"] = "beam",
        weight: float = 0.0,
    ) -> dict[str, list[Result]]:
        if k < 1:
            raise ValueError(f"expected k of at least 1, found {k}")
        self.network.eval()
        decoder = self.network.decoder_for_search()
        qids = list(queries)
        self._report_cut(queries)
        found: dict[str, list[Result]] = {}
        for start in range(0, len(qids), batch):
            part = qids[start : start + batch]
            ids, mask = padded(self.read([queries[qid] for qid in part]))
            states = self.network.encode(ids, mask)
            prior = self.network.prefer(ids, states, mask)
            wanted = max(beams, k) if weight else k
            how: dict[str, Any] = {"k": wanted, "normaliser": self.config.normaliser, "prior": prior}
            how |= {"beams": max(beams, k)} if mode == "beam" else {}
            how |= {"project": self.network.project_docid} if weight else {}
            ranked = (beam if mode == "beam" else exact)(decoder, self.trie, states, mask, **how)
            rows = self._named(self._reweighted(ranked, states, mask, weight))
            found |= {qid: row[:k] for qid, row in zip(part, rows, strict=True)}
        return found

    def _reweighted(self, ranked: Ranked, states: Tensor, mask: Tensor, weight: float) -> Ranked:
        """Each query's docids by log P + weight · sim(f_q, f_id) (cosine)."""
        if ranked.vectors is None:
            return ranked
        counts = np.diff(ranked.offsets)
        owner = np.repeat(np.arange(len(counts)), counts)
        f_q = self.network.represent_query(states, mask)[torch.from_numpy(owner)]
        near = torch.cosine_similarity(f_q, ranked.vectors, dim=1).numpy()
        scores = (ranked.scores + weight * near).astype(np.float32)
        order = np.lexsort((ranked.docids, -scores, owner))
        return replace(ranked, docids=ranked.docids[order], scores=scores[order], vectors=None)

    def _report_cut(self, queries: Mapping[str, str]) -> None:
        """Say which queries are longer than the model reads; they are answered by their beginning."""
        lengths = map(len, self.tokenizer(list(queries.values()))["input_ids"]) if queries else ()
        cut = [qid for qid, length in zip(queries, lengths, strict=True) if length > self.config.longest]
        if cut:
            message = "%d of %d queries are longer than %d tokens and were cut, for example %s"
            logger.warning(message, len(cut), len(queries), self.config.longest, cut[0])

    def _named(self, ranked: Ranked) -> list[list[Result]]:
        rows = []
        for a, b in zip(ranked.offsets[:-1], ranked.offsets[1:], strict=True):
            pairs = zip(ranked.docids[a:b], ranked.scores[a:b], strict=True)
            rows.append([Result(self.docids.docnos[i], self.docids.texts[i], float(s)) for i, s in pairs])
        return rows

    def save_pretrained(self, folder: Path, *, documents: Iterable[Document] = ()) -> None:
        """Write everything needed to search into one folder, with a manifest.

        Documents, where they are given, are for whoever shows results: `gr2 serve` reads them from there.
        """
        with atomic_folder(folder) as temporary:
            if documents:
                write_documents(documents, temporary / "documents.sqlite")
            save_file(self.network.weights(), temporary / "network.safetensors")
            self.network.encoder.config.save_pretrained(temporary / "encoder")
            self.network.decoder.config.save_pretrained(temporary / "decoder")
            self.tokenizer.save_pretrained(temporary / "tokenizer")
            self.docids.save(temporary / "docids")
            self.trie.save(temporary / "trie")
            content = {"format": FORMAT, "family": self.network.family, "config": asdict(self.config)}
            provenance = {**self.provenance, "gr2": version("gr2")}
            write_json(temporary / "config.json", content | {"provenance": provenance})
            write_text(temporary / "README.md", card(self.facts(), provenance))

    def facts(self) -> dict[str, Any]:
        """What the model card says of the model itself."""
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
            "cut": self.config.longest,
        }

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "GR2":
        """Read a folder that `save_pretrained` wrote; a changed byte or another format is refused."""
        from transformers import AutoTokenizer

        folder = Path(folder)
        verify(folder)
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if content.get("format") != FORMAT:
            raise ValueError(f"{folder}: has format {content.get('format')}, this version reads {FORMAT}")
        stored = content["config"]
        config = GR2Config(**{**stored, "network": NetworkConfig(**stored["network"])})
        docids = Docids.load(folder / "docids")
        tokenizer: Any = AutoTokenizer.from_pretrained(folder / "tokenizer")
        network = Network.empty(
            content["family"],
            folder / "encoder",
            folder / "decoder",
            FIRST + len(alphabet_of(docids)),
            config.network,
        )
        network.load(load_file(folder / "network.safetensors"))
        model = cls(network, tokenizer, docids, config, content["provenance"])
        model.trie = Trie.load(folder / "trie")  # else it would be built from the docids on first use
        return model


def _check_tokens(docids: Docids, backbone: str, *, some: int = 100) -> None:
    """Refuse text docids whose tokens another tokenizer made: this backbone would read other words."""
    step = max(1, len(docids) // some)
    texts, tokens = list(docids.texts[::step]), docids.tokens[::step]
    for text, read, stored in zip(texts, tokeniser(backbone)(texts), tokens, strict=True):
        if tuple(read) != stored:
            theirs = docids.about.get("backbone", "another backbone")
            raise ValueError(
                f"the docids were built for the tokens of {theirs}, but {backbone} reads "
                f"{text!r} otherwise; build them with --backbone {backbone}"
            )


def alphabet_of(docids: Docids) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The tokens that occur in docids, ascending: the decoder's vocabulary behind start and end."""
    return np.unique(docids.flat()[0])
