"""Documents → pseudo-queries as docids: a fusion model is trained, then writes for every document.

What is written for a document depends on the model, the document and the seed, and on which documents share
its chunk: chunks are cut from the corpus in an order of its own (length, then docno), so neither the order of
a corpus nor the number of shards changes a byte. Shards may be written anywhere and again; those that are
there are not. This file knows no docid but the proposals it makes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from torch import Tensor

from gr2.backbone import tokenizer_of
from gr2.batches import padded
from gr2.data import Collection
from gr2.decode.free import free_beam
from gr2.docids import Proposals
from gr2.docids.fusion import Fusion, FusionConfig, objective
from gr2.docids.latent import on_sphere
from gr2.docids.pairs import PairBatches, PairRows, Pairs, pairs_of
from gr2.network import END, FIRST, START
from gr2.progress import Progress
from gr2.store import atomic_file
from gr2.train import TrainConfig, train

CHUNK = 16
"""Documents written for together."""
SHARD = 32
"""Chunks of a file of proposals."""
JUDGED = 64
"""Documents at most whose pairs the dev loss is taken from."""
FILLING = 256
"""Pairs that the latent space is laid out by."""


@dataclass(frozen=True, kw_only=True)
class WritingConfig:
    """How a docid model is trained and how it writes."""

    fusion: FusionConfig = FusionConfig()
    steps: int = 1000
    pairs: int = 20_000
    """Document-query pairs to learn from, at most; of each document its narrowest queries first."""
    batch: int = 16
    learning_rate: float = 1e-3
    pretrained_rate: float = 0.3
    """What the learning rate of pretrained parameters is multiplied by."""
    document: int = 128
    """Tokens at which a document is cut. paper: 512."""
    query: int = 16
    """Tokens at which a query is cut, so the longest docid."""
    radius: float = 2.0
    """|r|. paper: 2 for graded and 1.5 for binary judgements, in its own latent space."""
    beams: int = 10
    length_penalty: float = 1.0
    tries: int = 3
    """New vectors r for a document that found all its proposals taken, each twice as long as the last."""

    @property
    def learning(self) -> dict[str, Any]:
        """What concerns the training; the rest is about writing, and may change afterwards."""
        writing = ("radius", "beams", "length_penalty", "tries")
        return {name: value for name, value in asdict(self).items() if name not in writing}


Chunk = list[tuple[str, list[int]]]
"""Docnos and source tokens."""
Shard = list[Chunk]


class Writer:
    """A docid model with its tokenizer and the tokens it may write."""

    def __init__(
        self, fusion: Fusion, tokenizer: Any, vocabulary: Sequence[int], config: WritingConfig, *, seed: int
    ) -> None:
        """Put the parts together; use `Writer.of` to get one."""
        self.fusion, self.tokenizer, self.config, self.seed = fusion, tokenizer, config, seed
        self.vocabulary = np.asarray(vocabulary, np.int64)  # ascending
        self.pairs = Pairs([], [], [], "nothing")
        self.about: dict[str, Any] = {}

    @classmethod
    def fresh(cls, backbone: str, texts: Sequence[str], config: WritingConfig, *, seed: int = 0) -> "Writer":
        """An untrained one that may write the tokens that occur in these texts."""
        tokenizer = tokenizer_of(backbone)
        rows = tokenizer(list(texts), add_special_tokens=False, truncation=True, max_length=config.document)
        vocabulary = sorted({token for row in rows["input_ids"] for token in row})
        fusion = Fusion.build(backbone, vocabulary, config.fusion, seed=seed)
        return cls(fusion, tokenizer, vocabulary, config, seed=seed)

    @classmethod
    def of(cls, collection: Collection, backbone: str, config: WritingConfig, *, seed: int = 0) -> "Writer":
        """One that knows what to `learn` for a collection, and has not learned it yet."""
        pairs = pairs_of(collection, most=config.pairs, seed=seed)
        texts = [document.contents for document in collection.documents]
        writer = cls.fresh(backbone, [*texts, *pairs.queries], config, seed=seed)
        writer.pairs = pairs
        writer.about = {"collection": collection.fingerprint, "generator": Path(backbone).name}
        return writer

    def learn(self, folder: Path, *, resume: bool = False) -> Iterator[Progress]:
        """Train on the pairs; exhaust the iterator to finish. Checkpoints and metrics lie in the folder."""
        config = self.config
        rows, dev = (self._rows(part) for part in self.pairs.parted(most=JUDGED))
        if config.fusion.regularised:
            some = np.linspace(0, len(rows.docnos) - 1, min(FILLING, len(rows.docnos))).astype(int)
            self.fusion.fill_space(rows.batch(some.tolist()))
        settings = TrainConfig(
            steps=config.steps,
            learning_rate=config.learning_rate,
            pretrained_rate=config.pretrained_rate,
            judge_every=max(1, config.steps // 5) if dev.docnos else 0,
            seed=self.seed,
        )
        yield from train(
            self.fusion,
            objective,
            PairBatches(rows, config.batch, seed=self.seed),
            settings,
            folder,
            resume=resume,
            read=lambda fusion, batch: (),
            judge=(lambda: -self.dev_loss(dev)) if dev.docnos else None,
            about=self.about | config.learning,
        )
        self.fusion.eval()

    @torch.inference_mode()
    def dev_loss(self, rows: PairRows) -> float:
        """The mean L_MLE of the generator over pairs it has not learned from."""
        starts = range(0, len(rows.docnos), self.config.batch)
        parts = [range(a, min(a + self.config.batch, len(rows.docnos))) for a in starts]
        each = [float(objective(self.fusion, rows.batch(part))["generator"]) * len(part) for part in parts]
        return sum(each) / len(rows.docnos)

    def _rows(self, pairs: Pairs) -> PairRows:
        return PairRows(
            self._read(pairs.documents),
            self._read(pairs.queries),
            [self.compact(row) for row in self._plain(pairs.queries)],
            pairs.docnos,
        )

    def _read(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        rows = self.tokenizer(list(texts), truncation=True, max_length=self.config.document)["input_ids"]
        return [list(row) for row in rows]

    def _plain(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        rows = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return [list(row[: self.config.query]) for row in rows]

    def compact(self, tokens: Sequence[int]) -> list[int]:
        """The tokenizer's tokens in the decoder's own vocabulary."""
        return [int(place) + FIRST for place in np.searchsorted(self.vocabulary, tokens)]

    def text(self, tokens: Sequence[int]) -> str:
        """What was written, as text."""
        ids = [int(self.vocabulary[token - FIRST]) for token in tokens if token >= FIRST]
        return " ".join(self.tokenizer.decode(ids, skip_special_tokens=True).split())

    @property
    def written(self) -> str:
        """A name for the folder of what is written, for what it depends on besides the model."""
        config = self.config
        return f"written-{config.radius:g}-{config.beams}-{config.length_penalty:g}"

    def chunks(self, texts: Mapping[str, str]) -> list[Chunk]:
        """Documents as source tokens in chunks of like length, whatever their order was."""
        docnos = sorted(texts)
        read = self._read([texts[docno] or docno for docno in docnos])
        rows = sorted(zip(docnos, read, strict=True), key=lambda row: (len(row[1]), row[0]))
        return [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]

    def shards(self, texts: Mapping[str, str]) -> list[Shard]:
        """The same chunks in groups that are written to one file each."""
        chunks = self.chunks(texts)
        return [chunks[start : start + SHARD] for start in range(0, len(chunks), SHARD)]

    def propose(
        self, texts: Mapping[str, str], folder: Path, *, attempt: int = 0, progress: bool = False
    ) -> Proposals:
        """Write for every document (docno → text); each shard is kept in the folder when it is done."""
        from tqdm import tqdm

        shards = self.shards(texts)
        decoder = self.fusion.generator.decoder_for_search()
        proposals: dict[str, list[tuple[str, float]]] = {}
        with tqdm(total=len(texts), unit="document", leave=False, disable=not progress) as bar:
            for number, shard in enumerate(shards):
                path = folder / f"proposals-{attempt}-{number:05}-of-{len(shards):05}.jsonl"
                docnos = {docno for chunk in shard for docno, _ in chunk}
                if not path.exists() or _read(path).keys() != docnos:  # of others: who clashed has changed
                    self.write_shard(shard, path, texts, attempt=attempt, decoder=decoder)
                proposals |= _read(path)
                bar.update(sum(map(len, shard)))
        return proposals

    def write_shard(
        self,
        shard: Shard,
        path: Path,
        texts: Mapping[str, str],
        *,
        attempt: int = 0,
        decoder: Any = None,
    ) -> None:
        """Write for the documents of a shard, anywhere: the outcome depends on model and arguments alone."""
        decoder = decoder or self.fusion.generator.decoder_for_search()
        each = (self.write(chunk, attempt=attempt, decoder=decoder) for chunk in shard)
        found = {docno: row for chunk in each for docno, row in chunk.items()}
        with atomic_file(path) as temporary, temporary.open("wb") as stream:
            for docno, row in found.items():
                # Nothing but the end was written: what the document begins with, behind all that wrote.
                kept = row or [(" ".join((texts[docno] or docno).split()[:6]), -1e3)]
                stream.write(orjson.dumps({"docno": docno, "proposals": kept}) + b"\n")

    @torch.inference_mode()
    def write(
        self, chunk: Chunk, *, attempt: int = 0, decoder: Any = None
    ) -> dict[str, list[tuple[str, float]]]:
        """The beam list of each document of a chunk (docno and source tokens): texts and scores."""
        ids, mask = padded([row for _, row in chunk])
        states, e_d = self.fusion.read_documents(ids, mask)
        radius = self.config.radius * 2**attempt
        z = None if e_d is None else on_sphere(e_d, self.noise(chunk, attempt), radius)
        states, mask = self.fusion.memory(z, states, mask)
        found = free_beam(
            decoder or self.fusion.generator.decoder_for_search(),
            states,
            mask,
            end=END,
            beams=self.config.beams,
            longest=self.config.query,
            length_penalty=self.config.length_penalty,
            never=(START,),
        )
        rows: dict[str, list[tuple[str, float]]] = {}
        for (docno, _), written in zip(chunk, found, strict=True):
            best: dict[str, float] = {}
            for one in written:
                if text := self.text(one.tokens):
                    best.setdefault(text, round(one.score, 6))
            rows[docno] = list(best.items())
        return rows

    def noise(self, chunk: Chunk, attempt: int) -> Tensor:
        """[B, Z] Gaussian, of each document its own: by seed, docno and the number of the try."""
        seeds = [
            int.from_bytes(blake2b(f"{self.seed} {attempt} {docno}".encode(), digest_size=8).digest())
            for docno, _ in chunk
        ]
        width = self.config.fusion.width
        rows = [np.random.default_rng(seed).standard_normal(width) for seed in seeds]
        return torch.from_numpy(np.stack(rows).astype(np.float32))

    @torch.inference_mode()
    def represent_documents(self, texts: Mapping[str, str]) -> dict[str, Tensor]:
        """The e_d [Z] of each document (docno → text)."""
        found: dict[str, Tensor] = {}
        for chunk in self.chunks(texts):
            _, e_d = self.fusion.read_documents(*padded([row for _, row in chunk]))
            assert e_d is not None, "a plain generator has no latent space"
            found |= dict(zip([docno for docno, _ in chunk], e_d, strict=True))
        return found

    @torch.inference_mode()
    def represent_queries(self, texts: Sequence[str]) -> Tensor:
        """The e_q [N, Z] of queries."""
        rows = self._read(texts)
        parts = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
        return torch.cat([self.fusion.read_queries(*padded(part)) for part in parts])

    def with_radius(self, radius: float) -> "Writer":
        """The same model writing at another |r|."""
        config = replace(self.config, radius=radius)
        other = Writer(self.fusion, self.tokenizer, self.vocabulary.tolist(), config, seed=self.seed)
        other.pairs, other.about = self.pairs, self.about
        return other


def _read(path: Path) -> dict[str, list[tuple[str, float]]]:
    """What `write_shard` wrote."""
    lines = map(orjson.loads, path.read_bytes().splitlines())
    return {row["docno"]: [(text, score) for text, score in row["proposals"]] for row in lines}
