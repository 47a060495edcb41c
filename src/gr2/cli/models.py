"""`gr2 train`, `gr2 pretrain`, `gr2 search`: from a collection to a model, from a query to documents."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from gr2.cli.app import BACKBONE, Folder, Name, app, first, open_named, progress, write_run

Recipe = Literal["gr2", "-RF", "-lambda", "-Max", "MLE", "CE", "LR"]
Query = Annotated[Positional[str], arg(metavar="QUERY")]


@app.command
def train(
    name: Name,
    /,
    *,
    docids: Path,
    out: Path,
    backbone: str = BACKBONE,
    recipe: Recipe = "gr2",
    steps: int = 200,
    frozen_steps: int = 0,
    self_negative_steps: int = 0,
    learning_rate: float = 1e-4,
    pretrained_rate: float = 1.0,
    normaliser: Literal["vocabulary", "trie"] = "trie",
    prior: float = 1.0,
    queries: int = 16,
    texts: int = 4,
    per_grade: int = 2,
    accumulate: int = 1,
    average: float = 0.3,
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
        backbone: gr2-mini, or folder or hub name of a T5, BART or encoder checkpoint.
        out: The folder to write; the run's checkpoints and metrics.jsonl are beside it, in OUT.training.
        recipe: The paper's variant: full (GR²P from a backbone that `gr2 pretrain` made, as gr2-mini; else
            GR²S), on plain pseudo-query docids, without λ, without the constraint, MLE alone, CE or
            LambdaRank.
        steps: Optimiser steps with all weights moving.
        frozen_steps: Steps before them with the encoder frozen and its states cached: many times faster.
        self_negative_steps: Steps after them in which docids the model wrote wrongly are extra negatives.
        learning_rate: Of fresh parameters; without a node prior a fresh decoder wants 1e-3.
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
        recipe="gr2" if recipe == "-RF" else recipe,
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
def pretrain(
    name: Name,
    /,
    *,
    out: Path,
    backbone: str = BACKBONE,
    recipe: Literal["gr2", "-lambda", "-Max", "MLE", "CE", "LR"] = "gr2",
    steps: int = 2000,
    frozen_steps: int = 0,
    learning_rate: float = 1e-3,
    pretrained_rate: float = 0.05,
    prior: float = 0.0,
    queries: int = 16,
    texts: int = 16,
    per_grade: int = 2,
    words: int = 12,
    storage: Literal["fp32", "fp16", "int8"] = "fp32",
    seed: int = 0,
    resume: bool = False,
) -> None:
    """Pre-train a backbone on a graded collection, with titles as docids (GR²P), for `gr2 train`.

    Args:
        name: The collection, with a split `train` of several grades: links of Wikipedia, for instance.
        backbone: gr2-mini, or folder or hub name of a T5, BART or encoder checkpoint.
        out: The folder to write, a backbone. The trained model with its docids stays in OUT.model, its
            checkpoints in OUT.model.training.
        recipe: The paper's variant.
        steps: Optimiser steps with all weights moving but the rows of docid tokens.
        frozen_steps: Steps before them with the encoder frozen and its states cached.
        learning_rate: Of fresh parameters.
        pretrained_rate: What it is multiplied by for pretrained ones.
        prior: Vectors of a node prior for each document, 1 if the decoder shall learn what a prior does not
            know; it is left out of the backbone. 0: none, as in the paper.
        queries: Queries of a batch.
        texts: Document texts of a batch.
        per_grade: Docids of each grade that a query brings at a time.
        words: Words at which a title is cut.
        storage: Bits of a stored weight.
        seed: The same seed gives the same weights.
        resume: Go on after an interruption.
    """
    from gr2.learn import Plan
    from gr2.pretrain import pretrain as make

    plan = Plan(
        recipe=recipe,
        steps=steps,
        frozen_steps=frozen_steps,
        learning_rate=learning_rate,
        pretrained_rate=pretrained_rate,
        prior=prior,
        queries=queries,
        texts=texts,
        per_grade=per_grade,
        seed=seed,
    )
    data = open_named(name, show=first())
    if "train" not in data.qrels:
        raise ValueError(f"{data.name} has no split `train` to pre-train on")
    make(data, backbone, out, plan, words=words, storage=storage, resume=resume, progress=progress())
    if first():
        total = steps + frozen_steps
        print(f"{recipe}: a backbone after {total:,} steps, written to {out}")


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


@app.command
def index(
    name: Name,
    /,
    *,
    out: Path,
    backbone: str = BACKBONE,
    budget: str = "30m",
    seed: int = 0,
    resume: bool = False,
) -> None:
    """Make a searchable model of a collection in one go: docids, training, measures and a report.

    Args:
        name: The collection: a folder, `pydocs`, `ir:ID`.
        out: The model's folder to write, with report.html; what an interruption must not lose is beside it.
        backbone: gr2-mini, or folder or hub name of a T5, BART or encoder checkpoint.
        budget: How long it may take, such as 90s, 30m or 1h30m; the steps are planned to it.
        seed: The same seed, steps and vectors give the same weights.
        resume: Go on after an interruption, with the steps planned then.
    """
    from gr2.index import Indexing, seconds
    from gr2.index import index as make

    data = open_named(name, show=True)
    job = Indexing(
        collection=data,
        out=out,
        backbone=backbone,
        seconds=seconds(budget),
        seed=seed,
        resume=resume,
        progress=progress(),
    )
    for line in make(job):
        print(line, flush=True)
    print(f"try it: gr2 search {out} 'a query'; gr2 serve {out}")
