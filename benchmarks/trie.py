"""The trie, nested dictionaries and marisa-trie: build time, memory, and the children of 20 nodes.

    python benchmarks/trie.py                      # all sizes, a few minutes
    python benchmarks/trie.py --sizes 10000 --out small.json

Every measurement is a new process with one thread; systems take turns within a size, and medians are
reported. Docids are synthetic and seeded: 8-16 tokens of a vocabulary of 32,000; at every prefix the next
token is drawn by rank from a Zipf law with exponent 1.8, over an order of the vocabulary that depends on the
prefix. The exponent was fitted to real text in rough sub-words (words of more than 7 letters in pieces of 5):
docids share 3.8 (4K docids) and 4.4 (14K) leading tokens with others, which is between the titles of a web
reference (14K of 7.6 tokens, 3.2 shared) and consumers' medical questions (4K of 11.4 tokens, 6.2 shared).

All systems start from the same flat token arrays, which are not counted. Memory is the growth of anonymous
resident memory during the build (Linux only, else null). The children are those of 20 prefixes of one length,
as 20 beams need them, at lengths 1 to 8. The dictionary is measured twice: walking each prefix from the root,
as is usual, and with its nodes at hand. Ours has its nodes at hand. marisa has no next-token query and must
list all keys below the prefix.
"""

import argparse
import ctypes
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import facts, peak_mb
from numpy.typing import NDArray

from gr2 import store
from gr2.docids.trie import Trie

VOCABULARY, EXPONENT, SHORTEST, LONGEST = 32_000, 1.8, 8, 16
END = 1
BEAMS, DEPTHS, SETS = 20, range(1, 9), 25
PEERS_UP_TO = 1_000_000
Nested = dict[int, Any]
Flat = NDArray[np.int32]
Offsets = NDArray[np.int64]
Prefixes = list[list[list[int]]]


def make(folder: Path, size: int, seed: int) -> dict[str, Any]:
    """Draw unique docids into `tokens.npy` and `offsets.npy`."""
    random = np.random.default_rng(seed)
    drawn = size * 5 // 4 + 100  # there are duplicates
    cumulative = np.cumsum(np.arange(1.0, VOCABULARY + 1) ** -EXPONENT)
    lengths = random.integers(SHORTEST, LONGEST + 1, drawn)
    state = np.zeros(drawn, np.uint64)  # a hash of the prefix: equal prefixes have equal states
    table = np.zeros((LONGEST, drawn), np.int32)
    for depth in range(LONGEST):
        rank = np.searchsorted(cumulative, random.random(drawn) * cumulative[-1]).astype(np.uint64)
        token = _mix(state, rank) % np.uint64(VOCABULARY) + np.uint64(END + 1)
        live = lengths > depth
        table[depth] = token
        state = np.where(live, _mix(state, token + np.uint64(VOCABULARY)), state)
    rows = np.sort(np.unique(state + lengths.astype(np.uint64), return_index=True)[1])[:size]
    if len(rows) < size:
        raise ValueError(f"only {len(rows)} of {size} docids are unique; draw more")
    offsets = np.zeros(size + 1, np.int64)
    np.cumsum(lengths[rows], out=offsets[1:])
    flat = np.empty(offsets[-1], np.int32)
    for depth in range(LONGEST):
        live = lengths[rows] > depth
        flat[offsets[:-1][live] + depth] = table[depth, rows[live]]
    np.save(folder / "tokens.npy", flat)
    np.save(folder / "offsets.npy", offsets)
    return {"mean_length": len(flat) / size}


def _mix(state: NDArray[np.uint64], value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = (state ^ (value + np.uint64(1))) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))


def prefix_sets(tokens: Flat, offsets: Offsets, seed: int) -> Prefixes:
    """Sets of 20 prefixes of random docids, all of one length within a set; the same for every system."""
    random = np.random.default_rng(seed)
    sets = []
    for number in range(SETS * len(DEPTHS)):
        rows, depth = random.integers(0, len(offsets) - 1, BEAMS), DEPTHS[number % len(DEPTHS)]
        sets.append([tokens[offsets[row] : offsets[row] + depth].tolist() for row in rows])
    return sets


def build_dict(tokens: Flat, offsets: Offsets) -> Nested:
    """The usual prefix trie: nested dictionaries, with the docid under the end token."""
    root: Nested = {}
    bounds = offsets.tolist()
    for docid in range(len(bounds) - 1):
        node = root
        for token in tokens[bounds[docid] : bounds[docid + 1]].tolist():
            node = node.setdefault(token, {})
        node[END] = docid
    return root


def build_marisa(tokens: Flat, offsets: Offsets) -> Any:
    """marisa-trie over docids as strings, with a character for each token."""
    import marisa_trie

    bounds = offsets.tolist()
    return marisa_trie.Trie(
        "".join(map(chr, tokens[start:stop].tolist()))
        for start, stop in zip(bounds, bounds[1:], strict=False)
    )


def walk(root: Nested, prefix: list[int]) -> Nested:
    """The node of a prefix, from the root."""
    for token in prefix:
        root = root[token]
    return root


def marisa_next(trie: Any, prefix: list[int]) -> list[int]:
    """The tokens that may follow a prefix, from all keys below it."""
    text = "".join(map(chr, prefix))
    at = len(text)
    return sorted({ord(key[at]) if len(key) > at else END for key in trie.keys(text)})


def timed(sets: list[Any], ask: Callable[[Any], Any], repeats: int) -> dict[str, float]:
    """Microseconds for one set of 20: median and mean over the sets of each set's median."""
    medians = []
    for one in sets:
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            ask(one)
            times.append(time.perf_counter() - start)
        medians.append(statistics.median(times) * 1e6)
    return {"median": statistics.median(medians), "mean": statistics.fmean(medians)}


def measure(system: str, folder: Path, seed: int) -> dict[str, Any]:
    """Build one system from the token arrays of a folder and query it; runs in a separate process."""
    tokens, offsets = np.load(folder / "tokens.npy"), np.load(folder / "offsets.npy")
    out: dict[str, Any] = {}
    start = time.perf_counter()
    warm = Trie.from_sequences([[2, 3], [2]], end=END)
    warm.children([0])
    warm.add([[4]])
    out["first_call_s"] = time.perf_counter() - start  # compilation, or reading numba's cache
    builders: dict[str, Callable[[], Any]] = {
        "dict": lambda: build_dict(tokens, offsets),
        "marisa": lambda: build_marisa(tokens, offsets),
        "gr2": lambda: Trie.build(tokens, offsets, end=END),
    }
    before, wall, cpu = anonymous_bytes(), time.perf_counter(), time.process_time()
    trie = builders[system]()
    out["build_s"], out["build_cpu_s"] = time.perf_counter() - wall, time.process_time() - cpu
    after = anonymous_bytes()
    out["resident_bytes"] = None if before is None or after is None else after - before
    out["peak_bytes"] = round(peak_mb() * 2**20)
    ask = {"dict": ask_dict, "marisa": ask_marisa, "gr2": ask_gr2}[system]
    asked, answers = ask(trie, prefix_sets(tokens, offsets, seed))
    out |= asked
    out["answers"] = hash(tuple(map(tuple, answers)))  # of integers: the same in every process
    return out | (changes(trie, folder, seed) if system == "gr2" else {})


def ask_dict(trie: Nested, sets: Prefixes) -> tuple[dict[str, Any], list[list[int]]]:
    """Time the children; also returns those of the first set, to compare systems."""
    held = [[walk(trie, prefix) for prefix in one] for one in sets]
    out = {
        "children_us": timed(sets, lambda one: [list(walk(trie, prefix)) for prefix in one], 20),
        "children_held_us": timed(held, lambda one: [list(node) for node in one], 20),
    }
    return out, [sorted(node) for node in held[0]]


def ask_marisa(trie: Any, sets: Prefixes) -> tuple[dict[str, Any], list[list[int]]]:
    """The same for marisa, once for one set of each length, because it takes seconds."""
    few = sets[: len(DEPTHS)]
    asked = timed(few, lambda one: [marisa_next(trie, prefix) for prefix in one], 1)
    out = {"children_us": asked, "own_bytes": len(trie.tobytes())}
    return out, [marisa_next(trie, prefix) for prefix in sets[0]]


def ask_gr2(trie: Trie, sets: Prefixes) -> tuple[dict[str, Any], list[list[int]]]:
    """The same for ours, and the bytes of its arrays, with and without counts and heights of nodes."""
    nodes = [np.array([trie.find(prefix) for prefix in one]) for one in sets]
    row, token, _ = trie.children(nodes[0])
    out = {
        "children_us": timed(nodes, trie.children, 20),
        "nodes": trie.nodes,
        "own_bytes": trie.nbytes + trie.below.nbytes + trie.height.nbytes,
        "structure_bytes": trie.nbytes,
    }
    return out, [token[row == i].tolist() for i in range(BEAMS)]


def changes(trie: Trie, folder: Path, seed: int) -> dict[str, float]:
    """Seconds to filter to a tenth, to add 1,000 docids, to save and to load memory-mapped."""
    random = np.random.default_rng(seed)
    tenth = random.choice(len(trie), len(trie) // 10, replace=False)
    new = [[VOCABULARY + 5, *map(int, random.integers(2, VOCABULARY, 10)), i + 2] for i in range(1000)]
    jobs: dict[str, Callable[[], Any]] = {
        "restrict_tenth_s": lambda: trie.restrict(tenth),
        "add_1000_s": lambda: trie.add(new),
        "save_s": lambda: trie.save(folder / "saved"),
        "load_s": lambda: Trie.load(folder / "saved"),
    }
    out = {}
    for name, job in jobs.items():
        start = time.perf_counter()
        job()
        out[name] = time.perf_counter() - start
    return out


def anonymous_bytes() -> int | None:
    """Resident memory that is not backed by a file, after freeing what the allocator can free."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        status = Path("/proc/self/status").read_text()
    except (OSError, AttributeError):
        return None
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def has_marisa() -> bool:
    """Whether marisa-trie is installed."""
    return importlib.util.find_spec("marisa_trie") is not None


def child(job: str, folder: Path, size: int, seed: int, cache: Path) -> dict[str, Any]:
    """Run a job in a new process with one thread."""
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")}
    command = [sys.executable, __file__, "--job", job, "--folder", str(folder), "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--sizes", str(size)],
        env=os.environ | threads | {"NUMBA_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def median_of(runs: list[Any]) -> Any:
    """Medians, field by field."""
    if isinstance(runs[0], dict):
        return {key: median_of([run[key] for run in runs]) for key in runs[0]}
    return None if runs[0] is None else statistics.median(runs)


def compare(size: int, runs: int, seed: int, cache: Path) -> list[dict[str, Any]]:
    """All systems at one size, taking turns."""
    systems = ["gr2", "dict", "marisa"] if size <= PEERS_UP_TO else ["gr2"]
    if not has_marisa():
        systems = [system for system in systems if system != "marisa"]
    found: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
    with tempfile.TemporaryDirectory() as name:
        made = child("make", Path(name), size, seed, cache)
        for _ in range(runs if size <= PEERS_UP_TO else 1):
            for system in systems:
                found[system].append(child(system, Path(name), size, seed, cache))
    answers = {run.pop("answers") for measured in found.values() for run in measured}
    if len(answers) != 1:
        raise ValueError(f"the systems disagree about the children at {size} docids")
    rows = []
    for system, measured in found.items():
        first_call = [run.pop("first_call_s") for run in measured]
        row = {"system": system, "docids": size, "runs": len(measured)} | made | median_of(measured)
        rows.append(row | ({"first_call_s": first_call} if system == "gr2" else {}))
        print(line(row), flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    """One line of the table."""
    size = row["docids"]
    resident = "-" if row["resident_bytes"] is None else f"{row['resident_bytes'] / size:.0f}"
    own = f"{row['own_bytes'] / size:.0f}" if "own_bytes" in row else "-"
    held = f"{row['children_held_us']['median']:.1f}" if "children_held_us" in row else "-"
    asked = row["children_us"]
    return (
        f"{row['system']:8}{size:>11,}{row['build_s']:>10.2f}{row['build_cpu_s']:>10.2f}{resident:>12}{own:>10}"
        f"{asked['median']:>14.1f}{asked['mean']:>14.1f}{held:>10}"
    )


def main() -> None:
    """Measure, print a table, write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = [10_000, 100_000, 1_000_000, 10_000_000]
    results = Path(__file__).parent / "results" / "trie.json"
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=sizes, help="numbers of docids; peers stop at 1M"
    )
    parser.add_argument("--out", type=Path, default=results, help="file for the results")
    parser.add_argument("--runs", type=int, default=3, help="processes per system (one above 1M docids)")
    parser.add_argument("--seed", type=int, default=0, help="seed of docids and prefixes")
    parser.add_argument("--job", help=argparse.SUPPRESS)  # what a process of the comparison does
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        job = make(given.folder, given.sizes[0], given.seed) if given.job == "make" else None
        answer = job or measure(given.job, given.folder, given.seed)
        print(json.dumps(answer))
        return
    if not has_marisa():
        print("marisa-trie is not installed (pip install marisa-trie): it is left out")
    print(
        f"system  {'docids':>11}{'build s':>10}{'CPU s':>10}{'RSS B/docid':>12}{'own B':>10}"
        f"{'20 nodes µs':>14}{'(mean)':>14}{'at hand':>10}"
    )
    with tempfile.TemporaryDirectory() as cache:  # empty: the first process shows the cost of compilation
        rows = [row for size in given.sizes for row in compare(size, given.runs, given.seed, Path(cache))]
    store.write_json(
        given.out,
        {
            "machine": facts("numpy", "numba", "marisa-trie"),
            "docids": __doc__.split("\n\n")[2],
            "results": rows,
        },
    )


if __name__ == "__main__":
    main()
