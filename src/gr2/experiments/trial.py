"""One trial: a system built on a collection, its run and its cost, saved in a folder.

A trial of GR² is one training run; any other system of the registry can be used as well. The folder's name
contains a hash of the settings, so a finished trial is never run again.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gr2.data.collection import Collection
from gr2.data.runs import Run
from gr2.schemes.config import SchemeConfig
from gr2.store import Workspace, atomic_folder, write_json
from gr2.training.config import TrainingConfig, as_json, from_json, with_settings

if TYPE_CHECKING:
    from gr2.docids.docids import Docids

DEPTH = 30
"""Documents per query in a run: measures use 20, and some may be excluded before."""
KEYS: Mapping[str, str] = {
    "recipe": "variant",
    "frozen_steps": "schedule.frozen_steps",
    "steps": "schedule.steps",
    "self_negative_steps": "schedule.self_negative_steps",
    "dev": "schedule.dev",
    "measure": "schedule.measure",
    "judge_every": "schedule.validate_every",
    "patience": "schedule.patience",
    "learning_rate": "optimiser.learning_rate",
    "pretrained_rate": "optimiser.pretrained_rate",
    "accumulate": "optimiser.accumulate",
    "average": "optimiser.average",
    "bf16": "optimiser.bf16",
    "smoothing": "objective.smoothing",
    "normaliser": "objective.normaliser",
    "prior": "prior.vectors_per_document",
    "queries": "batches.queries",
    "texts": "batches.texts",
    "per_grade": "batches.per_grade",
    "freeze_tables": "freeze_embeddings",
}
"""Serialised keys of a trial's plan → fields of `TrainingConfig`. The keys are part of the names of finished
trials, so they must not change; other fields are named by their path, such as `network.representation`."""
VARIANTS: Mapping[str, str] = {
    "-RF": "no-fusion",
    "-lambda": "no-lambda",
    "-Max": "no-max",
    "LR": "LR-MLE",
    "LambdaRank": "LR",
}
"""Serialised names of variants → their current names: what was first called LR adds LambdaRank to L_MLE^q."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A system on a collection, or on one fold of it."""

    system: str
    """The name in tables; seeds and folds with the same name are merged."""
    collection: str
    backbone: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """Training settings that differ from the defaults, by serialised key; see `KEYS`."""
    words: int = 12
    """Maximum words of a title docid."""
    docids: str = ""
    """A folder with docids of the collection to use instead of titles."""
    fold: int | None = None
    judged: bool = True
    """Whether to train on judgements; otherwise only on the documents' own texts."""
    lead: int = 0
    """Leading tokens from which a document's vector in the node prior is made; 0 uses the text in pieces."""
    split: str = "test"
    k: int = DEPTH
    row: str = "gr2"
    """Which system of the registry to run; `gr2` trains with the settings above."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of any other system, as JSON."""

    @property
    def name(self) -> str:
        """A readable name that is unique for the settings.

        Fields with their default value are left out of the hash, so adding a field keeps earlier names.
        """
        from gr2.model.backbone import identity

        blank = {
            f.name: f.default_factory() if callable(f.default_factory) else f.default for f in fields(self)
        }
        known = {name: value for name, value in asdict(self).items() if value != blank[name]}
        if self.backbone:
            known |= {"backbone": identity(self.backbone)}
        content = json.dumps(known, sort_keys=True)
        place = Path(self.collection).name + ("" if self.fold is None else f"-fold{self.fold}")
        key = hashlib.sha256(content.encode()).hexdigest()[:8]
        return f"{place}.{self.system}.{self.plan.get('seed', 0)}.{key}".replace(" ", "_")

    @property
    def training(self) -> TrainingConfig:
        """The training configuration."""
        return training_config(self.plan)


def training_config(plan: Mapping[str, Any]) -> TrainingConfig:
    """A training configuration from settings by serialised key.

    >>> training_config({"recipe": "-lambda", "steps": 5}).variant
    'no-lambda'
    """
    settings: dict[str, Any] = {}
    for key, value in plan.items():
        if key == "augment":
            settings |= {f"augment.{'max_words' if n == 'longest' else n}": v for n, v in value.items()}
        elif key == "changes":
            settings |= {f"objective.{'query_loss' if n == 'queries' else n}": v for n, v in value.items()}
        else:
            settings[KEYS.get(key, key)] = VARIANTS.get(value, value) if key == "recipe" else value
    return with_settings(TrainingConfig(), settings)


def perform(trial: Trial, out: Path) -> None:
    """Run a trial and save the run and its figures in OUT/NAME; the model itself is deleted."""
    from gr2.data.formats import open_collection

    whole = open_collection(trial.collection)
    collection = whole if trial.fold is None else whole.fold(trial.fold)
    if not trial.judged:
        unread = {name: rows for name, rows in collection.qrels.items() if name != "train"}
        collection = replace(collection, qrels=unread)
    found = _trained(trial, whole, collection, out) if trial.row == "gr2" else _built(trial, collection)
    run, content = found
    with atomic_folder(out / trial.name) as temporary:
        run.write(temporary / "run.trec")
        about = {"trial": asdict(trial), "fingerprint": whole.fingerprint}
        write_json(temporary / "trial.json", about | content)
    for used in (out / f"{trial.name}.model", Workspace(out / f"{trial.name}.model").training):
        if used.exists():  # there are no checkpoints if no step was run
            shutil.rmtree(used)  # half a gigabyte each: a sweep of a hundred could fill the disk


def _queries(trial: Trial, collection: Collection) -> dict[str, str]:
    return {qid: collection.queries[qid] for qid in collection.split(trial.split)}


def _built(trial: Trial, collection: Collection) -> tuple[Run, dict[str, Any]]:
    """The run and cost of any other system of the registry."""
    from gr2.systems import SYSTEMS, SystemContext, build_system

    begun = time.process_time()
    row = SYSTEMS.get(trial.row)
    options = None if row is None else from_json(row.options, trial.options)
    system = build_system(trial.row, SystemContext(collection=collection), options)
    cost = {"cpu_seconds": time.process_time() - begun}
    begun = time.process_time()
    run = system.search(_queries(trial, collection), trial.k)
    cost["search_cpu_seconds"] = time.process_time() - begun
    return Run(run.rankings, trial.system), {"cost": cost}


def _trained(
    trial: Trial, whole: Collection, collection: Collection, out: Path
) -> tuple[Run, dict[str, Any]]:
    """The run, cost and agreement of GR², trained with the trial's settings."""
    from gr2.experiments.geometry import agreement
    from gr2.model.config import SearchConfig, VectorConfig
    from gr2.model.document_vectors import document_vectors
    from gr2.training.fit import fit, wants_vectors

    docids = _docids(trial, whole, out)
    docids = replace(docids, about={**docids.about, "fingerprint": collection.fingerprint})
    config = with_settings(trial.training, {"prior.documents": VectorConfig.leading(trial.lead)})
    vectors = None
    if wants_vectors(config, trial.backbone):  # all folds share the vectors of the whole collection
        vectors = document_vectors(whole, docids.docnos, trial.backbone, out, config.prior.documents)
    folder = out / f"{trial.name}.model"
    begun, wall, resumed = time.process_time(), time.monotonic(), Workspace(folder).training.exists()
    model = fit(collection, docids, trial.backbone, folder, config, vectors=vectors, states=out, resume=True)
    spent = {"cpu_seconds": time.process_time() - begun, "seconds": time.monotonic() - wall}
    cost = dict.fromkeys(spent) if resumed else spent  # the cost before an interruption is unknown
    queries, begun = _queries(trial, collection), time.process_time()
    run = model.search_many(queries, trial.k, SearchConfig(beams=max(20, trial.k)), name=trial.system)
    cost["search_cpu_seconds"] = time.process_time() - begun
    prior = model.network.prior
    return run, {
        "training": as_json(config),
        "cost": cost,
        "agreement": agreement(model, queries, collection.split(trial.split)).means(),
        "prior_bytes": 0 if prior is None else prior.nbytes,
    }


def _docids(trial: Trial, collection: Collection, out: Path) -> "Docids":
    from gr2.docids.docids import Docids
    from gr2.schemes.registry import SchemeContext, build

    if not trial.docids:
        config = SchemeConfig(scheme="title", words=trial.words)
        return build(SchemeContext(collection=collection, backbone=trial.backbone, folder=out, config=config))
    docids = Docids.load(Path(trial.docids))
    if docids.about.get("fingerprint") != collection.fingerprint:
        raise ValueError(f"{trial.docids}: its docids are not those of the collection {trial.collection}")
    return docids
