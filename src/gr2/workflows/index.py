"""A collection → a searchable model with a report, in one call: docids, training, evaluation.

Without a time budget the result is bit for bit that of `gr2 docids build` and `gr2 train` with the same
configuration. With a budget, the number of steps and how much of each document is encoded are planned from a
short timing on this machine; the plan is printed and saved, and an interrupted run continues with it.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from math import inf
from pathlib import Path

from gr2.data.collection import Collection
from gr2.data.runs import Run
from gr2.docids.docids import Docids
from gr2.evaluate.tables import comparison_table
from gr2.experiments.plans import EPOCHS
from gr2.model.backbone import makes_vectors
from gr2.model.config import VectorConfig
from gr2.model.device import device_of
from gr2.model.document_vectors import document_vectors, encode_documents, keep_vectors, vectors_path
from gr2.model.encoder import Vectors
from gr2.model.gr2 import GR2
from gr2.model.text_encoder import load_encoder
from gr2.report import label_of, write_report
from gr2.report.evidence import DEPTH
from gr2.schemes.registry import scheme_of
from gr2.store import Workspace, check_replaceable, write_json
from gr2.systems.baselines import DENSE, baseline_runs
from gr2.systems.config import GenerativeConfig
from gr2.systems.dense import Dense
from gr2.systems.generative import make_docids
from gr2.training.checks import check, check_training
from gr2.training.config import TrainingConfig, as_json, with_settings
from gr2.training.estimate import Gain
from gr2.training.fit import (
    Prepared,
    fit,
    plain_views,
    prepare,
    resumable,
    wants_vectors,
)
from gr2.workflows.budget import step_seconds
from gr2.workflows.learning_curve import Curve, learning_curve

HYBRID = "hybrid, nothing learned"
"""Name of look-ahead without what it learned in tables."""
MIN_STEPS, MAX_STEPS = 5, 2000
JOB, PLAN, DETAIL = "job.json", "plan.json", "vectors.json"
"""Files with the settings of the job, the planned steps, and how documents are encoded."""
CHECKPOINTS = 5
"""Minimum number of checkpoints within a budget."""
MEASURING = 0.25
"""Share of a budget reserved for evaluation and the report."""
ENCODING = 0.4
"""Maximum share of a budget for encoding documents."""
DETAILS = (VectorConfig(), *(VectorConfig(pieces=0, max_tokens=tokens) for tokens in (48, 32, 16)))
"""Ways to encode documents within a budget, best first: in pieces, or only their leading tokens."""
Say = Callable[[str], None]
"""Called with a line of progress for the user."""


@dataclass(frozen=True, kw_only=True)
class IndexJob:
    """What to index and how."""

    collection: Collection
    out: Path
    config: GenerativeConfig = GenerativeConfig()
    seconds: float | None = None
    """Time budget in seconds; None runs the configuration unchanged."""
    curve: tuple[int, ...] = ()
    """Numbers of judged queries for a learning curve in the report; empty leaves it out."""
    compare_with: tuple[str, ...] = ()
    """Other variants to train with the same settings and evaluate; their models are not kept."""
    resume: bool = False
    progress: bool = False

    @property
    def folder(self) -> Path:
        """The folder of unfinished work, from which an interrupted job is resumed."""
        return Workspace(self.out).training

    @property
    def training(self) -> TrainingConfig:
        """The training configuration."""
        return self.config.training

    def with_training(self, path: str, value: object) -> "IndexJob":
        """The job with one training setting changed, named by its path, such as `schedule.steps`."""
        changed = with_settings(self.training, {path: value})
        return replace(self, config=replace(self.config, training=changed))


def index(job: IndexJob, say: Say = lambda line: None) -> GR2:
    """Index the collection; the model and its report are written to `job.out`."""
    _check(job)
    begun, data = time.monotonic(), job.collection
    write_json(job.folder / JOB, _facts(job))
    docids = make_docids(data, job.config, job.folder, resume=job.resume, progress=job.progress)
    check(data, docids, job.training)
    first = docids.clashes.get("rank 1", 0) / max(1, len(docids))
    say(f"docids: {len(docids):,} by {docids.about['scheme']}, {first:.0%} got their first proposal")
    vectors, runs = None, list[Run]()
    if job.training.look_ahead.enabled:
        model, runs, curve = _look_ahead(job, docids, say)
        return _finished(job, docids, None, model, runs, begun, say, curve)
    if wants_vectors(job.training, job.config.backbone):
        say("encoding: every document gets a vector, from which training starts")
        how = job.training.prior.documents if job.seconds is None else _detail(job, len(docids))
        job = job.with_training("prior.documents", how)
        vectors, run = _untrained(job, docids, how, job.config.backbone)
        runs.append(run)
        read = f"up to {how.pieces} pieces" if how.pieces else f"the first {how.max_tokens} tokens"
        say(f"vectors: from {read} of each document; they are added to the decoder's logits")
    prepared, note = None, ""
    if job.seconds is not None:
        job, note, prepared = _planned(job, docids, vectors, begun)
    schedule = job.training.schedule
    steps = schedule.frozen_steps + schedule.steps + schedule.self_negative_steps
    say(f"training: {steps:,} steps of {job.training.batches.queries} queries{note}")
    model = _fit(job, docids, vectors, job.out, prepared)
    return _finished(job, docids, vectors, model, runs, begun, say)


def _finished(
    job: IndexJob,
    docids: Docids,
    vectors: Vectors | None,
    model: GR2,
    runs: list[Run],
    begun: float,
    say: Say,
    curve: Curve = (),
) -> GR2:
    """Compare with other variants, and write the report."""
    say(f"model: written to {job.out}")
    for variant in job.compare_with:
        runs.append(_compared(job, docids, vectors, variant))
        say(f"{variant}: trained with the same settings, for comparison")
    _report(job, model, runs, say, curve)
    say(f"report: {job.out / 'report.html'} ({(time.monotonic() - begun) / 60:.1f} minutes in all)")
    return model


def _look_ahead(job: IndexJob, docids: Docids, say: Say) -> tuple[GR2, list[Run], Curve]:
    """The model with look-ahead, the runs of what it was made from (dense, hybrid), and a learning curve."""
    how, runs = job.training.look_ahead.documents, list[Run]()
    encoder = job.training.look_ahead.encoder or job.config.backbone
    if makes_vectors(encoder):
        read = f"up to {how.pieces} pieces" if how.pieces else f"the first {how.max_tokens} tokens"
        say(f"encoding: {read} of each document")
        runs.append(_untrained(job, docids, how, encoder)[1])
    say("look-ahead: words and vectors score documents; cross-validation chooses what judgements add")
    started = time.process_time()
    model = _fit(job, docids, None, job.out)
    facts, queries, spent = model.provenance["look_ahead"], _queries(job), time.process_time() - started
    views, queries_of = plain_views(model, job.collection, job.config.backbone, job.folder, job.training)
    say(
        f"learned: {facts['chosen']}; weights: {facts.get('weights', views.usual)}; "
        f"{spent:.0f} CPU-seconds with the cross-validation"
    )
    if model.look_ahead is not None:
        say(model.look_ahead.sizes)
    hybrid = model.with_look_ahead(views.at(views.usual))
    runs.append(hybrid.search_many(queries, DEPTH, job.config.search, name=HYBRID))
    curve: Curve = ()
    if job.curve and _measured(job):
        split, seed = _measured(job), job.training.seed
        curve, line = learning_curve(job.collection, split, views, facts, queries_of, job.curve, seed=seed)
        say(line)
    return model, runs, curve


def _check(job: IndexJob) -> None:
    """Check the job before any work is done."""
    check_replaceable(job.out)
    if job.seconds is not None and job.training.look_ahead.enabled:
        raise ValueError(
            "a time budget plans the training of a whole decoder, not of look-ahead: leave it out, or add "
            "--preset decoder"
        )
    variants = (job.training.variant, *job.compare_with)
    if len(set(variants)) < len(variants):
        raise ValueError(f"a variant is named twice: {', '.join(variants)}")
    scheme = scheme_of(job.config.docids.scheme)
    for name in variants:
        check_training(replace(job.training, variant=name), job.collection, scheme=scheme)
    device_of(job.training.device)
    path = job.folder / JOB
    if not path.exists() or list(job.folder.iterdir()) == [path]:  # nothing was done yet
        return
    if not job.resume:
        raise ValueError(
            f"{job.folder}: was begun before; add --resume to continue, or choose another folder"
        )
    before, now = json.loads(path.read_text(encoding="utf-8")), _facts(job)
    if other := [name for name in now if before.get(name) != now[name]]:
        raise ValueError(
            f"{job.folder}: was begun with another {', '.join(other)}; remove it to start over, or choose "
            "another folder"
        )


def _facts(job: IndexJob) -> dict[str, object]:
    """The settings that must be equal for a job to be resumed."""
    config = as_json(job.config) | {"training": resumable(job.training)}
    config.pop("search")  # changes no weight
    return {
        "collection": job.collection.fingerprint,
        "comparison": list(job.compare_with),
        "configuration": config,
        "budget": job.seconds is not None,
    }


def _fit(
    job: IndexJob, docids: Docids, vectors: Vectors | None, out: Path, prepared: Prepared | None = None
) -> GR2:
    if job.seconds is not None:
        often = min(job.training.schedule.checkpoint_minutes, job.seconds / 60 / CHECKPOINTS)
        job = job.with_training("schedule.checkpoint_minutes", often)
    return fit(
        job.collection,
        docids,
        job.config.backbone,
        out,
        job.training,
        vectors=vectors,
        prepared=prepared,
        resume=job.resume,
        progress=job.progress,
    )


def _untrained(job: IndexJob, docids: Docids, how: VectorConfig, name: str) -> tuple[Vectors, Run]:
    """The documents' vectors, and the run of the untrained encoder with them; both are saved."""
    path = vectors_path(job.collection, name, job.folder, how)
    kept = path.with_suffix(".trec")
    if not (path.exists() and kept.exists()):
        encoder = load_encoder(name, device=job.training.device)
        dense = Dense.index(job.collection.documents, encoder, how, progress=job.progress)
        dense.search(_queries(job), DEPTH).write(kept)
        keep_vectors(dense.vectors, docids.docnos, path)
    vectors = document_vectors(job.collection, docids.docnos, name, job.folder, how)
    return vectors, Run(Run.read(kept).rankings, DENSE)


def _detail(job: IndexJob, count: int, sample: int = 128) -> VectorConfig:
    """The first of `DETAILS` that fits the budget, timed on a sample of documents, else the last; saved."""
    path = job.folder / DETAIL
    if not path.exists():
        encoder = load_encoder(job.config.backbone, device=job.training.device)
        worded = (document for document in job.collection.documents if document.contents.split())
        some = list(islice(worded, 0, None, max(1, count // sample)))
        chosen = DETAILS[-1]
        encode_documents(some, encoder, chosen)  # warm-up
        for each in reversed(DETAILS[:-1]):
            started = time.monotonic()
            encode_documents(some, encoder, each)
            if (time.monotonic() - started) / len(some) * count > ENCODING * (job.seconds or inf):
                break
            chosen = each
        write_json(path, asdict(chosen))
    return VectorConfig(**json.loads(path.read_text(encoding="utf-8")))


def _queries(job: IndexJob) -> dict[str, str]:
    """The queries to evaluate on."""
    return {qid: job.collection.queries[qid] for qid in job.collection.qrels.get(_measured(job), {})}


def _measured(job: IndexJob) -> str:
    """The split to evaluate on: `test`, else `dev`; empty if neither has judgements."""
    return next((name for name in ("test", "dev") if job.collection.qrels.get(name)), "")


def _compared(job: IndexJob, docids: Docids, vectors: Vectors | None, variant: str) -> Run:
    """The run of another variant; its checkpoints and then its run are saved, so that it can be resumed."""
    kept, folder = job.folder / f"{variant}.trec", job.folder / f"{variant}.model"
    if not kept.exists():
        model = _fit(job.with_training("variant", variant), docids, vectors, folder)
        model.search_many(_queries(job), DEPTH, job.config.search).write(kept)
    for used in (folder, Workspace(folder).training):
        if used.exists():
            shutil.rmtree(used)
    return Run(Run.read(kept).rankings, variant)


def _report(job: IndexJob, model: GR2, runs: Sequence[Run], say: Say, curve: Curve) -> None:
    """Evaluate the model with these runs and the baselines, and write its report."""
    split = _measured(job)
    others = [*baseline_runs(job.collection, split), *runs] if split else []
    how, device = job.config.search, job.training.device
    comparison = write_report(
        job.out, job.collection, others, split=split or "test", search=how, device=device, curve=curve
    )
    if comparison is None:
        say("measures: none, because the collection has no judged queries in a split `test` or `dev`")
        return
    count = len(job.collection.split(split))
    convention = comparison.evaluations[0].convention
    say(f"measures: {count:,} queries of {split}; {convention}")
    say("letters: significantly better than that system (paired t-test, Holm, p ≤ 0.05)")
    say(comparison_table(comparison))
    values = {e.name: e.values["nDCG@20"] for e in comparison.evaluations}
    if HYBRID in values and model.look_ahead is not None:
        found = Gain.of(list(values[HYBRID].values()), list(values[label_of(model)].values()))
        say(
            f"gain: over the hybrid {found.gain:+.4f} in nDCG@20 (95 % band {found.low:+.4f} to "
            f"{found.high:+.4f}, p {found.p:.4f})"
        )
    means = {e.name: e.means["nDCG@20"] for e in comparison.evaluations}
    ours = label_of(model)
    ahead = [name for name, value in means.items() if value > means[ours]]
    if ahead:
        say(f"in nDCG@20 these are still ahead of {ours}: {', '.join(ahead)}")


def _planned(
    job: IndexJob, docids: Docids, vectors: Vectors | None, begun: float
) -> tuple[IndexJob, str, Prepared | None]:
    """The job with as many steps as fit the budget, a note for the user, and the prepared training, if any.

    An interrupted run keeps its plan.
    """
    path, budget = job.folder / PLAN, job.seconds or inf
    if job.resume and path.is_file():
        steps = int(json.loads(path.read_text(encoding="utf-8"))["steps"])
        return job.with_training("schedule.steps", steps), ", as planned before", None
    started = time.monotonic()
    prepared = prepare(job.collection, docids, job.config.backbone, job.training, vectors=vectors)
    again = (time.monotonic() - started) * len(job.compare_with)  # each variant is prepared again
    left = budget * (1 - MEASURING) - (time.monotonic() - begun) - again
    pace = step_seconds(prepared, job.training) * (1 + len(job.compare_with)) if left > 0 else inf
    queries, batch = len(job.collection.qrels.get("train", ())), job.training.batches.queries
    useful = min(MAX_STEPS, EPOCHS * -(-queries // batch)) if queries else MAX_STEPS
    steps = max(MIN_STEPS, min(useful, int(left / pace)))
    write_json(path, {"steps": steps, "seconds": job.seconds})
    note = f", {pace * steps:.0f} s" if steps * pace <= left else ", the minimum: the budget is too small"
    return job.with_training("schedule.steps", steps), note, prepared
