"""Atomic, checksummed files and folders: everything gr2 saves is written here, and nothing is pickled.

A file is written under a temporary name and then renamed, so a reader sees either the old or the new one. A
folder gets a `manifest.json` with the size and SHA-256 of each file; `verify` raises if any byte has changed.
"""

import ctypes
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
HERE, SWAP = -100, 2  # AT_FDCWD; RENAME_EXCHANGE and RENAME_SWAP


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` if the block succeeds and is removed if it fails.

    A symbolic link stays a link: its target is replaced. A device, pipe or folder is refused.
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
    """Follow links and create parent folders; raise a ValueError if the file cannot be written."""
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
    """Yield a temporary folder that becomes `path`, with its manifest, if the block succeeds.

    An existing folder is replaced only if it is empty or exactly as gr2 wrote it, so no file that a user
    has added or changed is ever lost. Where the file system can `exchange` folders, the old one or the new
    one is there at every moment; elsewhere there is none between two renames.
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
        if not (path.exists() and exchange(new, path)):
            if path.exists():
                os.replace(path, old)
            os.replace(new, path)
    finally:
        if old.exists() and not path.exists():  # the new folder could not be moved: restore the old one
            os.replace(old, path)
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def extended_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary copy of a folder that gr2 wrote, to add files to; it then replaces the folder.

    Files are hard links where the disk supports them, so replace them; never write into them.
    """
    with atomic_folder(path) as temporary:
        link_files(path, temporary)
        (temporary / MANIFEST).unlink()
        yield temporary


def link_files(source: Path, target: Path) -> None:
    """Fill a folder with the files of another one: hard links where the disk supports them, else copies."""
    for found in sorted(source.rglob("*")):
        if found.is_file():
            place = target / found.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(found, place)
            except OSError:  # another disk, or one without hard links
                shutil.copy2(found, place)


def exchange(one: Path, two: Path) -> bool:
    """Let two paths trade places in one step, which no crash interrupts; False if the system cannot."""
    libc, paths = ctypes.CDLL(None, use_errno=True), (os.fsencode(one), os.fsencode(two))
    if hasattr(libc, "renameat2"):  # Linux
        return bool(libc.renameat2(HERE, paths[0], HERE, paths[1], SWAP) == 0)
    if hasattr(libc, "renamex_np"):  # macOS
        return bool(libc.renamex_np(*paths, SWAP) == 0)
    return False


def write_manifest(folder: Path) -> None:
    """Write the manifest: size and SHA-256 of every file of a folder, all flushed to disk."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    for path in paths:
        path.chmod(0o644)  # some libraries write files that only their owner can read
        _flush(path)
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in paths
    }
    write_json(folder / MANIFEST, {"files": files})


def verify(folder: Path) -> None:
    """Raise a ValueError that names the first file that is missing or has changed."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise ValueError(f"{folder}: has no {MANIFEST}, so it is not a complete folder written by gr2")
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
    """Raise a ValueError unless a folder does not exist, is empty, or is exactly as gr2 wrote it."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / MANIFEST).is_file():
        raise ValueError(f"{path}: exists and was not written by gr2 (no {MANIFEST}); choose another folder")
    verify(path)
    listed = set(json.loads((path / MANIFEST).read_text(encoding="utf-8"))["files"])
    for found in sorted(path.rglob("*")):
        if found.is_file() and found != path / MANIFEST and str(found.relative_to(path)) not in listed:
            raise ValueError(f"{found}: was not written by gr2 and would be lost; choose another folder")


@dataclass(frozen=True)
class Workspace:
    """The folders beside an output folder that keep unfinished work, so that it can be resumed.

    >>> Workspace(Path("shop")).training.name
    'shop.training'
    """

    out: Path

    @property
    def training(self) -> Path:
        """Checkpoints, metrics and cached vectors of a training run."""
        return self.out.with_name(f"{self.out.name}.training")

    @property
    def making(self) -> Path:
        """What the making of docids or of a collection keeps."""
        return self.out.with_name(f"{self.out.name}.making")

    @property
    def versions(self) -> Path:
        """Earlier models of the output folder."""
        return self.out.with_name(f"{self.out.name}.versions")

    @property
    def model(self) -> Path:
        """A model that is trained on the way to the output, such as a backbone."""
        return self.out.with_name(f"{self.out.name}.model")


def _flush(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
