"""What a search with look-ahead costs, beside dense search with the same vectors and BM25.

    python benchmarks/search.py MODEL [--topics FILE] [--queries 100] [--rounds 5]

The model is a folder with look-ahead. Four systems answer the same queries one at a time, interleaved, on one
thread: `Searcher`; the model's encoder with a flat search of the same vectors (numpy); the encoder alone; and
BM25 alone (bm25s). Medians of CPU time and of wall time over queries and rounds.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from machine import facts

from gr2.bm25 import BM25
from gr2.data.documents import NAME, DocumentStore
from gr2.data.formats.folder import read_query_file
from gr2.model.bounded_search import best_places
from gr2.model.gr2 import GR2
from gr2.store import write_json

K = 10


def systems(model: GR2) -> dict[str, Callable[[str], object]]:
    """What is timed, by name."""
    look_ahead, searcher = model.look_ahead, model.searcher()
    if look_ahead is None or not isinstance(look_ahead.bm25, BM25):
        raise SystemExit("the model has no look-ahead with all words: make one with `gr2 index`")
    encoder, bm25 = model.query_encoder, look_ahead.bm25

    def dense(text: str) -> object:
        return best_places(look_ahead.cosines(encoder.encode([text]))[0], K)

    return {
        "look-ahead (Searcher)": lambda text: searcher.search(text, K),
        "encoder + flat search of the same vectors": dense,
        "encoder alone": lambda text: encoder.encode([text]),
        "BM25 alone": lambda text: bm25.search({"q": text}, K),
    }


def main() -> None:
    """Time every system on every query, and save medians and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="model folder")
    parser.add_argument("--topics", type=Path, help="a file of queries (default: titles of the documents)")
    parser.add_argument("--queries", type=int, default=100, help="number of queries (default: 100)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds over all queries (default: 5)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "search.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = GR2.from_pretrained(options.model)
    if options.topics:
        texts = list(islice(read_query_file(options.topics).values(), options.queries))
    else:
        with closing(DocumentStore(options.model / NAME)) as store:
            titled = (document.title for document in store if document.title)
            texts = list(islice(titled, options.queries))
    timed = systems(model)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in timed}
    for text in texts[:5]:
        for search in timed.values():
            search(text)  # warm-up
    for _ in range(options.rounds):
        for text in texts:
            for name, search in timed.items():
                cpu, wall = time.process_time(), time.perf_counter()
                search(text)
                taken[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    medians = {name: np.median(np.array(found), axis=0) * 1000 for name, found in taken.items()}
    ours, dense = (medians[name] for name in list(timed)[:2])
    for name, (cpu, wall) in medians.items():
        print(f"{cpu:7.2f} CPU-ms  {wall:7.2f} ms  {name}")
    print(f"look-ahead / dense: {ours[0] / dense[0]:.2f} in CPU time, {ours[1] / dense[1]:.2f} in wall time")
    write_json(
        options.out,
        {
            "machine": facts("torch", "numpy", "bm25s"),
            "documents": len(model.docids),
            "queries": len(texts),
            "rounds": options.rounds,
            "milliseconds": {n: {"cpu": round(c, 3), "wall": round(w, 3)} for n, (c, w) in medians.items()},
            "ratio": {"cpu": round(ours[0] / dense[0], 3), "wall": round(ours[1] / dense[1], 3)},
        },
    )


if __name__ == "__main__":
    main()
