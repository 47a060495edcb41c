"""Entries (JSON objects) ↔ an append-only file of JSON lines, each with a checksum.

A line is ``{"crc32":"8 hex digits","entry":{...}}``; the checksum covers the bytes of the entry. New lines
are appended by one write and flushed to disk before `append` returns, under a lock between processes.

After a crash the file may end in an incomplete line, without a line ending. Nobody was told that it was
kept, so readers ignore it and the next writer removes it. Any other damaged line is an error that names the
line: an entry that was once kept is never skipped.
"""

import fcntl
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gr2.data.formats.lines import FormatError
from gr2.store import flush_folder

LINE = re.compile(rb'\{"crc32":"([0-9a-f]{8})","entry":(\{.*\})\}', re.DOTALL)
Entry = Mapping[str, Any]


def encode(entry: Entry) -> bytes:
    r"""One line of the log.

    >>> encode({"grade": 2})
    b'{"crc32":"242e6115","entry":{"grade":2}}\n'
    """
    payload = orjson.dumps(entry)
    return b'{"crc32":"%08x","entry":%s}\n' % (zlib.crc32(payload), payload)


def decode(line: bytes) -> Entry | None:
    """The entry of a line without its line ending; None if a byte is missing or has changed."""
    found = LINE.fullmatch(line)
    if found is None or int(found[1], 16) != zlib.crc32(found[2]):
        return None
    entry: Entry = orjson.loads(found[2])
    return entry


@dataclass(frozen=True)
class OpenLog:
    """A log that is open and locked."""

    path: Path
    descriptor: int

    def read(self, start: int, line: int) -> tuple[list[Entry], int]:
        """Read entries from byte `start`, where line `line` (from 1) begins; also returns where they end."""
        size = os.fstat(self.descriptor).st_size
        if size < start:
            raise FormatError(self.path, 0, "became shorter while it was open: judgements were removed")
        *lines, rest = self._bytes(start, size).split(b"\n")
        entries = []
        for number, content in enumerate(lines, start=line):
            entry = decode(content)
            if entry is None:
                raise FormatError(self.path, number, "damaged: the line does not match its checksum")
            entries.append(entry)
        if decode(rest[:-1]) is not None:  # a whole line and one more byte: the line ending was changed
            message = "damaged: expected a line ending after the entry"
            raise FormatError(self.path, line + len(lines), message)
        return entries, size - len(rest)

    def _bytes(self, start: int, end: int) -> bytes:
        parts, position = [], start
        while position < end and (part := os.pread(self.descriptor, end - position, position)):
            parts.append(part)
            position += len(part)
        return b"".join(parts)

    def append(self, entries: Sequence[Entry], end: int) -> int:
        """Write entries at byte `end`, where the last whole line ends; returns the new end, once on disk.

        If the disk is full, the file is as before and the error is raised.
        """
        data = b"".join(map(encode, entries))
        if os.fstat(self.descriptor).st_size > end:
            os.ftruncate(self.descriptor, end)  # an incomplete line that a crash left
        rest = memoryview(data)
        try:
            while rest:  # one write, unless the system takes only a part of it
                rest = rest[os.write(self.descriptor, rest) :]
            os.fsync(self.descriptor)
        except OSError:
            os.ftruncate(self.descriptor, end)
            raise
        return end + len(data)


@contextmanager
def open_log(path: Path, *, write: bool = False) -> Iterator[OpenLog]:
    """Open a log for reading, shared with other readers, or for writing, alone; a writer creates the file."""
    new = write and not path.exists()
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT if write else os.O_RDONLY
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
        if new:
            flush_folder(path.parent)
        yield OpenLog(path, descriptor)
    finally:
        os.close(descriptor)  # also releases the lock
