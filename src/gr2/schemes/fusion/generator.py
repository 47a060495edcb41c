"""Documents → pseudo-queries as docid proposals: a generator is trained, then decodes for every document.

The proposals of a document depend on the model, the document, the seed, and the documents of its chunk.
Chunks are cut from the corpus in a fixed order (length, then docno), so neither the order of the corpus nor
the number of shards changes a byte. Shards can be computed on any machine; existing ones are skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from torch import Tensor

from gr2.data.collection import Collection
from gr2.decode.free import free_beam
from gr2.docids.docids import Proposals
from gr2.model.backbone import tokenizer_of
from gr2.model.device import device_of, to_device
from gr2.model.network import END, FIRST, START
from gr2.model.padding import padded
from gr2.schemes.config import GeneratorConfig
from gr2.schemes.fusion.latent import on_sphere
from gr2.schemes.fusion.network import Fusion, FusionObjective
from gr2.schemes.fusion.pairs import PairBatches, PairRows, Pairs, pairs_of
from gr2.store import atomic_file
from gr2.training.loop import LoopConfig, train
from gr2.training.progress import Report, ignore

CHUNK = 16
"""Documents decoded together."""
SHARD = 32
"""Chunks per file of proposals."""
VALIDATED = 64
"""Maximum number of documents whose pairs are held out for validation."""
FILLING = 256
"""Maximum number of pairs from which the projections into the latent space are initialised."""


Chunk = list[tuple[str, list[int]]]
"""Docnos with their source tokens."""
Shard = list[Chunk]


class DocidGenerator:
    """A docid model with its tokenizer and the tokens it can generate."""

    def __init__(
        self, fusion: Fusion, tokenizer: Any, vocabulary: Sequence[int], config: GeneratorConfig, *, seed: int
    ) -> None:
        """Store the parts; use `DocidGenerator.of` to build one."""
        self.fusion, self.tokenizer, self.config, self.seed = fusion, tokenizer, config, seed
        self.vocabulary = np.asarray(vocabulary, np.int64)  # ascending
        self.pairs = Pairs([], [], [], "nothing")
        self.about: dict[str, Any] = {}

    @classmethod
    def fresh(
        cls, backbone: str, texts: Sequence[str], config: GeneratorConfig, *, seed: int = 0
    ) -> "DocidGenerator":
        """An untrained generator whose vocabulary is the tokens of these texts."""
        tokenizer = tokenizer_of(backbone)
        rows = tokenizer(
            list(texts), add_special_tokens=False, truncation=True, max_length=config.document_tokens
        )
        vocabulary = sorted({token for row in rows["input_ids"] for token in row})
        fusion = Fusion.build(backbone, vocabulary, config.fusion, seed=seed).to(device_of(config.device))
        return cls(fusion, tokenizer, vocabulary, config, seed=seed)

    @classmethod
    def of(
        cls,
        collection: Collection,
        backbone: str,
        config: GeneratorConfig,
        *,
        seed: int = 0,
        questions: Mapping[str, Sequence[str]] | None = None,
    ) -> "DocidGenerator":
        """A generator with the pairs of a collection, and maybe with more questions, ready to `fit`."""
        pairs = pairs_of(
            collection, most=config.pairs or None, most_answers=config.most_answers or None, seed=seed
        )
        texts = [document.contents for document in collection.documents]
        if questions:
            pairs = pairs.with_questions(collection, questions)
        writer = cls.fresh(backbone, [*texts, *pairs.queries], config, seed=seed)
        writer.pairs = pairs
        writer.about = {"collection": collection.fingerprint, "generator": Path(backbone).name}
        return writer

    def fit(
        self,
        folder: Path,
        *,
        freeze_embeddings: bool = False,
        resume: bool = False,
        progress: Report = ignore,
    ) -> None:
        """Train on the pairs; checkpoints and metrics are kept in the folder.

        With frozen embeddings the decoder can use the tokens of any other texts afterwards.
        """
        config = self.config
        rows, dev = (self._rows(part) for part in self.parted())
        if config.fusion.regularised:
            some = np.linspace(0, len(rows.docnos) - 1, min(FILLING, len(rows.docnos))).astype(int)
            self.fusion.eval().fill_space(to_device(rows.batch(some.tolist()), self.fusion.device))
        settings = LoopConfig(
            steps=config.steps,
            optimiser=config.optimiser,
            freeze_embeddings=freeze_embeddings,
            validate_every=max(1, config.steps // 5) if dev.docnos else 0,
            seed=self.seed,
        )
        train(
            self.fusion,
            FusionObjective(config.fusion),
            PairBatches(rows, config.batch, seed=self.seed),
            settings,
            folder,
            resume=resume,
            read=lambda fusion, batch: (),
            validate=(lambda: -self._mean_loss(dev)) if dev.docnos else None,
            about=self.about | config.learning,
            progress=progress,
        )
        self.fusion.eval()

    def parted(self) -> tuple[Pairs, Pairs]:
        """The pairs to train on, and those that are held out for validation."""
        return self.pairs.parted(most=VALIDATED)

    def dev_loss(self, pairs: Pairs) -> float:
        """The generator's mean L_MLE over pairs."""
        self.fusion.eval()
        return self._mean_loss(self._rows(pairs))

    @torch.inference_mode()
    def _mean_loss(self, rows: PairRows) -> float:
        starts = range(0, len(rows.docnos), self.config.batch)
        parts = [range(a, min(a + self.config.batch, len(rows.docnos))) for a in starts]
        batches = (to_device(rows.batch(part), self.fusion.device) for part in parts)
        objective = FusionObjective(self.config.fusion)
        each = [float(objective(self.fusion, batch)["generator"]) * batch.examples for batch in batches]
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
        rows = self.tokenizer(list(texts), truncation=True, max_length=self.config.document_tokens)[
            "input_ids"
        ]
        return [list(row) for row in rows]

    def _plain(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        rows = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return [list(row[: self.config.query_tokens]) for row in rows]

    def compact(self, tokens: Sequence[int]) -> list[int]:
        """The tokenizer's tokens in the decoder's own vocabulary."""
        return [int(place) + FIRST for place in np.searchsorted(self.vocabulary, tokens)]

    def text(self, tokens: Sequence[int]) -> str:
        """Generated tokens as text."""
        ids = [int(self.vocabulary[token - FIRST]) for token in tokens if token >= FIRST]
        return " ".join(self.tokenizer.decode(ids, skip_special_tokens=True).split())

    @property
    def written(self) -> str:
        """The name of the folder of proposals: the settings of decoding they depend on."""
        config = self.config
        return f"written-{config.radius:g}-{config.beams}-{config.length_penalty:g}"

    def chunks(self, texts: Mapping[str, str]) -> list[Chunk]:
        """Documents as source tokens, in chunks of similar length that do not depend on their order."""
        docnos = sorted(texts)
        read = self._read([texts[docno] or docno for docno in docnos])
        rows = sorted(zip(docnos, read, strict=True), key=lambda row: (len(row[1]), row[0]))
        return [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]

    def shards(self, texts: Mapping[str, str]) -> list[Shard]:
        """The chunks in groups, one file per group."""
        chunks = self.chunks(texts)
        return [chunks[start : start + SHARD] for start in range(0, len(chunks), SHARD)]

    def propose(
        self, texts: Mapping[str, str], folder: Path, *, attempt: int = 0, progress: bool = False
    ) -> Proposals:
        """Generate proposals for every document (docno → text); finished shards are saved in the folder."""
        from tqdm import tqdm

        shards = self.shards(texts)
        decoder = self.fusion.generator.decoder_for_search()
        proposals: dict[str, list[tuple[str, float]]] = {}
        with tqdm(total=len(texts), unit="document", leave=False, disable=not progress) as bar:
            for number, shard in enumerate(shards):
                path = folder / f"proposals-{attempt}-{number:05}-of-{len(shards):05}.jsonl"
                docnos = {docno for chunk in shard for docno, _ in chunk}
                # An existing shard can hold other documents: which ones clash may have changed since.
                if not path.exists() or _read(path).keys() != docnos:
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
        """Generate the proposals of a shard and save them."""
        decoder = decoder or self.fusion.generator.decoder_for_search()
        each = (self.write(chunk, attempt=attempt, decoder=decoder) for chunk in shard)
        found = {docno: row for chunk in each for docno, row in chunk.items()}
        with atomic_file(path) as temporary, temporary.open("wb") as stream:
            for docno, row in found.items():
                # If only the end token was generated: the leading words, with a score below all others.
                kept = row or [(" ".join((texts[docno] or docno).split()[:6]), -1e3)]
                stream.write(orjson.dumps({"docno": docno, "proposals": kept}) + b"\n")

    @torch.inference_mode()
    def write(
        self, chunk: Chunk, *, attempt: int = 0, decoder: Any = None
    ) -> dict[str, list[tuple[str, float]]]:
        """The proposals of each document of a chunk, best first: texts and scores."""
        ids, mask = padded([row for _, row in chunk], device=self.fusion.device)
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
            longest=self.config.query_tokens,
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
        """Gaussian noise [B, Z], seeded for each document by seed, docno and attempt."""
        seeds = [
            int.from_bytes(blake2b(f"{self.seed} {attempt} {docno}".encode(), digest_size=8).digest())
            for docno, _ in chunk
        ]
        width = self.config.fusion.width
        rows = [np.random.default_rng(seed).standard_normal(width) for seed in seeds]
        return torch.from_numpy(np.stack(rows).astype(np.float32)).to(self.fusion.device)

    @torch.inference_mode()
    def represent_documents(self, texts: Mapping[str, str]) -> dict[str, Tensor]:
        """The latent vector e_d [Z] of each document (docno → text)."""
        found: dict[str, Tensor] = {}
        for chunk in self.chunks(texts):
            _, e_d = self.fusion.read_documents(*padded([row for _, row in chunk], device=self.fusion.device))
            assert e_d is not None, "a plain generator has no latent space"
            found |= dict(zip([docno for docno, _ in chunk], e_d, strict=True))
        return found

    @torch.inference_mode()
    def represent_queries(self, texts: Sequence[str]) -> Tensor:
        """The latent vectors e_q [N, Z] of queries."""
        rows = self._read(texts)
        parts = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
        return torch.cat(
            [self.fusion.read_queries(*padded(part, device=self.fusion.device)) for part in parts]
        )

    def with_radius(self, radius: float) -> "DocidGenerator":
        """The same model, decoding at another |r|."""
        config = replace(self.config, radius=radius)
        other = DocidGenerator(self.fusion, self.tokenizer, self.vocabulary.tolist(), config, seed=self.seed)
        other.pairs, other.about = self.pairs, self.about
        return other


def _read(path: Path) -> dict[str, list[tuple[str, float]]]:
    """The proposals that `write_shard` saved."""
    lines = map(orjson.loads, path.read_bytes().splitlines())
    return {row["docno"]: [(text, score) for text, score in row["proposals"]] for row in lines}
