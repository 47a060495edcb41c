"""The embedded backbone `gr2-mini`: MiniLM with a decoder that has learned to generate titles, by GR²P.

    python recipes/mini.py make  --start MINILM --out FOLDER WIKISPEEDIA MDN-LINKS
    python recipes/mini.py share --start MINILM --out FOLDER [--split dev] COLLECTION ...
    python recipes/mini.py check --start MINILM --out FOLDER [--json docs/results/mini.json] COLLECTION ...

`make` joins the linked folders into one collection (graded by links, as in the paper) and pre-trains on it
twice. The first training has a node prior and moves encoder and decoder; then the encoder's weights are moved
back towards their start. The second has no prior and trains the decoder alone to generate titles from what
this encoder gives. The result is FOLDER/gr2-mini in 8 bits and FOLDER/gr2-mini-32 in 32 bits; interrupted
work continues. `share` shows how SHARE was chosen: by dense retrieval from leading tokens with queries that
are not test queries. `check` shows whether the encoder is still good on its own: dense retrieval without
training, compared with the start, each in 32 bits and in 8. Backbones that are not in FOLDER are left out,
except gr2-mini, for which the one of the package is taken.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gr2.data.collection import Collection, Document
from gr2.data.formats import open_collection
from gr2.data.links import LinksConfig, Tally, read_linked_folder
from gr2.data.runs import Run
from gr2.evaluate.describe import headline
from gr2.evaluate.significance import compare
from gr2.evaluate.tables import comparison_table
from gr2.experiments.plans import source_documents
from gr2.experiments.tables import gather, kept_dense_run
from gr2.model.backbone import FreshDecoder, parts_of, tokenizer_of
from gr2.model.config import VectorConfig
from gr2.model.document_vectors import document_vectors
from gr2.model.encoder import Encoder
from gr2.model.families import transformers
from gr2.model.gr2 import GR2
from gr2.model.network import Network
from gr2.model.quantised_io import Storage, load_weights, save_weights, weights_of
from gr2.report.evidence import loss_curves
from gr2.schemes.config import SchemeConfig
from gr2.store import Workspace, atomic_folder, write_json
from gr2.systems.baselines import baselines
from gr2.systems.dense import Dense
from gr2.training.config import (
    AugmentConfig,
    BatchConfig,
    OptimiserConfig,
    PriorConfig,
    ScheduleConfig,
    TrainingConfig,
)
from gr2.workflows.config import PretrainConfig
from gr2.workflows.pretrain import export, pretrain

ENCODER = TrainingConfig(
    batches=BatchConfig(queries=16, texts=16, per_grade=1),
    optimiser=OptimiserConfig(learning_rate=5e-4, pretrained_rate=0.1, average=0.2),
    schedule=ScheduleConfig(steps=1500),
    augment=AugmentConfig(pieces=4),
)
"""The first training, which moves the encoder."""
DECODER = TrainingConfig(
    batches=BatchConfig(queries=32, texts=32, per_grade=1),
    optimiser=OptimiserConfig(learning_rate=1e-3, average=0.2),
    schedule=ScheduleConfig(frozen_steps=1500, steps=0),
    augment=AugmentConfig(pieces=1),
    prior=PriorConfig(vectors_per_document=0.0),
)
"""The second, with a frozen encoder."""
LINKS = LinksConfig(queries=3)
WORDS = 6
"""Words of a title."""
LEAD = 48
"""Leading tokens from which a document's vector in the node prior is made."""
SHARE = 0.25
"""Share of the encoder's movement that is kept."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
MEASURES = ("nDCG@5", "nDCG@20", "ERR@20", "Hits@10")
CARD = """---
library_name: gr2
license: apache-2.0
tags: [generative-retrieval]
---
# gr2-mini

The backbone that comes with gr2: a text encoder and a decoder of {layers} layers that has learned to
generate titles of documents by graded relevance (GR²P). `gr2 train --backbone gr2-mini` starts from it.

| what | |
|---|---|
| encoder | all-MiniLM-L6-v2 (Apache-2.0), trained further; {share:.0%} of its movement is kept |
| pre-training | {headline} |
| grades | 4 the document itself, 3 See-also or mutual links, 2 links of the first section, 1 others |
| pairs of each grade | {pairs} |
| texts | {sources} |
| first training | {first}, with a node prior |
| second training | {second}, the decoder alone, without a node prior |
| time | an hour for the first and 41 minutes for the second, on one thread (AVX2) |
| stored | {storage} |

Its encoder finds documents before any training; docs/backbone.md compares it with the one it was made from.

The texts themselves are not in this folder. Sources: wikispeedia (West and Leskovec, Human Wayfinding in
Information Networks, WWW 2012), whose texts are from Wikipedia (GFDL, since then CC BY-SA 3.0); MDN Web Docs
by Mozilla contributors (CC BY-SA 2.5). `recipes/mini.py` reproduces it.

Loss; each row is the mean of the logged steps since the row before. The first training, with a node prior:

| step | total | MGCC | MLE queries | MLE documents |
|---:|---:|---:|---:|---:|
{curves[0]}

The second, without:

| step | total | MGCC | MLE queries | MLE documents |
|---:|---:|---:|---:|---:|
{curves[1]}
"""


def joined(collections: Sequence[Collection]) -> Collection:
    """One collection from several; all keys are prefixed by the name of their collection."""
    documents = tuple(
        Document(f"{one.name}/{d.docno}", d.title, d.text) for one in collections for d in one.documents
    )
    queries = {f"{one.name}/{qid}": text for one in collections for qid, text in one.queries.items()}
    judged = {
        f"{one.name}/{qid}": {f"{one.name}/{docno}": grade for docno, grade in row.items()}
        for one in collections
        for qid, row in one.split("train").items()
    }
    name = "+".join(one.name for one in collections)
    return Collection(name=name, documents=documents, queries=queries, qrels={"train": judged})


def move_back(network: Network, start: str, share: float) -> None:
    """Keep only a share of how far the encoder's weights have moved from the start."""
    before = parts_of(start, FreshDecoder()).encoder.state_dict()
    for name, value in network.encoder.state_dict().items():
        if value.is_floating_point():
            value.lerp_(before[name], 1 - share)


def make(options: argparse.Namespace) -> None:
    """Pre-train and write the backbone."""
    found = [read_linked_folder(Path(path), LINKS) for path in options.folders]
    collection = joined([one for one, _ in found])
    print(headline(collection))
    names = ("encoder", f"drawn-{SHARE:g}", f"decoder-{SHARE:g}")
    first, moved, second = (options.out / name for name in names)
    titles = SchemeConfig(scheme="title", words=WORDS)
    if not first.exists():
        docnos = sorted(document.docno for document in collection.documents)
        lead = VectorConfig.leading(LEAD)
        vectors = document_vectors(collection, docnos, options.start, options.out, lead, progress=True)
        config = PretrainConfig(backbone=options.start, docids=titles, training=ENCODER)
        pretrain(collection, first, config, vectors=vectors, resume=True, progress=True)
    made = GR2.from_pretrained(Workspace(first).model)
    move_back(made.network, options.start, SHARE)
    if not moved.exists():
        export(made.network, options.start, moved, {"share": SHARE})
    if not second.exists():
        config = PretrainConfig(backbone=str(moved), docids=titles, training=DECODER)
        pretrain(collection, second, config, resume=True, progress=True)
    model = GR2.from_pretrained(Workspace(second).model)
    plans = {"first": made.provenance["training"], "second": model.provenance["training"]}
    read = {name: model.provenance[name] for name in ("collection", "fingerprint")}
    about = {"made from": {"backbone": Path(options.start).name, "share": SHARE, **plans, **read}}
    stored: dict[str, Storage] = {"gr2-mini": "int8", "gr2-mini-32": "fp32"}
    for name, storage in stored.items():
        text = card(collection, [tally for _, tally in found], (first, second), storage)
        export(model.network, str(moved), options.out / name, about, storage=storage, card=text)
        size = sum(path.stat().st_size for path in (options.out / name).rglob("*") if path.is_file())
        print(f"{options.out / name}: {size / 1e6:.1f} MB")


def curve(backbone: Path) -> str:
    """The loss of a training as rows of a table."""
    curves = loss_curves(Workspace(Workspace(backbone).model).training, points=10)
    parts = [curves[name] for name in ("total", "mgcc", "mle_q", "mle_d")]
    rows = [
        [f"{step:,.0f}", *(f"{part[place][1]:.3f}" for part in parts)]
        for place, (step, _) in enumerate(parts[0])
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def card(collection: Collection, tallies: Sequence[Tally], stages: Sequence[Path], storage: str) -> str:
    """The model card."""
    named = list(zip(collection.name.split("+"), tallies, strict=True))
    return CARD.format(
        layers=FreshDecoder().layers,
        share=SHARE,
        headline=headline(collection),
        pairs="; ".join(f"{n} " + ", ".join(f"{g}: {t.pairs[g]:,}" for g in (4, 3, 2, 1)) for n, t in named),
        sources="; ".join(f"{name} {tally.documents:,} documents" for name, tally in named),
        first=volume(ENCODER),
        second=volume(DECODER),
        storage={"int8": "8 bits and a scale per row", "fp32": "32 bits"}[storage],
        curves=[curve(stage) for stage in stages],
    )


def volume(config: TrainingConfig) -> str:
    """How much a training reads."""
    steps = config.schedule.frozen_steps + config.schedule.steps
    return f"{steps:,} steps of {config.batches.queries} queries and {config.batches.texts} texts"


def share(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Dense retrieval from leading tokens for each share of the encoder's movement; returns the means."""
    collection = open_collection(path)
    queries = {qid: collection.queries[qid] for qid in collection.split(options.split)}
    lead = VectorConfig.leading(LEAD)
    rows: list[tuple[str, int, Run]] = []
    for kept in SHARES:
        model = GR2.from_pretrained(Workspace(options.out / "encoder").model)
        move_back(model.network, options.start, kept)
        encoder = Encoder(f"{kept:.0%}", model.network.encoder, tokenizer_of(options.start))
        rows += [(encoder.name, 0, Dense.index(collection.documents, encoder, lead).search(queries, 100))]
    return shown(options, collection, rows)


def check(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Dense retrieval with the encoders before and after pre-training; returns the means."""
    collection = open_collection(path)
    queries = {qid: collection.queries[qid] for qid in collection.split(options.split)}
    bm25 = [each for each in baselines(collection) if each.system == "bm25"]
    rows = [(each.name, 0, each.run(collection, queries)) for each in bm25]
    made, full = options.out / "gr2-mini", options.out / "gr2-mini-32"
    places: dict[str, str | Path] = {"start": options.start, "gr2-mini": made if made.exists() else made.name}
    if full.exists():
        places["gr2-mini, 32 bits"] = full
    if options.rounded:
        places["start, 8 bits"] = rounded(options.start, options.out)
    for name, place in places.items():
        run = kept_dense_run(collection, place, options.out, split=options.split, lead=options.lead)
        rows.append((name, 0, run))
    return shown(options, collection, rows, source_documents(path))


def rounded(start: str, out: Path) -> Path:
    """The start as a checkpoint whose weights are rounded to 8 bits."""
    folder = out / f"{Path(start).name}-8"
    if not folder.exists():
        model = transformers().AutoModel.from_pretrained(start)
        with atomic_folder(folder) as temporary:
            stored = temporary / "weights.safetensors"
            save_weights(weights_of(model), stored, "int8")
            model.load_state_dict(load_weights(stored), strict=False)
            stored.unlink()
            model.save_pretrained(temporary)
            tokenizer_of(start).save_pretrained(temporary)
    return folder


def shown(
    options: argparse.Namespace,
    collection: Collection,
    rows: Sequence[tuple[str, int, Run]],
    exclude: Path | None = None,
) -> dict[str, Any]:
    """Print the table of these runs and return the means."""
    found = gather(collection, rows, MEASURES, split=options.split, exclude=exclude)
    print(f"### {headline(collection)}, {options.split}\n\n{comparison_table(compare(found), 'markdown')}\n")
    return {evaluation.name: evaluation.means for evaluation in found}


def main() -> None:
    """Make, compare shares, or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("make", "share", "check"))
    parser.add_argument("folders", nargs="+", help="linked folders for `make`, else collections or pydocs")
    parser.add_argument("--start", required=True, help="MiniLM, by folder or hub name")
    parser.add_argument("--out", type=Path, required=True, help="folder of all results")
    parser.add_argument(
        "--lead",
        type=int,
        default=0,
        help="leading tokens that `check` encodes; 0: the whole document, in pieces (0)",
    )
    parser.add_argument("--rounded", action="store_true", help="also check the start in 8 bits")
    parser.add_argument("--split", default="test", help="split of the queries (test)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    if options.do == "make":
        make(options)
        return
    action = {"share": share, "check": check}[options.do]
    saved = {Path(path).name: action(options, path) for path in options.folders}
    if options.json:
        lead = LEAD if options.do == "share" else options.lead
        write_json(options.json, {"split": options.split, "lead": lead, "collections": saved})


if __name__ == "__main__":
    main()
