"""One file: written under a temporary name, flushed and renamed: readers see the old or the new one."""

import errno
import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FULL = ("No space left on device", "disk is full", "requested and")
"""What safetensors, SQLite and numpy say of a full disk; their errors have no number."""


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` if the block succeeds and is removed if it fails.

    A symbolic link stays a link: its target is replaced. A device, pipe or folder is refused.
    """
    path = writable(path)
    with naming_full_disk(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o644)
            flush(temporary)
            os.replace(temporary, path)
            flush_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def writable(path: Path) -> Path:
    """Follow links and create parent folders; raise a ValueError if the file cannot be written."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: exists and is not a regular file, so it cannot be replaced by one")
    make_parent(path)
    return path


def make_parent(path: Path) -> None:
    """Create the folders above a path; raise a ValueError if it cannot be written there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror} ({error.filename})") from error
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"{path}: cannot be written: no permission in {path.parent}")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically; the same value gives the same bytes."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


@contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """If the disk is full, raise one clear OSError that names `path`, whichever library noticed it."""
    try:
        yield
    except Exception as error:
        if not _is_full_disk(error):
            raise
        message = "No space left on the disk; what was there before is unchanged"
        raise OSError(errno.ENOSPC, message, str(path)) from error


def _is_full_disk(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    from safetensors import SafetensorError

    writing = isinstance(error, OSError | SafetensorError | sqlite3.Error)
    return writing and any(words in str(error) for words in FULL)


def sha256(path: Path) -> str:
    """The SHA-256 of a file, as hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Flush the content of a file to disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def flush_folder(folder: Path) -> None:
    """Flush the names of a folder's files to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
