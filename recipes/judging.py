"""A simulated study: what do 10, 25, … judged queries bring, and does it help to choose which to judge?

    python recipes/judging.py --out FOLDER pydocs nfcorpus cranfield ... [--json FILE] [--plot FILE]

A log of queries is judged as in the collection's qrels, so many of them as the size says: drawn at random, or
those first on which BM25, dense search and the hybrid disagree most (`judge/next_queries.py`). Look-ahead
learns from them by its usual selection, and nDCG@20 (gain 2^g − 1) is measured on the test queries, which are
never in the log. In each draw both strategies choose from the same log, a random half of at most `POOL`
training queries, or all of them where there are fewer than `HALVED`. On cranfield each draw tests on another
fold, without each query's source document. A finished cell is a file in FOLDER/judging and not run again.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gr2.bm25 import BM25
from gr2.data.collection import Collection, Qrels
from gr2.data.formats import open_collection
from gr2.data.formats.trec import read_pairs
from gr2.evaluate.measures import without_pairs
from gr2.evaluate.significance import holm
from gr2.evaluate.tables import render
from gr2.experiments.plans import source_documents
from gr2.experiments.plots import draw_curves
from gr2.judge.next_queries import DEPTH, next_queries
from gr2.model.config import LookAheadConfig, VectorConfig
from gr2.model.document_vectors import vectors_by_kind
from gr2.model.encoder import Vectors
from gr2.model.look_ahead import LookAhead
from gr2.model.query_encoder import QueryEncoder
from gr2.model.text_encoder import TextEncoder, load_encoder
from gr2.store import write_json
from gr2.training.estimate import Gain
from gr2.training.fit_look_ahead import learn_look_ahead
from gr2.training.judged import TrainingSet
from gr2.training.learner import Learner
from gr2.training.plain_views import PlainViews, Weights

SIZES = (10, 25, 50, 100, 200)
DRAWS = 5
POOL, HALVED = 800, 400
STRATEGIES = ("random", "disagreement")
SHORT = {"antique": 128, "movies": 128}
"""Collections of which only so many leading tokens are encoded."""


@dataclass(frozen=True)
class Draw:
    """What may be judged, and what is measured."""

    log: TrainingSet
    active: Sequence[int]
    """The rows of the log, those with the most disagreement first."""
    test: TrainingSet
    qids: Sequence[str]
    """Of the test queries."""


@dataclass(frozen=True)
class Remembering:
    """An encoder that encodes no query twice: draws share most of theirs."""

    encoder: TextEncoder
    known: dict[str, Vectors] = field(default_factory=dict)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the queries."""
        new = sorted({text for text in texts if text not in self.known})
        self.known.update(zip(new, self.encoder.encode(new), strict=True) if new else ())
        return np.stack([self.known[text] for text in texts])


def main() -> None:
    """Run what is missing, then print and save the summary of all finished cells."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collections", nargs="+", help="folders, or pydocs")
    parser.add_argument("--backbone", default="gr2-mini", help="a text encoder (gr2-mini)")
    parser.add_argument("--out", type=Path, required=True, help="keeps vectors and finished cells")
    parser.add_argument("--json", type=Path, help="save the figures")
    parser.add_argument("--plot", type=Path, help="draw the curves, as .svg or .png")
    options = parser.parse_args()
    cells = options.out / "judging"
    cells.mkdir(parents=True, exist_ok=True)
    saved = {}
    for path in options.collections:
        name = Path(path).name
        run(path, cells, options)
        saved[name] = summary(name, cells)
        print(table(name, saved[name]), flush=True)
        if options.json:
            about = {"backbone": options.backbone, "draws": DRAWS, "below untrained": below(saved)}
            write_json(options.json, {**about, "collections": saved})
    for cell in below(saved):
        print(f"below untrained: {cell}", flush=True)
    if options.plot:
        panels = {name: curves(found) for name, found in saved.items()}
        draw_curves(panels, options.plot, "judged queries", "nDCG@20")


def run(path: str, cells: Path, options: argparse.Namespace) -> None:
    """Run the cells of a collection that are missing."""
    collection, name = open_collection(path), Path(path).name
    documents = sorted(collection.documents, key=lambda document: document.docno)
    how = VectorConfig.leading(SHORT.get(name, 0))
    docnos = [document.docno for document in documents]
    vectors = vectors_by_kind(collection, docnos, options.backbone, options.out, how)
    views = PlainViews(documents, vectors, LookAheadConfig())
    learner, encoder = Learner(views.at(views.usual)), Remembering(load_encoder(options.backbone))
    for number, draw in enumerate(draws(collection, path, views, encoder)):
        file = cells / f"{name}.untrained.0.{number}.json"
        if not file.exists():
            write_json(file, measured(learner, learner.plain, draw))
        for size in (size for size in SIZES if size <= len(draw.log)):
            for strategy in STRATEGIES:
                file = cells / f"{name}.{strategy}.{size}.{number}.json"
                if file.exists():
                    continue
                rows = range(size) if strategy == "random" else draw.active[:size]
                begun = time.process_time()
                found, selection = learn_look_ahead(views, {"train": draw.log.only(list(rows))}, seed=number)
                seconds = time.process_time() - begun
                assert selection is not None
                about = {"chosen": str(selection.chosen), "weights": str(selection.weights)}
                cell = measured(learner, found, draw) | about | {"seconds": round(seconds, 2)}
                write_json(file, cell)
                print(file.name, about, f"{np.mean(list(cell['values'].values())):.4f}", flush=True)


def draws(collection: Collection, path: str, views: PlainViews, encoder: QueryEncoder) -> Iterator[Draw]:
    """The draws of a collection; a draw is a function of its number."""
    hidden = read_pairs(source_documents(path))
    systems = [views.at(Weights(list(views.vectors)[-1], 0.0)), views.at(views.usual)]
    for number in range(DRAWS):
        part = collection.fold(number % len(collection.folds)) if collection.folds else collection
        log = relevant(without_pairs(part.split("train"), hidden))
        test = relevant(without_pairs(part.split("test"), hidden))
        known = {part.queries[qid].casefold() for qid in test}
        pool = sorted(qid for qid in log if part.queries[qid].casefold() not in known)
        pool = [pool[i] for i in np.random.default_rng(0).permutation(len(pool))[:POOL]]
        some = np.random.default_rng([1, number]).permutation(len(pool))
        chosen = [pool[i] for i in some[: len(pool) // 2 if len(pool) >= HALVED else None]]
        queries = training_set(part, log, chosen, encoder)
        ranked = [rankings(system, queries) for system in systems]
        index = views.index(views.usual.titles)
        assert isinstance(index, BM25)  # of all words
        words = index.search(dict(zip(chosen, queries.texts, strict=True)), DEPTH)
        order = next_queries(
            [
                {qid: words.docnos(qid) for qid in chosen},
                *(dict(zip(chosen, r, strict=True)) for r in ranked),
            ],
            chosen,
        )
        place = {qid: row for row, qid in enumerate(chosen)}
        active = [place[one.qid] for one in order]
        qids = sorted(test)
        yield Draw(queries, active, training_set(part, test, qids, encoder), qids)


def relevant(qrels: Qrels) -> dict[str, Mapping[str, int]]:
    """The queries with a relevant document."""
    return {qid: row for qid, row in qrels.items() if any(grade > 0 for grade in row.values())}


def training_set(
    collection: Collection, qrels: Qrels, qids: Sequence[str], encoder: QueryEncoder
) -> TrainingSet:
    """These queries with their vectors and judgements."""
    texts = [collection.queries[qid] for qid in qids]
    return TrainingSet(texts, encoder.encode(texts), [qrels[qid] for qid in qids])


def rankings(look_ahead: LookAhead, queries: TrainingSet) -> list[list[str]]:
    """The best documents of each query."""
    some = [DEPTH] * len(queries), [None] * len(queries)
    ranked = look_ahead.rank(queries.texts, queries.vectors, *some)
    return [[look_ahead.docnos[place] for place in places] for places, _, _ in ranked]


def measured(learner: Learner, look_ahead: LookAhead, draw: Draw) -> dict[str, Any]:
    """nDCG@20 of each test query."""
    values = learner.ndcg(look_ahead.scores(draw.test.texts, draw.test.vectors), draw.test.judged)
    return {"values": {qid: round(value, 5) for qid, value in zip(draw.qids, values, strict=True)}}


def summary(name: str, cells: Path) -> dict[str, Any]:
    """The figures of a collection: gains over the untrained model, and of active over random choice.

    A query's value is its mean over the draws; the bands are over queries.
    """
    plain = per_query(name, "untrained", 0, cells)[0]
    found: dict[str, Any] = {"queries": len(plain), "untrained": float(np.mean(list(plain.values())))}
    for size in SIZES:
        kinds = {s: per_query(name, s, size, cells) for s in STRATEGIES}
        if not all(values for values, _ in kinds.values()):
            continue
        row: dict[str, Any] = {}
        for strategy, (values, each) in kinds.items():
            row[strategy] = {
                **asdict(Gain.of([plain[qid] for qid in values], list(values.values()))),
                "draws": [draw_gain(name, cell, cells) for cell in each],
                "learned nothing": sum(cell["chosen"] == "nothing" for cell in each),
                "seconds": round(float(np.mean([cell["seconds"] for cell in each])), 1),
                "chosen": [f"{cell['weights']}; {cell['chosen']}" for cell in each],
            }
        one, two = (kinds[s][0] for s in STRATEGIES)
        row["active over random"] = asdict(Gain.of(list(one.values()), [two[qid] for qid in one]))
        found[str(size)] = row
    return found


def per_query(
    name: str, strategy: str, size: int, cells: Path
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Each test query's mean over the draws, and the finished cells."""
    each, values = [], dict[str, list[float]]()
    for number in range(DRAWS):
        file = cells / f"{name}.{strategy}.{size}.{number}.json"
        if file.exists():
            cell = json.loads(file.read_text(encoding="utf-8"))
            each.append(cell | {"number": number})
            for qid, value in cell["values"].items():
                values.setdefault(qid, []).append(value)
    return {qid: float(np.mean(row)) for qid, row in sorted(values.items())}, each


def below(saved: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells whose band lies below the untrained model, with p corrected over all cells by Holm."""
    cells: list[dict[str, Any]] = [
        {"collection": name, "judged": int(size), "strategy": strategy}
        | {key: row[strategy][key] for key in ("gain", "low", "high", "p")}
        for name, found in saved.items()
        for size, row in found.items()
        if size.isdecimal()
        for strategy in STRATEGIES
    ]
    corrected = holm([cell["p"] for cell in cells])
    found = [cell | {"holm": p} for cell, p in zip(cells, corrected, strict=True)]
    return [cell for cell in found if cell["high"] < 0]


def draw_gain(name: str, cell: dict[str, Any], cells: Path) -> dict[str, float]:
    """The gain of one draw over the untrained model on the same queries, and its band."""
    plain = json.loads((cells / f"{name}.untrained.0.{cell['number']}.json").read_text(encoding="utf-8"))
    found = Gain.of([plain["values"][qid] for qid in cell["values"]], list(cell["values"].values()))
    return {"gain": round(found.gain, 5), "low": round(found.low, 5), "high": round(found.high, 5)}


def table(name: str, found: Mapping[str, Any]) -> str:
    """The figures of a collection in Markdown."""
    rows = []
    for size in (size for size in map(str, SIZES) if size in found):
        row, cells = found[size], [size]
        for strategy in STRATEGIES:
            one = row[strategy]
            worst = min(draw["gain"] for draw in one["draws"])
            below = sum(draw["high"] < 0 for draw in one["draws"])
            cells += [
                f"{one['after']:.4f} ({one['gain']:+.4f}, {one['low']:+.4f} to {one['high']:+.4f})",
                f"{worst:+.4f}, {below} of {len(one['draws'])}",
            ]
        more = row["active over random"]
        rows.append([*cells, f"{more['gain']:+.4f} (p {more['p']:.3f})"])
    header = ["judged"]
    for strategy in STRATEGIES:
        header += [strategy, "worst draw, draws below untrained"]
    text = render([*header, "active over random"], rows, "markdown")
    return f"### {name}: {found['queries']} test queries, untrained {found['untrained']:.4f}\n\n{text}\n"


def curves(found: Mapping[str, Any]) -> dict[str, list[tuple[float, float, float, float]]]:
    """By strategy, the points of the curve: size, nDCG@20, and the band of the gain put around it."""
    base, sizes = found["untrained"], [size for size in SIZES if str(size) in found]
    rows = {s: [found[str(size)][s] for size in sizes] for s in STRATEGIES}
    return {
        strategy: [
            (0.0, base, base, base),
            *(
                (float(size), row["after"], row["before"] + row["low"], row["before"] + row["high"])
                for size, row in zip(sizes, cells, strict=True)
            ),
        ]
        for strategy, cells in rows.items()
    }


if __name__ == "__main__":
    main()
