"""Processes that die at their n-th file operation, as by `kill -9`, to see what they leave.

Counted are the files opened for writing, each write to them (of which half reaches the file), flushes, and
every name that is made, moved, linked, exchanged or removed. Libraries that write in compiled code
(safetensors, SQLite) are counted by what is around them; their file has then no name that a reader knows.
"""

import builtins
import io
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gr2.store import writing

Say = Callable[[str], None]
"""Tells the parent something that must be true from then on, even if the process dies."""
Action = Callable[[Say], object]
NAMES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "os.chmod")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NEVER = 1 << 60


def _operations(action: Action) -> int:
    """How many file operations an action takes; it is done, in a process of its own."""
    status, said = _in_child(action, NEVER)
    assert status == 0, f"the action failed: {said}"
    return int(said[-1])


def _died(action: Action, at: int) -> list[str]:
    """Do an action in a process that dies at its n-th file operation (from 1); returns what it said."""
    status, said = _in_child(action, at)
    assert status == signal.SIGKILL, f"expected the process to be killed, it ended with {status}: {said}"
    return said


def _some_of(count: int, most: int) -> list[int]:
    """Operations at which to die: the last ones, which give names, the first, and some between."""
    if count <= most:
        return list(range(1, count + 1))
    last = list(range(count - most // 2 + 1, count + 1))
    between = random.Random(count).sample(range(2, last[0]), most - len(last) - 1)
    return [1, *sorted(between), *last]


def killed_at_each(
    place: Path, most: int, prepare: Callable[[Path], object], action: Callable[[Path], Action]
) -> list[tuple[Path, list[str]]]:
    """For some operations of an action: a folder, prepared, in which it died there, and what it said."""
    first = place / "0"
    first.mkdir()
    prepare(first)
    count, found = _operations(action(first)), []
    for at in _some_of(count, most):
        inside = place / str(at)
        inside.mkdir()
        prepare(inside)
        found.append((inside, _died(action(inside), at)))
    return found


def _in_child(action: Action, at: int) -> tuple[int, list[str]]:
    """The status of a child process that does the action, and what it said."""
    heard, mouth = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        _perform(action, at, mouth)
    os.close(mouth)
    with open(heard, encoding="utf-8") as stream:
        said = stream.read().splitlines()
    return os.waitpid(child, 0)[1], said


def _perform(action: Action, at: int, mouth: int) -> None:
    """Be the child: never returns."""
    write, done = os.write, 0

    def say(line: str) -> None:
        write(mouth, f"{line}\n".encode())

    def step() -> bool:
        """Count an operation; whether it is the last."""
        nonlocal done
        done += 1
        return done == at

    try:
        _watch(step)
        action(say)
        say(str(done))
    except BaseException as error:
        say(repr(error))
        os._exit(1)
    os._exit(0)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _watch(step: Callable[[], bool]) -> None:
    """Count this process's file operations from now on."""

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES
        if (opened or event in NAMES) and step():
            _die()

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            if step():
                _die()
            return function(*arguments, **options)

        return watched

    def torn(write: Callable[..., int]) -> Callable[..., int]:
        def watched(target: Any, data: Any) -> int:
            if step():
                whole = memoryview(data).cast("B")
                write(target, whole[: len(whole) // 2])
                _die()
            return write(target, data)

        return watched

    class File(io.FileIO):
        """A file whose writes are counted."""

        write = torn(io.FileIO.write)

    os.fsync, writing.exchange = before(os.fsync), before(writing.exchange)
    os.write = torn(os.write)
    io.open = builtins.open = _opener(File, io.open)
    sys.addaudithook(audit)


def _opener(kind: type[io.FileIO], usual: Callable[..., Any]) -> Callable[..., Any]:
    """`open`, for which a file that is written is of this kind."""

    def opened(file: Any, mode: str = "r", buffering: int = -1, *text: Any, **options: Any) -> Any:
        if not isinstance(file, str | os.PathLike) or not set(mode) & set("wax") or "+" in mode:
            return usual(file, mode, buffering, *text, **options)
        raw = kind(file, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        buffered = io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *text, **options)

    return opened


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, or one file, and what it holds."""
    if folder.is_file():
        return {folder.name: folder.read_bytes()}
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
