"""A collection → a searchable model with a report, in one call: docids, training, evaluation.

Without a time budget nothing depends on the clock, and the result is bit for bit that of `gr2 docids build`
and `gr2 train` with the same configuration. With a budget, the job corrects while it runs how much of each
document it encodes and how many steps it trains (`budget.py`), and tells what was left undone.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gr2.data.collection import Collection
from gr2.data.runs import Run
from gr2.docids.docids import Docids
from gr2.evaluate.tables import comparison_table
from gr2.experiments.plans import EPOCHS
from gr2.model.backbone import makes_vectors
from gr2.model.config import VectorConfig
from gr2.model.device import device_of
from gr2.model.document_vectors import document_vectors, keep_vectors, vectors_path
from gr2.model.encoder import Vectors, Watch, unwatched
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
from gr2.training.fit import Prepared, fit, plain_views, prepare, resumable, wants_vectors
from gr2.workflows.budget import Budget, StepPlan, encode_within, left_undone
from gr2.workflows.learning_curve import Curve, learning_curve

HYBRID = "hybrid, nothing learned"
"""Name of look-ahead without what it learned in tables."""
MAX_STEPS = 2000
JOB, PLAN = "job.json", "plan.json"
"""Files with the settings of the job, and with what was spent of its budget."""
CHECKPOINTS = 5
"""Minimum number of checkpoints within a budget."""
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
    runs = list[Run]()
    if job.training.look_ahead.enabled:
        model, runs, curve = _look_ahead(job, docids, say)
        return _finished(job, docids, None, model, runs, begun, say, curve)
    return _decoder(job, docids, begun, say)


def _decoder(job: IndexJob, docids: Docids, begun: float, say: Say) -> GR2:
    """The model with a trained decoder, with as much of the work as fits the budget, if there is one."""
    vectors, runs, wanted = None, list[Run](), job.training.prior.documents
    budget = None if job.seconds is None else Budget(job.seconds, job.folder / PLAN)
    if wants_vectors(job.training, job.config.backbone):
        say("encoding: every document gets a vector, from which training starts")
        how = wanted if budget is None else _read_within(job, docids, budget)
        job = job.with_training("prior.documents", how)
        vectors, run = _untrained(job, docids, how, job.config.backbone)
        runs.append(run)
        say(f"vectors: from {_read(how)} of each document; they are added to the decoder's logits")
    if budget is None:
        plan, prepared = None, None
    else:
        job, plan, prepared = _planned(job, docids, vectors, budget)
    schedule = job.training.schedule
    steps = schedule.frozen_steps + schedule.steps + schedule.self_negative_steps
    note = "" if budget is None else ", or as many as the budget allows"
    say(f"training: {steps:,} steps of {job.training.batches.queries} queries{note}")
    model = _fit(job, docids, vectors, job.out, prepared, plan)
    if budget is None or plan is None:
        return _finished(job, docids, vectors, model, runs, begun, say)
    job = job.with_training("schedule.steps", plan.steps)  # so many for other variants too
    model = _finished(job, docids, vectors, model, runs, begun, say)
    say(left_undone(budget, plan, wanted))
    return model


def _read(how: VectorConfig) -> str:
    """How much of a document is read, in words."""
    return f"up to {how.pieces} pieces" if how.pieces else f"the first {how.max_tokens} tokens"


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
        say(f"encoding: {_read(how)} of each document")
        runs.append(_untrained(job, docids, how, encoder)[1])
    say("look-ahead: words and vectors score documents; cross-validation chooses what judgements add")
    started = time.process_time()
    model = _fit(job, docids, None, job.out)
    facts, queries, spent = model.provenance["look_ahead"], _queries(job), time.process_time() - started
    judged = any(job.collection.qrels.get(split) for split in ("train", "dev"))
    why = "" if judged else ", because neither train nor dev has judgements"
    views, queries_of = plain_views(model, job.collection, job.config.backbone, job.folder, job.training)
    say(
        f"learned: {facts['chosen']}{why}; weights: {facts.get('weights', views.usual)}; "
        f"{spent:.0f} CPU-seconds with the cross-validation"
    )
    if model.look_ahead is not None:
        say(model.look_ahead.sizes)
    hybrid = model.with_look_ahead(views.at(views.usual))
    runs.append(hybrid.search_many(queries, DEPTH, job.config.search, name=HYBRID))
    curve: Curve = ()
    if job.curve and (split := _measured(job)):
        seed = job.training.seed
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
    if job.curve and not job.training.look_ahead.enabled:
        raise ValueError("a learning curve is one of look-ahead, which is turned off: leave it out")
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
    job: IndexJob,
    docids: Docids,
    vectors: Vectors | None,
    out: Path,
    prepared: Prepared | None = None,
    plan: StepPlan | None = None,
) -> GR2:
    if job.seconds is not None:
        often = min(job.training.schedule.checkpoint_minutes, job.seconds / 60 / CHECKPOINTS)
        job = job.with_training("schedule.checkpoint_minutes", often).with_training("schedule.log_every", 1)
    return fit(
        job.collection,
        docids,
        job.config.backbone,
        out,
        job.training,
        vectors=vectors,
        prepared=prepared,
        plan=plan,
        resume=job.resume,
        progress=job.progress,
    )


def _untrained(
    job: IndexJob, docids: Docids, how: VectorConfig, name: str, watch: Watch = unwatched
) -> tuple[Vectors, Run]:
    """The documents' vectors, and the run of the untrained encoder with them; both are saved."""
    path = vectors_path(job.collection, name, job.folder, how)
    kept = path.with_suffix(".trec")
    if not (path.exists() and kept.exists()):
        encoder = load_encoder(name, device=job.training.device)
        dense = Dense.index(job.collection.documents, encoder, how, progress=job.progress, watch=watch)
        dense.search(_queries(job), DEPTH).write(kept)
        keep_vectors(dense.vectors, docids.docnos, path)
    vectors = document_vectors(job.collection, docids.docnos, name, job.folder, how)
    return vectors, Run(Run.read(kept).rankings, DENSE)


def _read_within(job: IndexJob, docids: Docids, budget: Budget) -> VectorConfig:
    """Encode documents as far as the budget allows; their vectors are saved."""

    def encode(how: VectorConfig, watch: Watch) -> None:
        _untrained(job, docids, how, job.config.backbone, watch)

    return encode_within(budget, job.training.prior.documents, encode).how


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
    job: IndexJob, docids: Docids, vectors: Vectors | None, budget: Budget
) -> tuple[IndexJob, StepPlan, Prepared]:
    """The job with all steps that are useful, the plan of how many fit, and the prepared training."""
    begun = budget.clock()
    prepared = prepare(job.collection, docids, job.config.backbone, job.training, vectors=vectors)
    queries, batch = len(job.collection.qrels.get("train", ())), job.training.batches.queries
    useful = min(MAX_STEPS, EPOCHS * -(-queries // batch)) if queries else MAX_STEPS
    plan = StepPlan(
        budget,
        useful,
        later=job.training.schedule.self_negative_steps,
        others=len(job.compare_with),
        preparing=budget.clock() - begun,  # each variant is prepared again
    )
    return job.with_training("schedule.steps", useful), plan, prepared
