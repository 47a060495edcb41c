"""Constrained decoding compared with transformers' `generate` with a prefix function, and other systems.

    python benchmarks/decode.py --only random            # random weights in the shapes of T5-small and mini
    python benchmarks/decode.py --only trained --checkpoint FOLDER   # made by decode_training.py
    python benchmarks/decode.py --only beams --checkpoint FOLDER     # beam error, table and plot for docs/
    python benchmarks/decode.py --only peers             # bm25s, and a MiniLM-size encoder with faiss

One process, one thread. Systems take turns on the same queries, so that a busy machine slows all of them
down. Figures are medians of CPU and wall seconds per batch, always with the encoder. `generate` runs in the
usual way with the settings that it needs: a dictionary trie that is walked from the root at each step,
early_stopping="never" and length_penalty=0 (its defaults stop early and divide by length), and the end token
for finished rows.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from decode_training import LONGEST_INPUT, load_t5
from machine import facts
from torch import Tensor

from gr2 import store
from gr2.decode import Decoder, Normaliser, Ranked, beam, decoder_of, exact
from gr2.docids.trie import Trie

END, BEAMS = 1, 20
Docids = list[tuple[int, ...]]
HERE = Path(__file__).parent
SHAPES: dict[str, dict[str, Any]] = {
    "t5-small": {"d_model": 512, "d_kv": 64, "num_heads": 6, "d_ff": 1024, "layers": 8, "gated": True},
    "mini": {"d_model": 384, "d_kv": 64, "num_heads": 6, "d_ff": 1024, "layers": 2, "gated": True},
}


@dataclass(frozen=True)
class Subject:
    """A model, its docids and its queries: the input of all systems."""

    model: Any
    docids: Docids
    inputs: Tensor
    mask: Tensor

    def batch(self, part: slice) -> tuple[Tensor, Tensor]:
        """Some queries and their mask, padded to the longest of them."""
        width = int(self.mask[part].sum(1).max())
        return self.inputs[part, :width], self.mask[part, :width]


def fresh_model(shape: str) -> Any:
    """Random weights in a given shape, with an untied head and logits of ordinary size."""
    import transformers

    hf: Any = transformers
    size = dict(SHAPES[shape])
    layers, gated = size.pop("layers"), size.pop("gated")
    config = hf.T5Config(
        **size,
        num_layers=layers,
        num_decoder_layers=layers,
        vocab_size=32128,
        feed_forward_proj="gated-gelu" if gated else "relu",
        decoder_start_token_id=0,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = hf.T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.lm_head.weight = torch.nn.Parameter(
            torch.randn(32128, config.d_model) * 5 / config.d_model**0.5
        )
    return model


def fresh_docids(number: int) -> Docids:
    """Unique docids of 4 to 15 tokens, Zipf-like, so that they share prefixes as titles do."""
    rng = np.random.default_rng(0)
    weight = 1 / np.arange(10.0, 30_010.0)
    found: dict[tuple[int, ...], None] = {}
    while len(found) < number:
        lengths = rng.integers(4, 16, number)
        flat = rng.choice(30_000, lengths.sum(), p=weight / weight.sum()) + 2
        for tokens in np.split(flat, lengths.cumsum()[:-1]):
            found[tuple(tokens.tolist())] = None
    return list(found)[:number]


def fresh_subject(shape: str, docids: Docids) -> Subject:
    """Random weights, random queries of 18 tokens."""
    inputs = torch.randint(2, 30_000, (64, 18), generator=torch.Generator().manual_seed(1))
    return Subject(fresh_model(shape), docids, inputs, torch.ones_like(inputs))


def trained_subject(checkpoint: Path) -> Subject:
    """The output of `decode_training.py`: a model, title docids and test queries."""
    from transformers import AutoTokenizer

    about = json.loads((checkpoint / "docids.json").read_text(encoding="utf-8"))
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    texts = about["queries"]
    order = np.random.default_rng(0).permutation(len(texts))
    options = {"padding": True, "truncation": True, "max_length": LONGEST_INPUT, "return_tensors": "pt"}
    tokens = tokenizer([texts[i] for i in order], **options)
    docids = [tuple(docid) for docid in about["docids"]]
    return Subject(load_t5(checkpoint), docids, tokens.input_ids, tokens.attention_mask)


def nested(docids: Docids) -> dict[int, Any]:
    """The usual trie: nested dictionaries."""
    root: dict[int, Any] = {}
    for docid in docids:
        node = root
        for token in (*docid, END):
            node = node.setdefault(token, {})
    return root


def generate(subject: Subject, root: dict[int, Any], part: slice, renormalise: bool) -> list[list[int]]:
    """Docid indices of each query of a batch from transformers."""

    def allowed(_: int, prefix: Tensor) -> list[int]:
        node = root
        for token in prefix.tolist()[1:]:
            node = node.get(token, {})
        return list(node) or [END]  # finished rows

    inputs, mask = subject.batch(part)
    out = subject.model.generate(
        input_ids=inputs,
        attention_mask=mask,
        num_beams=BEAMS,
        num_return_sequences=BEAMS,
        prefix_allowed_tokens_fn=allowed,
        renormalize_logits=renormalise,
        length_penalty=0.0,
        early_stopping="never",
        max_length=max(map(len, subject.docids)) + 3,
        do_sample=False,
    )
    number = {docid: i for i, docid in enumerate(subject.docids)}
    found = [number[tuple(row[1 : row.index(END)])] for row in out.tolist()]
    return [found[i : i + BEAMS] for i in range(0, len(found), BEAMS)]


def search(subject: Subject, decoder: Decoder, trie: Trie, part: slice, how: Callable[..., Ranked]) -> Ranked:
    """Encode and decode one batch."""
    states, mask = encode(subject, part)
    return how(decoder, trie, states, mask)


def encode(subject: Subject, part: slice) -> tuple[Tensor, Tensor]:
    """The encoder's states and mask; they are part of every system's time."""
    inputs, mask = subject.batch(part)
    with torch.inference_mode():
        states: Tensor = subject.model.get_encoder()(input_ids=inputs, attention_mask=mask).last_hidden_state
    return states, mask


def systems(subject: Subject, trie: Trie) -> dict[str, Callable[[slice], Any]]:
    """Every system by name, as a function of a slice of the queries."""
    root, model = nested(subject.docids), subject.model
    full, small = decoder_of(model), decoder_of(model, precision="int8")
    by_trie = partial(beam, normaliser="trie")
    return {
        "encoder alone": partial(encode, subject),
        "generate": partial(generate, subject, root, renormalise=False),
        "beam fp32": partial(search, subject, full, trie, how=beam),
        "beam int8": partial(search, subject, small, trie, how=beam),
        "generate, trie": partial(generate, subject, root, renormalise=True),
        "beam fp32, trie": partial(search, subject, full, trie, how=by_trie),
        "beam int8, trie": partial(search, subject, small, trie, how=by_trie),
        "exact fp32, trie": partial(search, subject, full, trie, how=partial(exact, normaliser="trie")),
    }


def lists(result: Any) -> list[list[int]]:
    """Docid indices per query, from any system."""
    return [docids.tolist() for docids, _ in result] if isinstance(result, Ranked) else result


def interleaved(
    named: dict[str, Callable[[slice], Any]], batch: int, rounds: int, queries: int
) -> tuple[dict[str, dict[str, float]], dict[str, list[list[int]]]]:
    """Median seconds per batch of each system, taking turns, and the results of each."""
    cpu: dict[str, list[float]] = {name: [] for name in named}
    wall: dict[str, list[float]] = {name: [] for name in named}
    rows: dict[str, list[float]] = {name: [] for name in named}
    found: dict[str, list[list[int]]] = {name: [] for name in named}
    for name, system in named.items():  # compile and warm up, unmeasured
        if not name.startswith("generate"):
            system(slice(0, batch))
    for number in range(rounds):
        start = number * batch % max(1, queries - batch + 1)
        for name, system in named.items():
            before, clock = time.process_time(), time.perf_counter()
            result = system(slice(start, start + batch))
            cpu[name].append(time.process_time() - before)
            wall[name].append(time.perf_counter() - clock)
            found[name] += [] if name == "encoder alone" else lists(result)
            if isinstance(result, Ranked):
                rows[name].append(float(result.rows.mean()))
    times = {
        name: {"cpu_seconds": statistics.median(cpu[name]), "wall_seconds": statistics.median(wall[name])}
        | ({"rows_per_query": statistics.mean(rows[name])} if rows[name] else {})
        for name in named
    }
    return times, found


def agreement(one: list[list[int]], other: list[list[int]]) -> dict[str, float]:
    """How similar two lists of rankings are."""
    pairs = list(zip(one, other, strict=True))
    return {
        "identical": float(np.mean([a == b for a, b in pairs])),
        "top1": float(np.mean([a[0] == b[0] for a, b in pairs])),
        "overlap": float(np.mean([len(set(a) & set(b)) / BEAMS for a, b in pairs])),
    }


def compare(subject: Subject, batch: int, rounds: int) -> dict[str, Any]:
    """All systems on one subject and batch size, with ratios to `generate` and agreement with it."""
    trie = Trie.from_sequences(subject.docids, end=END)
    times, found = interleaved(systems(subject, trie), batch, rounds, len(subject.inputs))
    for name in set(times) - {"encoder alone"}:
        stock = "generate, trie" if name.endswith("trie") else "generate"
        times[name]["times_generate"] = times[stock]["cpu_seconds"] / times[name]["cpu_seconds"]
        times[name]["times_generate_wall"] = times[stock]["wall_seconds"] / times[name]["wall_seconds"]
        times[name] |= agreement(found[name], found[stock])
    rate = gemm_rate(BEAMS * batch)
    for name in ("beam fp32",):
        flops = 2.0 * decoder_parameters(subject.model) * times[name]["rows_per_query"] * batch
        times[name]["share_of_gemm_rate"] = flops / times[name]["cpu_seconds"] / (rate * 1e9)
    return {
        "batch": batch,
        "docids": len(subject.docids),
        "rounds": rounds,
        "gemm_gflops": rate,
        "systems": times,
    }


def decoder_parameters(model: Any) -> int:
    """The weights that every decoded token passes: not those that read the encoder states once."""
    once = ("EncDecAttention.k.weight", "EncDecAttention.v.weight", "embed_tokens.weight", "bias.weight")
    named = model.decoder.named_parameters()
    blocks = sum(int(p.numel()) for name, p in named if p.ndim == 2 and not name.endswith(once))
    return blocks + int(model.lm_head.weight.numel())


def gemm_rate(rows: int) -> float:
    """Gigaflops of torch's fp32 product of some rows and a 512 x 2048 matrix, the best of 400."""
    x, weight = torch.randn(rows, 512), torch.randn(2048, 512)
    best = float("inf")
    for _ in range(400):
        before = time.process_time()
        torch.nn.functional.linear(x, weight)
        best = min(best, time.process_time() - before)
    return 2 * rows * 512 * 2048 / best / 1e9


def part_random(args: argparse.Namespace, save: Callable[[str, Any], None]) -> None:
    """Random weights: both shapes, 10K and 100K docids, batches of 1 and 16."""
    for number in args.docids:
        docids = fresh_docids(number)
        for shape in args.shapes:
            subject = fresh_subject(shape, docids)
            for batch in args.batches:
                rounds = args.rounds if batch == 1 else max(2, args.rounds // 3)
                save(f"random {shape} {number} batch {batch}", compare(subject, batch, rounds))


def part_trained(args: argparse.Namespace, save: Callable[[str, Any], None]) -> None:
    """A trained model with real docids."""
    subject = trained_subject(args.checkpoint)
    for batch in args.batches:
        rounds = args.rounds if batch == 1 else max(2, args.rounds // 3)
        save(f"trained batch {batch}", compare(subject, batch, rounds))


def part_beams(args: argparse.Namespace, save: Callable[[str, Any], None]) -> None:
    """Error and cost by beam width, compared with exact search, for both normalisers."""
    subject = trained_subject(args.checkpoint)
    trie, decoder = Trie.from_sequences(subject.docids, end=END), decoder_of(subject.model)
    table: dict[str, Any] = {"docids": len(subject.docids)}
    plans: tuple[tuple[Normaliser, int], ...] = (("trie", args.queries), ("vocabulary", args.hard_queries))
    for normaliser, queries in plans:
        run = partial(run_all, subject, decoder, trie, queries)
        truth = run(partial(exact, normaliser=normaliser, k=20, budget=args.budget))
        rows = [against(truth, truth) | {"beams": "exact"}]
        for width in (1, 2, 5, 10, 20, 50, 100):
            found = run(partial(beam, normaliser=normaliser, beams=width, k=min(20, width)))
            rows.append(against(found, truth) | {"beams": width})
        table[normaliser] = rows
    save("beams", table)
    plot(table, args.plot)


def run_all(
    subject: Subject, decoder: Decoder, trie: Trie, queries: int, how: Callable[..., Ranked]
) -> dict[str, Any]:
    """Decode the first queries in batches of 8; rankings, proofs, rows and CPU seconds per query."""
    found: list[list[int]] = []
    proven, rows, before = [], [], time.process_time()
    for start in range(0, queries, 8):
        ranked = search(subject, decoder, trie, slice(start, min(start + 8, queries)), how)
        found += lists(ranked)
        proven += ranked.proven.tolist()
        rows += ranked.rows.tolist()
    return {"found": found, "proven": proven, "rows": rows, "cpu": (time.process_time() - before) / queries}


def against(run: dict[str, Any], truth: dict[str, Any]) -> dict[str, Any]:
    """The share of the proven top 1 and top 20 that a run misses, and its cost."""
    pairs = [(a, b) for a, b, sure in zip(run["found"], truth["found"], truth["proven"], strict=True) if sure]
    if not pairs:
        raise SystemExit("exact search proved no query: give it a larger --budget")
    return {
        "top1_missed": float(np.mean([a[0] != b[0] for a, b in pairs])),
        "top20_missed": float(np.mean([1 - len(set(a) & set(b)) / len(b) for a, b in pairs])),
        "proven": float(np.mean(run["proven"])),
        "rows_per_query": float(np.mean(run["rows"])),
        "cpu_seconds_per_query": run["cpu"],
        "queries_compared": len(pairs),
    }


def plot(table: dict[str, Any], path: Path) -> None:
    """Missed share of the true top 20 and decoder rows by beam width."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    for normaliser, colour in (("vocabulary", "tab:blue"), ("trie", "tab:orange")):
        beams = [row for row in table[normaliser] if row["beams"] != "exact"]
        sure = next(row for row in table[normaliser] if row["beams"] == "exact")
        widths = [row["beams"] for row in beams]
        left.plot(widths, [row["top20_missed"] for row in beams], "o-", color=colour, label=normaliser)
        right.plot(widths, [row["rows_per_query"] for row in beams], "o-", color=colour, label=normaliser)
        right.axhline(sure["rows_per_query"], color=colour, linestyle=":", label=f"{normaliser}, exact")
    for axes, title in ((left, "share of the true top 20 missed"), (right, "decoder rows per query")):
        axes.set(xscale="log", xlabel="beams", title=title)
        axes.set_xticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
        axes.legend()
    right.set_yscale("log")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def part_peers(args: argparse.Namespace, save: Callable[[str, Any], None]) -> None:
    """What a user could take instead, at 100K documents: BM25, or a small encoder with a flat index."""
    result: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(30_000)])
    weight = 1 / np.arange(10.0, 30_010.0)
    texts = [" ".join(words[rng.choice(30_000, 60, p=weight / weight.sum())]) for _ in range(100_000)]
    queries = [" ".join(words[rng.choice(30_000, 10, p=weight / weight.sum())]) for _ in range(100)]
    import bm25s

    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, show_progress=False, stopwords=None), show_progress=False)

    def lexical(query: str) -> None:
        tokens = bm25s.tokenize([query], show_progress=False, stopwords=None)
        index.retrieve(tokens, k=20, show_progress=False)

    result["bm25s"] = timed(lexical, queries)
    try:
        import faiss
    except ImportError:
        result["encoder + faiss flat"] = "faiss-cpu is not installed"
    else:
        faiss.omp_set_num_threads(1)
        result["encoder + faiss flat"] = timed(dense(faiss), queries)
    save("peers 100K", result)


def dense(faiss: Any) -> Callable[[str], None]:
    """A BERT of MiniLM's shape (6 layers, width 384) on 18 tokens and a flat index of 100K vectors."""
    import transformers

    hf: Any = transformers
    config = hf.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    model = hf.BertModel(config).eval()
    flat = faiss.IndexFlatIP(384)
    flat.add(np.random.default_rng(0).standard_normal((100_000, 384), dtype=np.float32))
    inputs = torch.randint(5, 30_000, (1, 18))

    def ask(_: str) -> None:
        with torch.inference_mode():
            flat.search(model(input_ids=inputs).last_hidden_state.mean(1).numpy(), 20)

    return ask


def timed(ask: Callable[[str], None], queries: Sequence[str]) -> dict[str, float]:
    """Median CPU and wall seconds of one query."""
    ask(queries[0])
    cpu, wall = [], []
    for query in queries:
        before, clock = time.process_time(), time.perf_counter()
        ask(query)
        cpu.append(time.process_time() - before)
        wall.append(time.perf_counter() - clock)
    return {"cpu_seconds": statistics.median(cpu), "wall_seconds": statistics.median(wall)}


PARTS = {"random": part_random, "trained": part_trained, "beams": part_beams, "peers": part_peers}


def main() -> None:
    """Run the chosen parts; each result is saved at once."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=list(PARTS), help="which parts (default: all)"
    )
    parser.add_argument("--checkpoint", type=Path, help="folder made by decode_training.py (trained, beams)")
    parser.add_argument(
        "--docids", type=int, nargs="+", default=[10_000, 100_000], help="numbers of docids for `random`"
    )
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="shapes for `random` (default: all)"
    )
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[1, 16], help="queries per batch (default: 1 16)"
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="turns at batch 1; a third of them at others (default: 7)"
    )
    parser.add_argument(
        "--queries", type=int, default=48, help="queries of `beams` with the trie normaliser (default: 48)"
    )
    parser.add_argument(
        "--hard-queries",
        type=int,
        default=4,
        help="the same with the vocabulary normaliser, where a proof reads most of the trie (default: 4)",
    )
    parser.add_argument(
        "--budget",
        type=int,
        default=200_000,
        help="decoder rows of exact search in `beams` (default: 200000)",
    )
    parser.add_argument(
        "--out", type=Path, default=HERE / "results" / "decode.json", help="file to which results are added"
    )
    plot_file = HERE.parent / "docs" / "beam-error.png"
    parser.add_argument("--plot", type=Path, default=plot_file, help="file for the plot of `beams`")
    args = parser.parse_args()
    if args.checkpoint is None and {"trained", "beams"} & set(args.only):
        parser.error("the parts trained and beams need --checkpoint")
    torch.set_num_threads(1)
    results = json.loads(args.out.read_text(encoding="utf-8")) if args.out.is_file() else {}

    def save(name: str, value: Any) -> None:
        packages = ("torch", "transformers", "numba", "bm25s", "faiss-cpu")
        results[name] = value | {"machine": facts(*packages)}
        store.write_json(args.out, results)
        print(name, json.dumps(value, indent=1), flush=True)

    for part in args.only:
        PARTS[part](args, save)


if __name__ == "__main__":
    main()
