"""How anything reaches the disk: whole or not at all, with a checksum, never pickled.

A file is written beside its place and then renamed, so a reader sees the old one or the new one. A folder
gets a `manifest.json` with the size and SHA-256 of each file; `verify` refuses one with a byte changed.
This file knows nothing of what the files mean.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that takes the place of `path` if the block ends well, else is removed.

    A link stays a link: what it leads to is replaced. A device, pipe or folder is refused.
    """
    path = writable(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        _flush(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def writable(path: Path) -> Path:
    """Where a file can be written: links followed, parents made; else a ValueError that says why not."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: exists and is not a regular file, so it cannot be replaced by one")
    _make_parent(path)
    return path


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically; the same value gives the same bytes."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path`, with its manifest, if the block ends well.

    A folder that is already there is replaced only if it is empty, or just as we wrote it: nothing that
    somebody has added or changed is ever lost.
    """
    path = path.resolve()
    check_replaceable(path)
    _make_parent(path)
    beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    new, old = beside / "new", beside / "old"
    try:
        new.mkdir()
        yield new
        new.chmod(0o755)
        write_manifest(new)
        if path.exists():
            os.replace(path, old)
        os.replace(new, path)
    finally:
        if old.exists() and not path.exists():  # the new one did not get there: bring the old one back
            os.replace(old, path)
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def extended_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder with all files of a folder we wrote; with what is added it takes its place.

    Files are linked and not copied where the disk can do that; replace them, never write into them.
    """
    with atomic_folder(path) as temporary:
        for found in sorted(path.rglob("*")):
            if found.is_file() and found != path / MANIFEST:
                place = temporary / found.relative_to(path)
                place.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(found, place)
                except OSError:  # another disk, or one that has no links
                    shutil.copy2(found, place)
        yield temporary


def write_manifest(folder: Path) -> None:
    """Write the size and SHA-256 of every file of a folder into its manifest, all flushed to disk."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    for path in paths:
        path.chmod(0o644)  # some libraries write files that only their owner may read
        _flush(path)
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in paths
    }
    write_json(folder / MANIFEST, {"files": files})


def verify(folder: Path) -> None:
    """Raise a ValueError that names the first file which is missing or is not as it was written."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise ValueError(f"{folder}: has no {MANIFEST}, so it was not written whole by gr2")
    try:
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
        listed = [(folder / name, entry["bytes"], entry["sha256"]) for name, entry in files.items()]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{manifest}: changed since it was written (it is not a manifest)") from error
    for path, size, checksum in listed:
        if not path.is_file():
            raise ValueError(f"{path}: missing, but {MANIFEST} lists it")
        if path.stat().st_size != size or sha256(path) != checksum:
            raise ValueError(f"{path}: changed since it was written (its checksum differs from {MANIFEST})")


def sha256(path: Path) -> str:
    """The SHA-256 of a file, as hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _make_parent(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror} ({error.filename})") from error
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"{path}: cannot be written: no permission in {path.parent}")


def check_replaceable(path: Path) -> None:
    """Raise a ValueError unless a folder is free, empty, or just as we wrote it."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / MANIFEST).is_file():
        raise ValueError(f"{path}: exists and was not written by gr2 (no {MANIFEST}); choose another folder")
    verify(path)
    listed = set(json.loads((path / MANIFEST).read_text(encoding="utf-8"))["files"])
    for found in sorted(path.rglob("*")):
        if found.is_file() and found != path / MANIFEST and str(found.relative_to(path)) not in listed:
            raise ValueError(f"{found}: was not written by gr2 and would be lost; choose another folder")


def _flush(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
