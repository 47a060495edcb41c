"""A folder with a manifest: written whole, verified against its checksums, and read in one version.

`manifest.json` has the size and SHA-256 of each file. `verify` raises if any byte has changed, and if a file
was added: a library might read it. Hidden files (`.git`) are ignored, because nothing reads them.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from gr2.store.files import flush, flush_folder, make_parent, naming_full_disk, sha256, write_json
from gr2.store.writing import NEW, OLD, bring_back, replace_folder, writer_lock

MANIFEST = "manifest.json"
ATTEMPTS = 10
"""How often a folder is read anew because a writer has replaced it meanwhile."""
T = TypeVar("T")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path`, with its manifest, if the block succeeds.

    An existing folder is replaced only if it is empty or exactly as gr2 wrote it, so no file that a user
    has added or changed is ever lost. Only one writer at a time may enter.
    """
    path = path.resolve()
    make_parent(path)
    with naming_full_disk(path), writer_lock(path) as hidden:
        check_replaceable(path)
        new = hidden / NEW
        new.mkdir()
        yield new
        new.chmod(0o755)
        write_manifest(new)
        replace_folder(new, path, hidden / OLD)


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


def write_manifest(folder: Path) -> None:
    """Write the manifest: size and SHA-256 of every file of a folder, all flushed to disk."""
    paths = [path for path in sorted(folder.rglob("*")) if path != folder / MANIFEST]
    found = [path for path in paths if path.is_file()]
    for path in found:
        path.chmod(0o644)  # some libraries write files that only their owner can read
        flush(path)
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in found
    }
    write_json(folder / MANIFEST, {"files": files})
    for path in paths:
        if path.is_dir():
            flush_folder(path)


def verify(folder: Path, *needed: str) -> None:
    """Raise a ValueError that names the first file that is missing, has changed, or was added.

    Args:
        folder: A folder that gr2 wrote.
        needed: Files that the manifest must list, so that a shortened manifest is no way around it.
    """
    bring_back(folder)
    for path in _added(folder, _intact(folder, needed)):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            raise ValueError(f"{path}: was added after the folder was written ({MANIFEST} does not list it)")


def steady(folder: Path, load: Callable[[Path], T]) -> T:
    """The result of `load(folder)`, read from one version of the folder.

    If a writer replaced the folder meanwhile, what was read or raised is discarded, and it is read again.
    """
    for _ in range(ATTEMPTS):
        before = _version(folder)
        try:
            value = load(folder)
        except Exception:
            if _version(folder) == before:
                raise
            continue
        if _version(folder) == before:
            return value
    raise ValueError(f"{folder}: was replaced by a writer {ATTEMPTS} times while it was read")


def check_replaceable(path: Path) -> None:
    """Raise a ValueError unless a folder does not exist, is empty, or is exactly as gr2 wrote it."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / MANIFEST).is_file():
        raise ValueError(f"{path}: exists and was not written by gr2 (no {MANIFEST}); choose another folder")
    for found in _added(path, _intact(path)):
        raise ValueError(f"{found}: was not written by gr2 and would be lost; choose another folder")


def _intact(folder: Path, needed: Sequence[str] = ()) -> set[Path]:
    """The files that the manifest lists, all unchanged."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise ValueError(f"{folder}: has no {MANIFEST}, so it is not a complete folder written by gr2")
    try:
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
        listed = {folder / name: (entry["bytes"], entry["sha256"]) for name, entry in files.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{manifest}: changed since it was written (it is not a manifest)") from error
    for name in needed:
        if folder / name not in listed:
            raise ValueError(f"{manifest}: changed since it was written (it does not list {name})")
    for path, (size, checksum) in listed.items():
        if not path.is_file():
            raise ValueError(f"{path}: missing, but {MANIFEST} lists it")
        if path.stat().st_size != size or sha256(path) != checksum:
            raise ValueError(f"{path}: changed since it was written (its checksum differs from {MANIFEST})")
    return set(listed)


def _added(folder: Path, listed: set[Path]) -> Iterator[Path]:
    """What is in a folder, besides folders and these files; a link to a folder counts as a file."""
    for path in sorted(folder.rglob("*")):
        if path not in listed and path != folder / MANIFEST and (path.is_symlink() or not path.is_dir()):
            yield path


def _version(folder: Path) -> tuple[int, int, bytes]:
    """What tells two versions of a folder apart; of one without a manifest, nothing does."""
    bring_back(folder)
    try:
        about, manifest = folder.stat(), (folder / MANIFEST).read_bytes()
    except OSError:
        return 0, 0, b""
    return about.st_dev, about.st_ino, manifest
