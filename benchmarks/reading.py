"""Reading a large BEIR corpus: documents/s and peak memory of gr2 and of `beir`'s GenericDataLoader.

    pip install --no-deps beir
    python benchmarks/reading.py [--documents 1000000] [--repeats 3]

The corpus is synthetic (seeded, 64 words per document, unique docnos). Each reading is a separate process, so
that peak memory can be compared; the systems take turns. `ours` checks every field, rejects duplicate docnos,
hashes all content into the fingerprint and keeps the docnos in memory; `beir` checks nothing and keeps
everything in memory, as it does for its users.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import facts, peak_mb

from gr2.store import write_json

WORDS = 20_000
SYSTEMS = ("ours", "beir")


def make(folder: Path, documents: int, seed: int = 0) -> None:
    """Write a synthetic BEIR folder."""
    import numpy as np  # here, because it would add to the memory of the readers

    generator = np.random.default_rng(seed)
    vocabulary = np.array([f"w{i:x}" + "aeiou"[i % 5] * (i % 6) for i in range(WORDS)])
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus:
        for start in range(0, documents, 10_000):
            size = min(10_000, documents - start)
            ranks = np.minimum(generator.zipf(1.2, size=(size, 64)) - 1, WORDS - 1)
            for row, words in enumerate(vocabulary[ranks]):
                record = {
                    "_id": f"doc-{start + row}",
                    "title": " ".join(words[:4]),
                    "text": " ".join(words[4:]),
                }
                corpus.write(json.dumps(record) + "\n")
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "a query"}\n', encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tdoc-0\t1\n", encoding="utf-8")


def read(system: str, folder: Path) -> None:
    """Read the folder with one system and print the cost as JSON."""
    before = time.process_time()
    if system == "ours":
        from gr2.data.formats import read_folder

        start = time.perf_counter()
        count = len(read_folder(folder).docnos)
    else:
        from beir.datasets.data_loader import GenericDataLoader

        start = time.perf_counter()
        count = len(GenericDataLoader(str(folder)).load(split="test")[0])
    seconds = time.perf_counter() - start
    cpu = time.process_time() - before
    print(json.dumps({"documents": count, "seconds": seconds, "cpu": cpu, "peak_mb": peak_mb()}))


def measure(folder: Path, repeats: int) -> dict[str, dict[str, float]]:
    """Let the systems take turns; returns the median of each figure."""
    rows: dict[str, list[dict[str, float]]] = {system: [] for system in SYSTEMS}
    for _ in range(repeats):
        for system, found in rows.items():
            command = [sys.executable, __file__, "--read", system, "--folder", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{system} failed (for beir: pip install --no-deps beir):\n{done.stderr[-800:]}")
            found.append(json.loads(done.stdout.splitlines()[-1]))
    return {
        system: {key: statistics.median(row[key] for row in found) for key in found[0]}
        for system, found in rows.items()
    }


def main() -> None:
    """Make the corpus, read it with each system in turn, print and save the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--documents", type=int, default=1_000_000, help="documents of the corpus (default: 1000000)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="readings of each system (default: 3)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "reading.json")
    parser.add_argument("--read", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read, options.folder)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "corpus"
        make(folder, options.documents)
        size = (folder / "corpus.jsonl").stat().st_size
        results = measure(folder, options.repeats)
    ours, beir = results["ours"], results["beir"]
    ratios = {
        "documents_per_second": beir["seconds"] / ours["seconds"],
        "cpu": beir["cpu"] / ours["cpu"],
        "peak_memory": beir["peak_mb"] / ours["peak_mb"],
    }
    for system, row in results.items():
        rate = row["documents"] / row["seconds"]
        print(f"{system:5} {rate:10,.0f} documents/s  cpu {row['cpu']:6.2f} s  peak {row['peak_mb']:7.0f} MB")
    print("ratios in favour of ours:", ", ".join(f"{key} {value:.2f}×" for key, value in ratios.items()))
    about = {"corpus_mb": size / 1e6, "repeats": options.repeats, **facts("gr2", "beir", "orjson")}
    write_json(options.out, {"about": about, "medians": results, "ratios": ratios})


if __name__ == "__main__":
    main()
