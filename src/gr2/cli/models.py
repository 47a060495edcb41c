"""`gr2 docids ...`, `gr2 train`, `gr2 search`: from a collection to a model, from a query to documents."""

import json
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

from gr2.cli.app import Folder, Name, app, first, open_named, progress, write_run

Recipe = Literal["gr2-s", "-RF", "-lambda", "-Max", "MLE", "CE", "LR"]
Scheme = Literal["title", "url", "summary", "terms", "number", "kmeans", "pq", "rq", "query", "fusion"]
Query = Annotated[Positional[str], arg(metavar="QUERY")]
Docno = Annotated[Positional[str], arg(metavar="DOCNO")]

docids = SubcommandApp()
app.command(docids, name="docids", help="Build the identifiers of documents, or look at them.")


@docids.command
def build(
    name: Name,
    /,
    *,
    backbone: str,
    out: Path,
    scheme: Scheme = "title",
    words: int = 12,
    branches: int = 10,
    leaf: int = 100,
    places: int = 0,
    codes: int = 256,
    generator: str = "",
    generator_steps: int = 1000,
    radius: float = 2.0,
    seed: int = 0,
    resume: bool = False,
) -> None:
    """Give every document its docid.

    Args:
        name: The collection: a folder, `pydocs`, `ir:ID`.
        backbone: Folder or hub name of a checkpoint: its tokenizer reads text docids (train with the same
            one), its encoder makes the vectors that kmeans, pq and rq cluster.
        out: The folder to write; what is kept between interruptions is beside it, in OUT.making.
        scheme: Read off the document: title (else the leading words), url, summary, terms;
            number: an arbitrary one; from its vector: kmeans (a path), pq and rq (codes); written by a model
            that learns it here: query (a plain pseudo-query) and fusion (the paper's).
        words: Words at which a docid is cut that is read off the document.
        branches: Clusters of a level of kmeans (DSI: 10, NCI: 30).
        leaf: Documents of a cluster that kmeans does not split again (DSI: 100, NCI: 30).
        places: Codes of a docid of pq or rq; 0 is the scheme's own: 24 and 32.
        codes: Codes to choose from at each of these places, a power of 2.
        generator: Folder or hub name of the checkpoint that learns to write docids; empty: the backbone.
        generator_steps: Optimiser steps in which it learns.
        radius: |r|, how far from its document fusion samples; `gr2 docids radius` compares some.
        seed: The same seed gives the same docids.
        resume: Go on after an interruption.
    """
    from gr2.docids.schemes import Making
    from gr2.docids.schemes import build as make
    from gr2.docids.writing import WritingConfig

    making = Making(
        collection=open_named(name, show=True),
        backbone=backbone,
        folder=out.with_name(out.name + ".making"),
        words=words,
        branches=branches,
        leaf=leaf,
        places=places,
        codes=codes,
        generator=generator,
        writing=WritingConfig(steps=generator_steps, radius=radius),
        seed=seed,
        resume=resume,
        progress=progress(),
    )
    made = make(scheme, making)
    made.save(out)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in made.clashes.items())
    print(f"{scheme}: {len(made):,} docids ({counts}), written to {out}")


@docids.command
def report(
    folder: Folder,
    name: Name,
    /,
    *,
    json: Path | None = None,
    plot: Path | None = None,
    sample: int | None = None,
) -> None:
    """Tell how healthy docids are: clashes, lengths, shared prefixes, balance, self-retrieval.

    Args:
        folder: What `gr2 docids build` wrote.
        name: The collection they were made for: a folder, `pydocs`, `ir:ID`.
        json: A file to write the figures to, as JSON.
        plot: A .png or .svg file to draw them in; needs the extra `plots`.
        sample: How many documents BM25 searches for, at most; without it all.
    """
    from gr2.docids import Docids
    from gr2.docids import report as reports
    from gr2.store import write_json

    known, data = Docids.load(folder), open_named(name, show=True)
    made_for = str(known.about.get("fingerprint"))
    if made_for != data.fingerprint:
        raise ValueError(
            f"{folder} was made for a collection with the fingerprint {made_for[:12]}, "
            f"but {name} has {data.fingerprint[:12]}"
        )
    found = reports.health(known, data, sample=sample, progress=progress())
    print(found.as_text())
    if json:
        write_json(json, found.as_dict())
        print(f"\nfigures written to {json}")
    if plot:
        reports.plot({found.scheme: found}, plot)
        print(f"\ndrawn in {plot}")


@docids.command
def show(folder: Folder, docno: Docno, /) -> None:
    """Print a document's docid and its tokens.

    Args:
        folder: What `gr2 docids build` wrote.
        docno: The document.
    """
    from gr2.docids import Docids

    known = Docids.load(folder)
    if docno not in known.index:
        raise ValueError(f"{folder} has no docid for {docno!r}")
    at = known.index[docno]
    print(
        json.dumps({"docno": docno, "docid": known.texts[at], "tokens": known.tokens[at]}, ensure_ascii=False)
    )


@app.command
def train(
    name: Name,
    /,
    *,
    docids: Path,
    backbone: str,
    out: Path,
    recipe: Recipe = "gr2-s",
    steps: int = 1000,
    frozen_steps: int = 0,
    self_negative_steps: int = 0,
    learning_rate: float = 1e-3,
    pretrained_rate: float = 0.05,
    normaliser: Literal["vocabulary", "trie"] = "trie",
    prior: float = 1.0,
    queries: int = 16,
    texts: int = 16,
    per_grade: int = 2,
    accumulate: int = 1,
    average: float = 0.0,
    pseudo_queries: Path | None = None,
    dev: str = "",
    patience: int = 0,
    seed: int = 0,
    resume: bool = False,
) -> None:
    """Train a model on a collection and write it as a folder that `gr2 search` reads.

    With several processes: `torchrun --nproc_per_node N -m gr2 train ...`; a step then reads N batches.

    Args:
        name: The collection: a folder, `pydocs`, `ir:ID`. Its split `train` is learned from.
        docids: What `gr2 docids build` wrote for this collection.
        backbone: Folder or hub name of a T5, BART or encoder checkpoint.
        out: The folder to write; the run's checkpoints and metrics.jsonl are beside it, in OUT.training.
        recipe: The paper's variant: full, on plain pseudo-query docids, without λ, without the constraint,
            MLE alone, CE or LambdaRank.
        steps: Optimiser steps with all weights moving.
        frozen_steps: Steps before them with the encoder frozen and its states cached: many times faster.
        self_negative_steps: Steps after them in which docids the model wrote wrongly are extra negatives.
        learning_rate: Of fresh parameters.
        pretrained_rate: What it is multiplied by for pretrained ones.
        normaliser: Probabilities over a node's children (trie) or over all docid tokens (the paper's).
        prior: Vectors of the node prior for each document; 0: none, as in the paper (trie normaliser only).
        queries: Queries of a batch.
        texts: Document texts of a batch.
        per_grade: Docids of each grade that a query brings at a time.
        accumulate: Batches of a step.
        average: Share of the steps, at the end, whose weights are averaged.
        pseudo_queries: A TSV file of `docno query` lines: queries that a model made for documents.
        dev: Split by whose nDCG@20 the best weights are chosen, every 100 steps; empty: the last ones.
        patience: Judgements on dev without a gain after which training stops; 0: never.
        seed: The same seed gives the same weights.
        resume: Go on after an interruption.
    """
    from gr2.docids import Docids
    from gr2.formats.tables import read_grouped
    from gr2.learn import Plan, learn

    data, known = open_named(name, show=first()), Docids.load(docids)
    if recipe == "-RF" and known.about.get("scheme") != "query":
        raise ValueError(
            f"-RF is GR² on pseudo-query docids, but {docids} has the scheme {known.about.get('scheme')}"
        )
    plan = Plan(
        recipe="gr2" if recipe in ("gr2-s", "-RF") else recipe,
        steps=steps,
        frozen_steps=frozen_steps,
        self_negative_steps=self_negative_steps,
        learning_rate=learning_rate,
        pretrained_rate=pretrained_rate,
        normaliser=normaliser,
        prior=prior if normaliser == "trie" else 0.0,
        queries=queries,
        texts=texts,
        per_grade=per_grade,
        accumulate=accumulate,
        average=average,
        dev=dev,
        patience=patience,
        seed=seed,
    )
    if first() and "train" not in data.qrels:
        print(f"{data.name} has no split `train`: it is learned from its documents alone")
    made = read_grouped(pseudo_queries) if pseudo_queries else None
    model = learn(data, known, backbone, out, plan, pseudo_queries=made, resume=resume, progress=progress())
    if first():
        total = steps + frozen_steps + self_negative_steps
        print(f"{recipe}: {len(model.docids):,} docids learned in {total:,} steps, written to {out}")
        if model.network.prior is not None:
            print(f"its node prior takes {model.network.prior.nbytes / 1e6:.1f} MB")


@app.command
def search(
    folder: Folder,
    query: Query = "",
    /,
    *,
    topics: Path | None = None,
    output: Path | None = None,
    k: int = 10,
    beams: int = 20,
    mode: Literal["beam", "exact"] = "beam",
    weight: float = 0.0,
) -> None:
    """Search with a trained model: one query, or a file of them.

    Args:
        folder: What `gr2 train` wrote.
        query: A query; its results are printed.
        topics: A file of queries (TREC topics, JSONL or TSV); needs `--output`.
        output: The run file to write.
        k: How many documents to return for each query.
        beams: Prefixes that go on at each step.
        mode: beam, or exact: best-first search that proves its result where it can.
        weight: Of the similarity sim(f_q, f_id) beside log P; 0 ranks by log P alone.
    """
    from gr2.formats.folder import read_query_file
    from gr2.model import GR2

    if bool(query) == bool(topics) or bool(topics) != bool(output):
        raise ValueError("give either a query, or --topics FILE with --output RUN")
    model, options = GR2.from_pretrained(folder), {"beams": beams, "mode": mode, "weight": weight}
    if topics and output:
        run = model.search(read_query_file(topics), k, **options, name=folder.name)
        write_run(run, output, str(folder))
        return
    for rank, result in enumerate(model.search(query, k, **options), start=1):
        print(f"{rank:2}  {result.score:8.3f}  {result.docno}  ({result.docid})")
