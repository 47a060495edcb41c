"""One writer of a path at a time, two folders exchanged in one step, recovery of what a killed writer left.

A writer works in a hidden folder beside its output, `.NAME.writing`, whose file `lock` it keeps locked. The
name is fixed and the system releases the lock of a killed process, so what that left is found by the next
writer or reader.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gr2.store.files import flush_folder, make_parent

LOCK, NEW, OLD = "lock", "new", "old"
"""In the hidden folder: the lock, the new content, and the old content while it is moved away."""
EXCHANGE, CURRENT_FOLDER = 2, -100
"""Exchange both names, for renameat2 and renamex_np; relative paths start at the current folder."""
UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
"""Errors of a system or disk that cannot exchange names."""


class AlreadyWriting(ValueError):
    """Another writer has the path."""


@contextmanager
def writer_lock(path: Path) -> Iterator[Path]:
    """Be the only writer of `path`; yields an empty hidden folder beside it, removed at the end.

    Raises:
        AlreadyWriting: another process, or another part of this one, is writing it.
    """
    path = path.resolve()
    make_parent(path)
    hidden = _hidden(path)
    descriptor = _locked(path, hidden)
    try:
        _recover(path, hidden)
        yield hidden
    finally:
        _recover(path, hidden)
        (hidden / LOCK).unlink(missing_ok=True)
        with suppress(OSError):  # another writer has just begun to use the folder
            hidden.rmdir()
        os.close(descriptor)


def replace_folder(new: Path, path: Path, old: Path) -> None:
    """Put a folder in the place of another, or of none; what was there is then at `new` or `old`."""
    if not path.exists() or not any(path.iterdir()):
        os.replace(new, path)
    elif not exchange(new, path):
        os.replace(path, old)  # a reader that finds nothing waits, see `bring_back`
        os.replace(new, path)
    flush_folder(path.parent)


def exchange(one: Path, two: Path) -> bool:
    """Exchange the names of two folders in one step; False if the system or the disk cannot do that."""
    libc, paths = ctypes.CDLL(None, use_errno=True), (os.fsencode(one), os.fsencode(two))
    if hasattr(libc, "renameat2"):  # Linux
        failed = libc.renameat2(CURRENT_FOLDER, paths[0], CURRENT_FOLDER, paths[1], EXCHANGE)
    elif hasattr(libc, "renamex_np"):  # macOS
        failed = libc.renamex_np(*paths, EXCHANGE)
    else:
        return False
    if not failed:
        return True
    if (number := ctypes.get_errno()) in UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(two))


def bring_back(path: Path) -> None:
    """If a writer has moved a folder away, wait until it is back; if the writer was killed, bring it back."""
    path = path.resolve()
    while not path.exists() and (_hidden(path) / OLD).exists():
        with suppress(AlreadyWriting), writer_lock(path):
            return
        time.sleep(0.01)


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}.writing")


def _locked(path: Path, hidden: Path) -> int:
    """The descriptor of the lock; closing it releases the lock."""
    while True:
        with suppress(FileExistsError):
            os.mkdir(hidden)
        try:
            descriptor = os.open(hidden / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:  # the last writer has just removed the folder
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), (hidden / LOCK).stat()):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyWriting(
                f"{path}: another process is writing it; wait until it has finished"
            ) from None
        os.close(descriptor)  # the lock of a writer that has just finished, and removed the file


def _recover(path: Path, hidden: Path) -> None:
    """Bring back the old folder if no new one took its place; remove everything but the lock."""
    if (hidden / OLD).exists() and not path.exists():
        os.replace(hidden / OLD, path)
        flush_folder(path.parent)
    for left in hidden.iterdir():
        if left.name != LOCK:
            shutil.rmtree(left, ignore_errors=True)
