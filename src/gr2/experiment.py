"""Systems × collections × seeds → run files and figures, resumed where they were interrupted.

A trial is one training run and the run file it gives. Each is done in a process of its own with one thread,
several side by side, and leaves a folder with the run and a JSON of what it cost; a folder that is there is
not done again. `gather` puts folds together and averages a system's values over seeds, query by query, so
that paired tests can follow. Knows no table.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gr2.augment import AugmentConfig
from gr2.data import Collection, Qrels
from gr2.evaluation import read_pairs
from gr2.measures import Convention, Evaluation, evaluate
from gr2.runs import Run
from gr2.store import atomic_folder, write_json

if TYPE_CHECKING:
    from gr2.docids import Docids

DEPTH = 30
"""Documents of a run: measures look at 20, and some may be left out before."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training run on one collection, or on one fold of it."""

    system: str
    """The name under which seeds and folds are put together."""
    collection: str
    backbone: str
    plan: Mapping[str, Any]
    """What differs from `Plan`."""
    words: int = 12
    """Words of a title docid."""
    docids: str = ""
    """A folder of docids of the collection to use instead of titles."""
    fold: int | None = None
    judged: bool = True
    """False: no judgement is learned from, documents are indexed by their own texts alone."""
    lead: int = 0
    """Tokens of a document that its vector in the node prior is made from; 0: all of it, in pieces."""
    split: str = "test"
    k: int = DEPTH

    @property
    def name(self) -> str:
        """Unique for its content, and readable; a field that is as usual does not count.

        So a field that is added later leaves the names of what was done before as they are.
        """
        from gr2.backbone import identity

        usual = {field.name: field.default for field in fields(self)}
        known = {name: value for name, value in asdict(self).items() if value != usual[name]}
        content = json.dumps(known | {"backbone": identity(self.backbone)}, sort_keys=True)
        place = Path(self.collection).name + ("" if self.fold is None else f"-fold{self.fold}")
        key = hashlib.sha256(content.encode()).hexdigest()[:8]
        return f"{place}.{self.system}.{self.plan.get('seed', 0)}.{key}".replace(" ", "_")


def sweep(trials: Iterable[Trial], out: Path, *, workers: int = 2) -> None:
    """Do the trials that are not done, so many side by side; interrupted, it goes on when called again."""
    from tqdm import tqdm

    waiting = [trial for trial in trials if not (out / trial.name).exists()]
    running: list[tuple[Trial, subprocess.Popen[bytes]]] = []
    out.mkdir(parents=True, exist_ok=True)
    with tqdm(total=len(waiting), unit="trial") as bar:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    trial = waiting.pop(0)
                    running.append((trial, _start(trial, out)))
                for trial, process in [pair for pair in running if pair[1].poll() is not None]:
                    running.remove((trial, process))
                    bar.update()
                    if process.returncode:
                        raise RuntimeError(f"{trial.name} failed; see {out / trial.name}.log")
                time.sleep(0.5)
        finally:
            for _, process in running:
                process.kill()


def _start(trial: Trial, out: Path) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", "gr2.experiment", json.dumps(asdict(trial)), str(out)]
    with (out / f"{trial.name}.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def perform(trial: Trial, out: Path) -> None:
    """Train, search, and leave the run and the figures in OUT/NAME; the model itself is not kept."""
    from gr2.backbone import makes_vectors
    from gr2.baselines.dense import DenseConfig, document_vectors
    from gr2.formats import open_collection
    from gr2.geometry import agreement
    from gr2.learn import Plan, learn

    whole = open_collection(trial.collection)
    collection = whole if trial.fold is None else whole.fold(trial.fold)
    if not trial.judged:
        unread = {name: rows for name, rows in collection.qrels.items() if name != "train"}
        collection = replace(collection, qrels=unread)
    docids = _docids(trial, whole, out)
    docids = replace(docids, about={**docids.about, "fingerprint": collection.fingerprint})
    settings = dict(trial.plan)
    if "augment" in settings:
        settings["augment"] = AugmentConfig(**settings["augment"])
    plan = Plan(**settings)
    vectors = None
    if plan.prior > 0 and makes_vectors(trial.backbone):
        how = DenseConfig.leading(trial.lead)
        vectors = document_vectors(whole, docids.docnos, trial.backbone, out, how)
    folder = out / f"{trial.name}.model"
    training = folder.with_name(folder.name + ".training")
    begun, wall, resumed = time.process_time(), time.monotonic(), training.exists()
    model = learn(collection, docids, trial.backbone, folder, plan, vectors=vectors, states=out, resume=True)
    spent = {"cpu_seconds": time.process_time() - begun, "seconds": time.monotonic() - wall}
    cost = dict.fromkeys(spent) if resumed else spent  # what came before an interruption is not known
    test = collection.split(trial.split)
    queries = {qid: collection.queries[qid] for qid in test}
    begun = time.process_time()
    run = model.search(queries, trial.k, beams=max(20, trial.k), name=trial.system)
    cost["search_cpu_seconds"] = time.process_time() - begun
    prior = model.network.prior
    with atomic_folder(out / trial.name) as temporary:
        run.write(temporary / "run.trec")
        content: dict[str, Any] = {
            "trial": asdict(trial),
            "plan": asdict(plan),
            "fingerprint": whole.fingerprint,
        }
        content |= {"cost": cost, "agreement": agreement(model, queries, test).means()}
        content |= {"prior_bytes": 0 if prior is None else prior.nbytes}
        write_json(temporary / "trial.json", content)
    for used in (folder, training):
        if used.exists():  # without a step there are no checkpoints
            shutil.rmtree(used)  # half a gigabyte each: a sweep of a hundred would fill a disk


def _docids(trial: Trial, collection: Collection, out: Path) -> "Docids":
    from gr2.docids import Docids
    from gr2.docids.schemes import Making, build

    if not trial.docids:
        making = Making(collection=collection, backbone=trial.backbone, folder=out, words=trial.words)
        return build("title", making)
    docids = Docids.load(Path(trial.docids))
    if docids.about.get("fingerprint") != collection.fingerprint:
        raise ValueError(f"{trial.docids}: has docids of another collection than {trial.collection}")
    return docids


def gather(
    collection: Collection,
    rows: Sequence[tuple[str, int, Run]],
    measures: Sequence[str],
    *,
    split: str = "test",
    exclude: Path | None = None,
) -> list[Evaluation]:
    """Runs as (system, seed, run) → one evaluation a system: each query's mean over the seeds.

    Folds of a seed may come as several runs; each judged query must be answered once for every seed.
    """
    excluded = read_pairs(exclude)
    qrels: Qrels = {
        qid: {d: g for d, g in row.items() if d not in excluded.get(qid, ())}
        for qid, row in collection.split(split).items()
    }
    convention = Convention(gain="exponential", max_grade=max(4, collection.grades))
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for system, seed, run in rows:
        found.setdefault(system, {}).setdefault(seed, {}).update(run.rankings)
    evaluations = []
    for system, seeds in found.items():
        each = [
            evaluate(Run(rankings, system).without(excluded), qrels, measures, convention)
            for rankings in seeds.values()
        ]
        evaluations.append(mean_of(each, system))
    return evaluations


def mean_of(evaluations: Sequence[Evaluation], name: str) -> Evaluation:
    """The mean of several evaluations, query by query."""
    first = evaluations[0]
    values = {
        measure: {qid: float(np.mean([e.values[measure][qid] for e in evaluations])) for qid in row}
        for measure, row in first.values.items()
    }
    return replace(first, name=name, values=values)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    perform(Trial(**json.loads(sys.argv[1])), Path(sys.argv[2]))
