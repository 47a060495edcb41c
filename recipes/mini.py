"""The embedded backbone `gr2-mini`: MiniLM with a decoder that has learned to write titles, by GR²P.

    python recipes/mini.py make  --start MINILM --out FOLDER WIKISPEEDIA MDN-LINKS
    python recipes/mini.py share --start MINILM --out FOLDER [--split dev] COLLECTION ...
    python recipes/mini.py check --start MINILM --out FOLDER [--json docs/results/mini.json] COLLECTION ...

`make` joins the linked folders into one graded collection (grades by links, as in the paper) and pre-trains
on it twice: first encoder and decoder beside a node prior, after which the encoder is drawn back towards its
start; then the decoder alone, which learns to write titles without a prior from what this encoder reads. It
leaves FOLDER/gr2-mini in 8 bits and FOLDER/gr2-mini-32 in 32; interrupted, it goes on. `share` shows what
SHARE was chosen by: dense retrieval by leading tokens with queries that are not test queries. `check` asks
whether the encoder is still good on its own: dense retrieval without training, beside the start, each in 32
bits and in 8; what is not in FOLDER is left out, but for gr2-mini, which then is the package's.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graded import SETTINGS, dense

from gr2.augment import AugmentConfig
from gr2.backbone import FreshDecoder, parts_of, tokenizer_of, transformers
from gr2.baselines.dense import Dense, DenseConfig, document_vectors
from gr2.baselines.sparse import BM25
from gr2.compare import compare
from gr2.data import Collection, Document
from gr2.embed import Encoder
from gr2.experiment import gather
from gr2.formats import open_collection
from gr2.info import headline
from gr2.learn import Plan
from gr2.links import LinksConfig, Tally, read_linked_folder
from gr2.model import GR2
from gr2.network import Network
from gr2.pretrain import export, pretrain
from gr2.report.evidence import loss_curves
from gr2.runs import Run
from gr2.store import atomic_folder, write_json
from gr2.tables import comparison_table
from gr2.weights import Storage, load_weights, save_weights, weights_of

ENCODER = Plan(
    steps=1500,
    queries=16,
    texts=16,
    per_grade=1,
    smoothing=0.0,
    learning_rate=5e-4,
    pretrained_rate=0.1,
    average=0.2,
    augment=AugmentConfig(paragraphs=0, sentences=0, entities=0, pieces=4),
)
"""Of the first training, in which the encoder learns."""
DECODER = Plan(
    frozen_steps=1500,
    steps=0,
    queries=32,
    texts=32,
    per_grade=1,
    smoothing=0.0,
    learning_rate=1e-3,
    prior=0.0,
    average=0.2,
    augment=AugmentConfig(paragraphs=0, sentences=0, entities=0, pieces=1),
)
"""Of the second, in which it stands still."""
LINKS = LinksConfig(queries=3)
WORDS = 6
"""Of a title."""
LEAD = 48
"""Tokens of a document that its vector in the node prior is made from."""
SHARE = 0.25
"""Of the encoder's movement that is kept."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
MEASURES = ("nDCG@5", "nDCG@20", "ERR@20", "Hits@10")
CARD = """---
library_name: gr2
license: apache-2.0
tags: [generative-retrieval]
---
# gr2-mini

The backbone that comes with gr2: a text encoder and a decoder of {layers} layers that has learned to write
titles of documents by graded relevance (GR²P). `gr2 train --backbone gr2-mini` starts from it.

| what | |
|---|---|
| encoder | all-MiniLM-L6-v2 (Apache-2.0), trained on; {share:.0%} of its movement is kept |
| pre-training | {headline} |
| grades | 4 the document itself, 3 See-also or mutual links, 2 links of the first section, 1 others |
| pairs of each grade | {pairs} |
| texts | {sources} |
| first | {first.steps:,} steps of {first.queries} queries and {first.texts} texts, with a node prior |
| second | {second.frozen_steps:,} of {second.queries} and {second.texts}, the decoder alone, without one |
| time | an hour for the first and 41 minutes for the second, on one thread (AVX2) |
| stored | {storage} |

Its encoder finds documents before any training: what it is worth, beside the one it was made from, is in
docs/backbone.md.

The texts themselves are not in this folder. Sources: wikispeedia (West and Leskovec, Human Wayfinding in
Information Networks, WWW 2012), whose texts are from Wikipedia (GFDL, since then CC BY-SA 3.0); MDN Web Docs
by Mozilla contributors (CC BY-SA 2.5). `recipes/mini.py` makes it again.

Loss, each row the mean of the logged steps since the row before; the first training, beside the prior:

| step | total | MGCC | MLE queries | MLE documents |
|---:|---:|---:|---:|---:|
{curves[0]}

The second, without it:

| step | total | MGCC | MLE queries | MLE documents |
|---:|---:|---:|---:|---:|
{curves[1]}
"""


def joined(collections: Sequence[Collection]) -> Collection:
    """One collection of several; the names of all keys get their collection's before them."""
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


def drawn_back(network: Network, start: str, share: float) -> None:
    """Leave only a share of what the encoder's weights have moved from the start."""
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
    reader, drawn, writer = (options.out / name for name in names)
    how: dict[str, Any] = {"words": WORDS, "resume": True, "progress": True}
    if not reader.exists():
        docnos = sorted(document.docno for document in collection.documents)
        lead = DenseConfig.leading(LEAD)
        vectors = document_vectors(collection, docnos, options.start, options.out, lead, progress=True)
        pretrain(collection, options.start, reader, ENCODER, vectors=vectors, **how)
    made = GR2.from_pretrained(model_of(reader))
    drawn_back(made.network, options.start, SHARE)
    if not drawn.exists():
        export(made.network, options.start, drawn, {"share": SHARE})
    if not writer.exists():
        pretrain(collection, str(drawn), writer, DECODER, **how)
    model = GR2.from_pretrained(model_of(writer))
    plans = {"first": made.provenance["plan"], "second": model.provenance["plan"]}
    read = {name: model.provenance[name] for name in ("collection", "fingerprint")}
    about = {"made from": {"backbone": Path(options.start).name, "share": SHARE, **plans, **read}}
    stored: dict[str, Storage] = {"gr2-mini": "int8", "gr2-mini-32": "fp32"}
    for name, storage in stored.items():
        text = card(collection, [tally for _, tally in found], (reader, writer), storage)
        export(model.network, str(drawn), options.out / name, about, storage=storage, card=text)
        size = sum(path.stat().st_size for path in (options.out / name).rglob("*") if path.is_file())
        print(f"{options.out / name}: {size / 1e6:.1f} MB")


def model_of(backbone: Path) -> Path:
    """Where the model is that a backbone was taken from."""
    return backbone.with_name(backbone.name + ".model")


def curve(backbone: Path) -> str:
    """The rows of a training's loss."""
    curves = loss_curves(backbone.with_name(backbone.name + ".model.training"), points=10)
    parts = [curves[name] for name in ("total", "mgcc", "mle_q", "mle_d")]
    rows = [
        [f"{step:,.0f}", *(f"{part[place][1]:.3f}" for part in parts)]
        for place, (step, _) in enumerate(parts[0])
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def card(collection: Collection, tallies: Sequence[Tally], stages: Sequence[Path], storage: str) -> str:
    """What the folder says of itself."""
    named = list(zip(collection.name.split("+"), tallies, strict=True))
    return CARD.format(
        layers=FreshDecoder().layers,
        share=SHARE,
        headline=headline(collection),
        pairs="; ".join(f"{n} " + ", ".join(f"{g}: {t.pairs[g]:,}" for g in (4, 3, 2, 1)) for n, t in named),
        sources="; ".join(f"{name} {tally.documents:,} documents" for name, tally in named),
        first=ENCODER,
        second=DECODER,
        storage={"int8": "8 bits and a scale for each row", "fp32": "32 bits"}[storage],
        curves=[curve(stage) for stage in stages],
    )


def share(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Dense retrieval by leading tokens, with so much of the encoder's movement kept; returns the means."""
    collection = open_collection(path)
    queries = {qid: collection.queries[qid] for qid in collection.split(options.split)}
    lead = DenseConfig.leading(LEAD)
    rows: list[tuple[str, int, Run]] = []
    for kept in SHARES:
        model = GR2.from_pretrained(model_of(options.out / "encoder"))
        drawn_back(model.network, options.start, kept)
        encoder = Encoder(f"{kept:.0%}", model.network.encoder, tokenizer_of(options.start))
        rows += [(encoder.name, 0, Dense.index(collection.documents, encoder, lead).search(queries, 100))]
    return shown(options, collection, rows)


def check(options: argparse.Namespace, path: str) -> dict[str, Any]:
    """Dense retrieval by the encoders, before and after; returns the means."""
    collection = open_collection(path)
    queries = {qid: collection.queries[qid] for qid in collection.split(options.split)}
    source = Path(path) / "source_docs.tsv"
    rows: list[tuple[str, int, Run]] = [
        (f"BM25 k1={s.k1:g} b={s.b:g}", 0, BM25.index(collection.documents, s).search(queries, 100))
        for s in SETTINGS
    ]
    made, full = options.out / "gr2-mini", options.out / "gr2-mini-32"
    places: dict[str, str | Path] = {"start": options.start, "gr2-mini": made if made.exists() else made.name}
    if full.exists():
        places["gr2-mini, 32 bits"] = full
    if options.rounded:
        places["start, 8 bits"] = rounded(options.start, options.out)
    how: dict[str, Any] = {"split": options.split, "lead": options.lead}
    rows += [(n, 0, dense(collection, place, options.out, **how)) for n, place in places.items()]
    return shown(options, collection, rows, source if source.is_file() else None)


def rounded(start: str, out: Path) -> Path:
    """The start as a checkpoint whose weights went through 8 bits."""
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
    """Make, choose the share, or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("make", "share", "check"))
    parser.add_argument("folders", nargs="+", help="linked folders (make); collections, or pydocs")
    parser.add_argument("--start", required=True, help="MiniLM, by folder or hub name")
    parser.add_argument("--out", type=Path, required=True, help="where everything is kept")
    parser.add_argument(
        "--lead", type=int, default=0, help="check by so many leading tokens; 0: all, in pieces (0)"
    )
    parser.add_argument("--rounded", action="store_true", help="check the start in 8 bits too")
    parser.add_argument("--split", default="test", help="of queries to check with (test)")
    parser.add_argument("--json", type=Path, help="save the figures")
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
