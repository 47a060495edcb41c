"""Versions of a model folder: the last few models stay beside the one that is published over them.

    shop-model                  the present model
    shop-model.versions/0001    an earlier one, a complete model folder

A publication keeps the present model and then puts the new one in its place in one step, so a killed process
leaves the old model or the new one. Files that do not change are hard links where the file system has them.
Going back is a publication too, so nothing is lost by it.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gr2.store import MANIFEST, Workspace, atomic_folder, link_files, read_json, verify

KEPT = 5
"""Earlier models that are kept."""


@dataclass(frozen=True)
class Version:
    """A model that is or was in a folder."""

    number: int
    """From 1; the present model has the highest."""
    folder: Path
    time: datetime
    """When it was published, in UTC."""
    learned: str
    """What its look-ahead learned."""
    weights: str
    """The vectors and weights of words that were chosen with it; empty if it had no judgements."""
    queries: int
    """Judged queries that `learn` measured its gain on; 0 if the model was made another way."""
    gain: float | None
    """The gain in nDCG@20 that `learn` measured."""
    current: bool


def versions(folder: Path) -> list[Version]:
    """The versions of a model folder, oldest first; the last one is the present model."""
    found = [_version(path, int(path.name), current=False) for path in _kept(folder)]
    if (folder / MANIFEST).is_file():
        found.append(_version(folder, found[-1].number + 1 if found else 1, current=True))
    if not found:
        raise ValueError(f"{folder}: expected a model folder, with {MANIFEST}")
    return found


@contextmanager
def published(folder: Path, source: Path | None = None, *, keep: int = KEPT) -> Iterator[Path]:
    """Yield a copy of a model to change; it becomes `folder`, and the model that was there is kept.

    The copy's files are hard links: replace them, never write into them.

    Args:
        folder: the model folder to publish to.
        source: the model to start from; by default the present one.
        keep: earlier models to keep.
    """
    with _alone(folder):
        verify(source or folder, "config.json")
        with atomic_folder(folder) as temporary:
            link_files(source or folder, temporary)
            (temporary / MANIFEST).unlink()
            yield temporary
            _keep_present(folder)
        _forget(folder, keep)


def rollback(folder: Path, number: int | None = None, *, keep: int = KEPT) -> Version:
    """Publish an earlier version again, by default the one before the present model.

    After it, "the one before" is the model that was rolled back from.
    """
    kept = {int(path.name): path for path in _kept(folder)}
    if not kept:
        raise ValueError(f"{folder}: no earlier version is kept")
    wanted = max(kept) if number is None else number
    if wanted not in kept:
        known = ", ".join(map(str, kept))
        raise ValueError(f"{folder}: there is no earlier version {wanted}; the versions kept are {known}")
    with published(folder, kept[wanted], keep=keep):
        pass
    return versions(folder)[-1]


def _kept(folder: Path) -> list[Path]:
    """The folders of earlier versions, oldest first."""
    folder = folder.resolve()
    found = (path for path in Workspace(folder).versions.glob("*") if path.name.isdecimal())
    kept = sorted(found, key=lambda path: int(path.name))
    if kept and (folder / MANIFEST).is_file() and _same(kept[-1], folder):
        kept.pop()  # a publication was killed after it had kept the present model
    return kept


def _same(one: Path, two: Path) -> bool:
    return (one / MANIFEST).read_bytes() == (two / MANIFEST).read_bytes()


def _version(folder: Path, number: int, *, current: bool) -> Version:
    about = read_json(folder / "config.json", dict[str, Any]).get("provenance", {})
    chosen, learned = about.get("look_ahead", {}), about.get("learned", {})
    return Version(
        number,
        folder,
        datetime.fromtimestamp((folder / MANIFEST).stat().st_mtime, UTC),
        chosen.get("chosen", "nothing"),
        chosen.get("weights", ""),
        learned.get("queries", 0),
        learned.get("gain"),
        current,
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process publishes to the folder."""
    beside = Workspace(folder.resolve()).versions
    beside.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(beside / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # also releases the lock


def _keep_present(folder: Path) -> None:
    """Keep the present model, if there is one, as a version."""
    kept, beside = _kept(folder), Workspace(folder.resolve()).versions
    target = beside / f"{int(kept[-1].name) + 1 if kept else 1:04}"
    if target.exists() or not (folder / MANIFEST).is_file():
        return
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=beside))
    link_files(folder, temporary)
    temporary.chmod(0o755)
    os.replace(temporary, target)


def _forget(folder: Path, keep: int) -> None:
    """Remove the oldest versions, and what killed publications have left."""
    for path in _kept(folder)[:-keep] if keep else _kept(folder):
        os.replace(path, path.with_name(f".{path.name}"))
    for path in Workspace(folder.resolve()).versions.glob(".*"):
        if path.is_dir():
            shutil.rmtree(path)
