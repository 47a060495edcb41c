"""How much of a flat search codes of a few bytes keep on 100,000 texts, beside faiss' quantisers.

    python recipes/codes_scale.py --out FOLDER CORPUS.jsonl.gz ... --every 1 8 [--json FILE]

The texts are the different sentences of the documents in these files, of at least 8 words; `--every 8` takes
every eighth of a file. 500 of them, drawn evenly, are queries and not in the corpus. Measured are the share
of the 20 nearest texts of exact dense search that are among a quantiser's own 20, and the CPU time of a
search, one query at a time on one thread. All quantisers learn from the same vectors: residual codes, which
look-ahead uses, faiss' residual quantiser with its default training, product quantisation, and the same after
a learned rotation (OPQ). Residual codebooks for most bytes are learned once; those for fewer bytes are their
beginnings, as they would be if they were learned alone.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from gr2.data.formats.records import DocumentFile
from gr2.evaluate.tables import render
from gr2.model.product_quantiser import faiss, one_thread
from gr2.model.residual_encoder import encode_residual
from gr2.model.text_encoder import load_encoder
from gr2.model.vector_storage import CodeVectors
from gr2.schemes.clusters import residual_codes
from gr2.store import atomic_file, write_json
from gr2.text import sentences

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Search = Callable[[Floats], Ints]
"""Queries [Q, W] → the places of the `DEPTH` nearest texts of each, in any order."""
System = tuple[str, int, float, Search]
"""A name, bytes per text, CPU-seconds to learn and encode, and the search."""
DEPTH, QUERIES, WORDS, BLOCK, TIMED = 20, 500, 8, 10_000, 50
SAMPLE = 1 << 14
"""Vectors from which quantisers learn: 64 for each code."""
FLAT = "exact"


def texts_of(paths: list[Path], every: list[int]) -> list[str]:
    """The sentences of all files."""
    found: dict[str, None] = {}
    for path, step in zip(paths, every, strict=True):
        split = (sentence for document in DocumentFile(path, {}) for sentence in sentences(document.text))
        own = dict.fromkeys(sentence for sentence in split if len(sentence.split()) >= WORDS)
        found |= dict.fromkeys(list(own)[::step])
    return list(found)


def encoded(texts: list[str], options: argparse.Namespace) -> Floats:
    """Their vectors, kept block by block."""
    encoder, blocks = load_encoder(options.backbone), []
    for start in range(0, len(texts), BLOCK):
        path = (
            options.out / f"{Path(options.backbone).name}.{len(texts)}.{options.tokens}.{start}.safetensors"
        )
        if not path.exists():
            found = encoder.encode(texts[start : start + BLOCK], max_tokens=options.tokens)
            with atomic_file(path) as temporary:
                save_file({"vectors": found}, temporary)
            print(f"{start + len(found):,} of {len(texts):,} texts encoded", flush=True)
        blocks.append(load_file(path)["vectors"])
    return np.concatenate(blocks)


def searches(corpus: Floats, sizes: list[int]) -> Iterator[System]:
    """Every system, the cheapest first."""
    sample = corpus[np.linspace(0, len(corpus) - 1, min(len(corpus), SAMPLE)).astype(np.int64)]
    flat = faiss().IndexFlatIP(corpus.shape[1])
    flat.add(corpus)
    yield FLAT, 4 * corpus.shape[1], 0.0, _of_index(flat)
    yield from _product(sample, corpus, sizes)
    yield from _ours(sample, corpus, sizes)
    yield from _faiss_residual(sample, corpus, sizes)
    yield from _rotated(sample, corpus, sizes)


def _ours(sample: Floats, corpus: Floats, sizes: list[int]) -> Iterator[System]:
    started, most = time.process_time(), max(sizes)
    books = residual_codes(sample, places=most, codes=256)[1].reshape(most, 256, -1)
    learned = time.process_time() - started
    for size in sizes:
        started = time.process_time()
        codes = encode_residual(corpus, books[:size]).astype(np.uint8)
        spent = learned * size / most + time.process_time() - started
        yield "residual codes", size, spent, _of_codes(CodeVectors(codes, books[:size]))


def _product(sample: Floats, corpus: Floats, sizes: list[int]) -> Iterator[System]:
    for size in sizes:
        index = faiss().IndexPQ(corpus.shape[1], size, 8, faiss().METRIC_INNER_PRODUCT)
        yield "faiss PQ", size, *_indexed(index, sample, corpus)


def _rotated(sample: Floats, corpus: Floats, sizes: list[int]) -> Iterator[System]:
    for size in sizes:
        inner = faiss().IndexPQ(corpus.shape[1], size, 8, faiss().METRIC_INNER_PRODUCT)
        turned = faiss().IndexPreTransform(faiss().OPQMatrix(corpus.shape[1], size), inner)
        yield "faiss OPQ", size, *_indexed(turned, sample, corpus)


def _faiss_residual(sample: Floats, corpus: Floats, sizes: list[int]) -> Iterator[System]:
    width, most = corpus.shape[1], max(sizes)
    whole, started = _residual(width, most), time.process_time()
    whole.train(sample)
    learned = time.process_time() - started
    books = faiss().vector_to_array(whole.rq.codebooks).reshape(most, 256, width)
    for size in sizes:
        index = _residual(width, size)
        faiss().copy_array_to_vector(books[:size].ravel(), index.rq.codebooks)
        index.rq.is_trained = index.is_trained = True
        index.rq.compute_codebook_tables()
        spent, search = _indexed(index, None, corpus)
        yield "faiss RQ", size, spent + learned * size / most, search


def _residual(width: int, size: int) -> Any:
    kind = faiss().AdditiveQuantizer.ST_LUT_nonorm
    return faiss().IndexResidualQuantizer(width, size, 8, faiss().METRIC_INNER_PRODUCT, kind)


def _indexed(index: Any, sample: Floats | None, corpus: Floats) -> tuple[float, Search]:
    started = time.process_time()
    if sample is not None:
        index.train(sample)
    index.add(corpus)
    return time.process_time() - started, _of_index(index)


def _of_index(index: Any) -> Search:
    return lambda queries: index.search(queries, DEPTH)[1]


def _of_codes(coded: CodeVectors) -> Search:
    return lambda queries: np.argpartition(-coded.dot(queries), DEPTH, axis=1)[:, :DEPTH]


def measured(corpus: Floats, queries: Floats, sizes: list[int]) -> Iterator[dict[str, Any]]:
    """A row for each system and size."""
    exact: Ints = np.zeros((0, DEPTH), np.int64)
    for name, size, spent, search in searches(corpus, sizes):
        found = search(queries)
        exact = found if name == FLAT else exact
        kept = [len(set(a) & set(b)) / DEPTH for a, b in zip(found.tolist(), exact.tolist(), strict=True)]
        started = time.process_time()
        for query in queries[:TIMED]:
            search(query[None])
        each = (time.process_time() - started) / TIMED
        error = float(np.std(kept) / len(kept) ** 0.5)
        row = {"system": name, "bytes": size, f"recall@{DEPTH}": float(np.mean(kept)), "error": error}
        yield row | {"search ms": 1000 * each, "learn and encode s": spent}


def main() -> None:
    """Encode, measure, print the table, and save the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpora", nargs="+", type=Path, help="files of documents")
    parser.add_argument(
        "--every", type=int, nargs="+", required=True, help="one sentence in so many, per file"
    )
    parser.add_argument("--backbone", default="gr2-mini", help="a text encoder (gr2-mini)")
    parser.add_argument("--tokens", type=int, default=32, help="tokens to which a sentence is cut (32)")
    parser.add_argument("--bytes", type=int, nargs="+", default=[8, 16, 32, 64], help="sizes (8 16 32 64)")
    parser.add_argument("--out", type=Path, required=True, help="keeps vectors")
    parser.add_argument("--json", type=Path, help="save the figures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    texts = texts_of(options.corpora, options.every)
    vectors = encoded(texts, options)
    asked = np.linspace(0, len(texts) - 1, QUERIES).astype(np.int64)
    corpus = np.ascontiguousarray(np.delete(vectors, asked, axis=0))
    settings = {"backbone": Path(options.backbone).name, "tokens": options.tokens, "texts": len(corpus)}
    settings |= {"queries": QUERIES, "files": [path.parent.name for path in options.corpora]}
    rows: list[dict[str, Any]] = []
    with one_thread():
        for row in measured(corpus, vectors[asked], options.bytes):
            rows.append(row)
            print(row, flush=True)
            if options.json:
                write_json(options.json, {"settings": settings | {"every": options.every}, "rows": rows})
    columns = ("system", "bytes", f"recall@{DEPTH}", "search ms", "learn and encode s")
    cells = [[row["system"], *(f"{row[column]:.4g}" for column in columns[1:])] for row in rows]
    print(f"{len(corpus):,} texts, {QUERIES} queries\n\n" + render(list(columns), cells, "markdown"))


if __name__ == "__main__":
    main()
