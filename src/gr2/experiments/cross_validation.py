"""Systems on all folds of a collection → one run for each system that answers every judged query once.

Each fold's run is kept in the folder as soon as it is there, and a system that trains keeps its work beside
it, so an interrupted cross-validation continues. A system that learns nothing is built once.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gr2.data.collection import Collection
from gr2.data.runs import Ranking, Run
from gr2.store import write_json
from gr2.systems import SYSTEMS
from gr2.systems.registry import System, SystemContext, build_system, checked_run
from gr2.training.config import as_json

SETTINGS = "settings.json"


@dataclass(frozen=True, kw_only=True)
class CrossValidation:
    """What to cross-validate, and where."""

    collection: Collection
    """With folds."""
    systems: Mapping[str, object | None]
    """The systems by name, with their options; None takes the defaults."""
    folder: Path
    """Holds the runs, and the work of systems that train."""
    k: int = 1000
    """Documents per query."""
    resume: bool = False
    progress: bool = False
    say: Callable[[str], None] = field(default=lambda line: None)
    """Called after each fold of a system."""

    def run(self) -> list[Path]:
        """Run what is missing; the run of each system over all folds, in the order of the systems."""
        if not self.collection.folds:
            raise ValueError(f"{self.collection.name} has no folds to cross-validate with")
        self._check()
        paths = []
        for name in self.systems:
            rankings: dict[str, Ranking] = {}
            built: list[System] = []
            for fold in range(len(self.collection.folds)):
                rankings |= self._fold(name, fold, built).rankings
            paths.append(self.folder / f"{name}.run")
            Run(rankings, name).write(paths[-1])
        return paths

    def _check(self) -> None:
        """Refuse unknown systems, and a folder that was begun with other settings."""
        for name in self.systems:
            if name not in SYSTEMS:
                raise ValueError(f"no system is called {name!r}; there are: {', '.join(SYSTEMS)}")
        path, now = self.folder / SETTINGS, self._settings()
        if path.exists() and not self.resume:
            raise ValueError(f"{self.folder}: was begun before; add --resume, or choose another folder")
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if other := [name for name in before if name in now and before[name] != now[name]]:
            raise ValueError(f"{self.folder}: was begun with another {other[0]}; choose another folder")
        write_json(path, before | now)

    def _settings(self) -> dict[str, object]:
        options = {name: None if given is None else as_json(given) for name, given in self.systems.items()}
        return {"collection": self.collection.fingerprint, "k": self.k, **options}

    def _fold(self, name: str, fold: int, built: list[System]) -> Run:
        """A system's run on a fold, read if it is there; `built` keeps a system that serves all folds."""
        path, learns = self.folder / f"{name}.fold{fold}.run", SYSTEMS[name].learns
        if path.exists():
            return Run.read(path)
        part = self.collection.fold(fold)
        if learns or not built:
            context = SystemContext(
                collection=part,
                folder=self.folder / f"{name}.fold{fold}.model" if learns else None,
                resume=self.resume,
                progress=self.progress,
            )
            built[:] = [build_system(name, context, self.systems[name])]
        queries = {qid: part.queries[qid] for qid in part.split("test")}
        run = checked_run(built[0], part, queries, self.k)
        run.write(path)
        self.say(f"{name}, fold {fold}: {len(queries):,} queries")
        return run
