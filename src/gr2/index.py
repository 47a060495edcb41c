"""A collection → a searchable model within a given time, for whoever does not want to know the stages.

Docids, document vectors, training, measuring and a report, each with the settings that did best on the
collections of docs/results.md. How many steps fit is measured on this machine, told, and kept: an interrupted
run goes on with the same plan. Seed, steps and what vectors are made from decide the weights.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import torch

from gr2.augment import AugmentConfig
from gr2.backbone import makes_vectors
from gr2.baselines.dense import Dense, DenseConfig, document_vectors, keep_vectors, vectors_path
from gr2.batches import Batches
from gr2.data import Collection
from gr2.docids import Docids
from gr2.docids.schemes import Making, build
from gr2.embed import Encoder, Vectors
from gr2.learn import Plan, Ready, learn, prepare, sizes, stages
from gr2.objective import recipe as recipe_of
from gr2.report import OURS, rivals, write_report
from gr2.report.evidence import DEPTH
from gr2.runs import Run
from gr2.store import check_replaceable, write_json
from gr2.tables import comparison_table
from gr2.train import TrainConfig, encoded

GOOD = Plan(augment=AugmentConfig(paragraphs=0, sentences=0, entities=0))
"""As in recipes/graded.py; the steps depend on the time and on how much there is to learn."""
EPOCHS = 10
"""Of the training queries at most: more steps would only repeat them."""
LEAST, MOST = 5, 2000
"""Steps, whatever the time."""
JOB, PLAN, DETAIL = "job.json", "plan.json", "vectors.json"
"""What was begun, the steps it has, and how documents are encoded."""
WORDS = 6
"""Of a docid."""
CHECKPOINTS = 5
"""In the whole time at least, so that little is lost."""
MEASURING = 0.25
"""Share of the time that is left for measuring and the report."""
ENCODING = 0.4
"""Share of the time that the documents' vectors may take."""
DETAILS = (DenseConfig(), *(DenseConfig(pieces=0, longest=longest) for longest in (48, 32, 16)))
"""How documents are encoded, best first: in pieces, or by their leading tokens alone."""
TITLED = 0.9
"""Share of documents that must have a title for titles to be their docids."""
_TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


@dataclass(frozen=True, kw_only=True)
class Indexing:
    """What to do and how long it may take."""

    collection: Collection
    out: Path
    backbone: str
    seconds: float
    beside: tuple[str, ...] = ()
    """Other recipes that are trained with the same plan and measured beside it; their models are not kept."""
    plan: Plan = GOOD
    """All but steps and seed."""
    seed: int = 0
    resume: bool = False
    progress: bool = False

    @property
    def folder(self) -> Path:
        """Where whatever an interruption must not lose is kept."""
        return self.out.with_name(self.out.name + ".training")


def seconds(text: str) -> float:
    """A time such as 90s, 30m or 1h30m.

    >>> seconds("1h30m")
    5400.0
    """
    found = _TIME.fullmatch(text.strip())
    if not text.strip() or found is None:
        raise ValueError(f"expected a time such as 90s, 30m or 1h30m, found {text!r}")
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    if not (total := 3600 * hours + 60 * minutes + rest):
        raise ValueError(f"expected a time of at least a second, found {text!r}")
    return float(total)


def scheme_for(collection: Collection) -> str:
    """Titles where nearly all documents have one, else the sentence that says most."""
    titled = count = 0
    for document in collection.documents:
        count, titled = count + 1, titled + bool(document.title.strip())
    return "title" if titled >= TITLED * count else "summary"


def index(job: Indexing) -> Iterator[str]:
    """Do it, and yield a line for each stage; the model is in `job.out` at the end."""
    check(job)
    begun, data = time.monotonic(), job.collection
    write_json(job.folder / JOB, facts(job))
    scheme = scheme_for(data)
    making = Making(collection=data, backbone=job.backbone, folder=job.folder, words=WORDS, seed=job.seed)
    docids = build(scheme, making)
    first = docids.clashes.get("rank 1", 0) / max(1, len(docids))
    yield f"docids: {len(docids):,} by {scheme}, {first:.0%} got their first proposal"
    if makes_vectors(job.backbone):
        yield "encoding: every document gets a vector, so that the decoder need not start from chance"
    vectors, runs = untrained(job, docids)
    if vectors is not None:
        yield f"vectors: from {what_was_read(job)} of each document; they join what the decoder says"
    plan, note, ready = planned(job, docids, vectors, begun)
    yield f"plan: {plan.steps:,} steps of {plan.queries} queries{note}; learns which docids answer them"
    often = min(TrainConfig.checkpoint_minutes, job.seconds / 60 / CHECKPOINTS)
    how: dict[str, Any] = {"vectors": vectors, "resume": job.resume, "progress": job.progress}
    how["checkpoint_minutes"] = often
    learn(data, docids, job.backbone, job.out, plan, ready=ready, **how)
    yield f"model: written to {job.out}"
    for recipe in job.beside:
        runs.append(beside(job, docids, replace(plan, recipe=recipe), how))
        yield f"{recipe}: trained with the same steps, to compare with"
    yield from report_on(job, runs)
    yield f"report: {job.out / 'report.html'} ({(time.monotonic() - begun) / 60:.1f} minutes in all)"


def check(job: Indexing) -> None:
    """Refuse before any work what would fail after it."""
    check_replaceable(job.out)
    for name in job.beside:
        recipe_of(name)
    path = job.folder / JOB
    if not path.exists():
        return
    if not job.resume:
        raise ValueError(f"{job.folder}: was begun before; add --resume to go on, or choose another folder")
    before, now = json.loads(path.read_text(encoding="utf-8")), facts(job)
    if other := [name for name in now if before.get(name) != now[name]]:
        raise ValueError(
            f"{job.folder}: was begun with another {', '.join(other)}; remove it to begin anew, or choose "
            "another folder"
        )


def facts(job: Indexing) -> dict[str, Any]:
    """What must be the same for a job to go on."""
    return {
        "collection": job.collection.fingerprint,
        "backbone": job.backbone,
        "comparison": list(job.beside),
        "seed": job.seed,
        "plan": job.plan.as_dict(),
    }


def untrained(job: Indexing, docids: Docids) -> tuple[Vectors | None, list[Run]]:
    """The documents' vectors, and what the encoder finds with them before any training; both are kept.

    A T5 or BART has neither: its prior is made from words.
    """
    if not makes_vectors(job.backbone):
        return None, []
    path, kept = vectors_path(job.collection, job.backbone, job.folder), job.folder / "dense.trec"
    if not (path.exists() and kept.exists()):
        encoder = Encoder.load(job.backbone)
        how = detail(job, encoder, len(docids))
        dense = Dense.index(job.collection.documents, encoder, how, progress=job.progress)
        dense.search(asked(job), DEPTH).write(kept)
        keep_vectors(dense, docids.docnos, path)
    run = Run(Run.read(kept).rankings, "dense, untrained")
    return document_vectors(job.collection, docids.docnos, job.backbone, job.folder), [run]


def detail(job: Indexing, encoder: Encoder, count: int, sample: int = 128) -> DenseConfig:
    """The first of `DETAILS` that there is time for, as some documents say, else the last; kept."""
    path = job.folder / DETAIL
    if not path.exists():
        worded = (document for document in job.collection.documents if document.contents.split())
        some = list(islice(worded, 0, None, max(1, count // sample)))
        chosen = DETAILS[-1]
        Dense.index(some, encoder, chosen)  # the first call warms up
        for each in reversed(DETAILS[:-1]):
            started = time.monotonic()
            Dense.index(some, encoder, each)
            if (time.monotonic() - started) / len(some) * count > ENCODING * job.seconds:
                break
            chosen = each
        write_json(path, asdict(chosen))
    return DenseConfig(**json.loads(path.read_text(encoding="utf-8")))


def what_was_read(job: Indexing) -> str:
    """What of a document its vector was made from."""
    chosen = DenseConfig(**json.loads((job.folder / DETAIL).read_text(encoding="utf-8")))
    return f"up to {chosen.pieces} pieces" if chosen.pieces else f"the first {chosen.longest} tokens"


def asked(job: Indexing) -> dict[str, str]:
    """The queries that are measured on."""
    return {qid: job.collection.queries[qid] for qid in job.collection.qrels.get(measured(job), {})}


def beside(job: Indexing, docids: Docids, plan: Plan, how: dict[str, Any]) -> Run:
    """The run of another recipe; an interruption loses neither its checkpoints nor, later, the run."""
    kept, folder = job.folder / f"{plan.recipe}.trec", job.folder / f"{plan.recipe}.model"
    if not kept.exists():
        model = learn(job.collection, docids, job.backbone, folder, plan, **how)
        model.search(asked(job), DEPTH).write(kept)
    for used in (folder, folder.with_name(folder.name + ".training")):
        if used.exists():
            shutil.rmtree(used)
    return Run(Run.read(kept).rankings, plan.recipe)


def measured(job: Indexing) -> str:
    """The split that is measured on: `test`, else `dev`; empty where neither is judged."""
    return next((name for name in ("test", "dev") if job.collection.qrels.get(name)), "")


def report_on(job: Indexing, runs: Sequence[Run]) -> Iterator[str]:
    """Measure the model beside these runs, and write its report."""
    split = measured(job)
    others = [*rivals(job.collection, split), *runs] if split else []
    comparison = write_report(job.out, job.collection, others, split=split or "test")
    if comparison is None:
        yield "measures: none, for the collection has no judged queries in a split `test` or `dev`"
        return
    count = len(job.collection.split(split))
    yield f"measures: {count:,} queries of {split}; letters: significantly better than that system"
    yield comparison_table(comparison)
    means = {e.name: e.means["nDCG@20"] for e in comparison.evaluations}
    ahead = [name for name, value in means.items() if value > means[OURS]]
    if ahead:
        yield f"in nDCG@20 these are still ahead of {OURS}: {', '.join(ahead)}"


def planned(
    job: Indexing, docids: Docids, vectors: Vectors | None, begun: float
) -> tuple[Plan, str, Ready | None]:
    """As many steps as fit, what to say of them, and what was prepared to find out.

    The plan of an interrupted run is kept, and nothing is prepared for it.
    """
    path, plan = job.folder / PLAN, replace(job.plan, seed=job.seed)
    if job.resume and path.is_file():
        steps = int(json.loads(path.read_text(encoding="utf-8"))["steps"])
        return replace(plan, steps=steps), ", as planned before", None
    started = time.monotonic()
    ready = prepare(job.collection, docids, job.backbone, plan, vectors=vectors)
    again = (time.monotonic() - started) * len(job.beside)  # each of them prepares anew
    left = job.seconds * (1 - MEASURING) - (time.monotonic() - begun) - again
    pace = seconds_of_a_step(ready, plan) * (1 + len(job.beside)) if left > 0 else inf
    queries = len(job.collection.split("train")) if "train" in job.collection.qrels else 0
    useful = min(MOST, EPOCHS * -(-queries // plan.queries)) if queries else MOST
    steps = max(LEAST, min(useful, int(left / pace)))
    write_json(path, {"steps": steps, "seconds": job.seconds})
    note = f", {pace * steps:.0f} s" if steps * pace <= left else ", the least there are: time is short"
    return replace(plan, steps=steps), note, ready


def seconds_of_a_step(
    ready: Ready, plan: Plan, steps: int = 4, clock: Callable[[], float] = time.monotonic
) -> float:
    """The mean time of a few steps at rate 0, which moves nothing; the first, to warm up, does not count."""
    network, batches = ready.model.network, Batches(ready.examples, sizes(plan), seed=plan.seed)
    settings = stages(plan)[0].settings
    network.hold(encoder=False)
    moving = [weight for weight in network.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW(moving, lr=0.0, weight_decay=0.0, fused=True)
    for step in range(steps + 1):
        if step == 1:
            begun = clock()
        batch = batches[step]
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.bf16):
            parts = ready.objective(network, batch, *encoded(network, batch))
        parts["total"].backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(moving, settings.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return (clock() - begun) / steps
