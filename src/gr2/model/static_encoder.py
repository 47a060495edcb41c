"""Texts → unit vectors without a network: the mean of the tokens' embeddings, which a table holds.

Reads folders of model2vec (Tulkens and van Dongen, 2024): `config.json`, `model.safetensors` with the table
`embeddings`, and `tokenizer.json`. Weights of tokens (Zipf, SIF) and PCA, which the configuration may name,
are already in the table. Vectors have unit length whether or not the configuration asks for it.

Shapes: V tokens, W width.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse

from gr2.model.backbone import STATIC, is_static
from gr2.model.encoder import QUERY_TOKENS, Vectors, Watch, unwatched
from gr2.store import read_json, readable, typed, write_json, write_text

TABLE, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"
BLOCK = 4096
"""Texts encoded at a time."""


class StaticEncoder:
    """A table of token embeddings with its tokenizer."""

    def __init__(self, name: str, table: Vectors, tokenizer: str) -> None:
        """Hold the parts; use `StaticEncoder.load`.

        Args:
            name: as printed with results.
            table: [V, W] the embedding of each token.
            tokenizer: the content of `tokenizer.json`.
        """
        from tokenizers import Tokenizer

        self.name, self.table, self.definition = name, table, tokenizer
        try:
            self._tokenizer: Any = Tokenizer.from_str(tokenizer)
        except Exception as error:  # the library raises nothing more specific
            raise ValueError(f"{name}: {TOKENIZER} is no tokenizer ({error})") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        self._unknown = None if unknown is None else self._tokenizer.token_to_id(unknown)

    @classmethod
    def load(cls, folder: str | Path) -> "StaticEncoder":
        """Read a folder; an error says what is missing."""
        folder = Path(folder)
        check_static(folder)
        with readable(folder / TABLE):
            table = _table(load_file(folder / TABLE))
        config = read_json(folder / CONFIG, dict[str, Any])
        name = typed(config.get("name", folder.resolve().name), str, folder / CONFIG, "name")
        found = cls(name, table, (folder / TOKENIZER).read_text(encoding="utf-8"))
        if (most := found._tokenizer.get_vocab_size()) > len(table):
            raise ValueError(f"{folder}: the tokenizer has {most:,} tokens, the table {len(table):,}")
        return found

    def save(self, folder: Path) -> None:
        """Write a folder that `load` reads."""
        folder.mkdir()
        save_file({"embeddings": self.table}, folder / TABLE)
        write_text(folder / TOKENIZER, self.definition)
        about = {"model_type": STATIC, "name": self.name, "hidden_dim": self.table.shape[1]}
        write_json(folder / CONFIG, about | {"normalize": True})

    @property
    def nbytes(self) -> int:
        """The size of the table in bytes."""
        return self.table.nbytes

    def read(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """The tokens of each text, without special and unknown ones."""
        found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [np.array(each.ids, np.int64) for each in found]
        return rows if self._unknown is None else [row[row != self._unknown] for row in rows]

    def encode(
        self,
        texts: Sequence[str],
        *,
        max_tokens: int = QUERY_TOKENS,
        progress: bool = False,
        watch: Watch = unwatched,
    ) -> Vectors:
        """Texts → unit vectors [N, W]; a text without known tokens becomes the zero vector.

        Args:
            texts: any number of texts.
            max_tokens: known tokens to which a text is truncated.
            progress: show a progress bar.
            watch: called after each block.
        """
        from tqdm import tqdm

        vectors = np.zeros((len(texts), self.table.shape[1]), np.float32)
        with tqdm(total=len(texts), unit="text", leave=False, disable=not progress) as bar:
            for start in range(0, len(texts), BLOCK):
                rows = [row[:max_tokens] for row in self.read(texts[start : start + BLOCK])]
                ends = np.cumsum([0, *map(len, rows)])
                tokens = np.concatenate(rows)
                counts = sparse.csr_matrix(
                    (np.ones(len(tokens), np.float32), tokens, ends), shape=(len(rows), len(self.table))
                )
                vectors[start : start + BLOCK] = counts @ self.table
                bar.update(len(rows))
                watch((start + len(rows)) / len(texts))
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
        return vectors


def _table(stored: Mapping[str, NDArray[Any]]) -> Vectors:
    """The vector of each token [V, W]."""
    if "embeddings" not in stored or stored["embeddings"].ndim != 2:
        raise ValueError(f"expected a table `embeddings`, found {', '.join(stored)}")
    table: Vectors = stored["embeddings"].astype(np.float32)
    if "mapping" in stored:  # tokens that share rows
        table = table[stored["mapping"]]
    if "weights" in stored:
        table *= stored["weights"].astype(np.float32)[:, None]
    return table


def check_static(folder: str | Path) -> None:
    """Raise a ValueError unless it is a folder of model2vec with all its files."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: is no folder; expected one of a model2vec encoder")
    if not is_static(folder):
        raise ValueError(f'{folder}: is no model2vec encoder ({CONFIG} with "model_type": "{STATIC}")')
    for name in (TABLE, TOKENIZER):
        if not (folder / name).is_file():
            raise ValueError(f"{folder}: has no {name}, which a model2vec encoder needs")
