"""Text files, plain or gzipped → numbered lines; and `FormatError`, the error of every reader.

An error names the file, the line and what was expected. A reader passes each problem to a `Report` callback:
`refuse`, the default, raises it; `gr2 collection check` collects them all.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

Text = TypeVar("Text", str, bytes)
UTF8_BOM = b"\xef\xbb\xbf"
LINE_BYTES = 8 << 20
"""Maximum bytes of a line, and of a file that is read whole. Read as JSON, a line can take 25 times as much
memory, and a small gzip file can hold gigabytes without a line ending."""


class FormatError(ValueError):
    """A file does not follow its format."""

    def __init__(self, path: Path, line: int, message: str) -> None:
        """Name the file, the line (0 if the error is in no single line) and what was expected."""
        super().__init__(f"{path}:{line}: {message}" if line else f"{path}: {message}")
        self.path, self.line, self.message = path, line, message


Report = Callable[[Path, int, str], None]


def refuse(path: Path, line: int, message: str) -> None:
    """The default report: raise the first problem."""
    raise FormatError(path, line, message)


class Problems:
    """A report that keeps the first problems and counts all, to name many at once."""

    def __init__(self, most: int) -> None:
        """Keep up to `most` problems."""
        self.most, self.count, self.kept = most, 0, list[str]()

    def __call__(self, path: Path, line: int, message: str) -> None:
        """Keep or count a problem."""
        self.count += 1
        if len(self.kept) < self.most:
            self.kept.append(str(FormatError(path, line, message)))

    def __str__(self) -> str:
        """How many there are, as the last line after those that are kept."""
        hidden = self.count - len(self.kept)
        return f"{self.count:,} problem{'s' * (self.count != 1)}" + (
            f", {hidden:,} of them not shown" if hidden else ""
        )


def numbered_lines(path: Path, report: Report = refuse) -> Iterator[tuple[int, bytes]]:
    """Yield the number (from 1) and content of each line that is not blank, without the line ending."""
    for number, line in every_line(path, report):
        content = line.rstrip(b"\r\n")
        if content.strip():
            yield number, content


def every_line(path: Path, report: Report = refuse) -> Iterator[tuple[int, bytes]]:
    """Yield the number (from 1) and content of every line, with its ending and without a byte-order mark."""
    number = 0
    try:
        with _open(path) as stream:
            for number, line in enumerate(iter(lambda: stream.readline(LINE_BYTES + 1), b""), start=1):
                if len(line) > LINE_BYTES:
                    report(path, number, f"expected a line of at most {LINE_BYTES:,} bytes")
                    return
                yield number, line.removeprefix(UTF8_BOM) if number == 1 else line
    except EOFError:
        report(path, number + 1, "the gzip file ends too early: it is truncated")
    except (gzip.BadGzipFile, zlib.error) as error:
        report(path, number + 1, f"expected a valid gzip file: {error}")


def small(
    path: Path, lines: Iterable[tuple[int, Text]], report: Report = refuse
) -> Iterator[tuple[int, Text]]:
    """The lines of a file that is read whole; they end with a report if the file is too large for that."""
    size = 0
    for number, line in lines:
        size += len(line) + 1
        if size > LINE_BYTES:
            report(path, number, f"expected a file of at most {LINE_BYTES:,} bytes")
            return
        yield number, line


def text_lines(path: Path, report: Report = refuse) -> Iterator[tuple[int, str]]:
    """Like `numbered_lines`, decoded; a line that is not UTF-8 is reported and skipped."""
    for number, line in numbered_lines(path, report):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"expected UTF-8: {error.reason} at byte {error.start + 1} of the line"
            report(path, number, message)
        else:
            yield number, text


def is_key(text: str) -> bool:
    """Whether a docno or qid fits every format: not empty, no white space, no control characters."""
    return bool(text) and text.isprintable() and " " not in text


def find(folder: Path, *names: str) -> Path | None:
    """The one of these files in the folder, plain or .gz; None if there is none, an error if several."""
    found = [folder / (name + end) for name in names for end in ("", ".gz")]
    found = [path for path in found if path.is_file()]
    if len(found) > 1:
        raise FormatError(folder, 0, f"expected one of {', '.join(path.name for path in found)}, not several")
    return found[0] if found else None


def kind(path: Path) -> str:
    """A file's extension, ignoring .gz: `.jsonl` for `corpus.jsonl.gz`."""
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


class _Unzipped(gzip.GzipFile):
    """A gzip file that returns all readable data before it raises that it is truncated or corrupt."""

    def readinto(self, buffer: Any) -> int:
        """Fill part of the buffer; GzipFile's own method fills all of it or loses the data."""
        data = self.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _open(path: Path) -> BinaryIO:
    if not path.is_file():
        raise FormatError(path, 0, "no such file")
    if path.suffix != ".gz":
        return path.open("rb", buffering=1 << 20)
    if path.stat().st_size == 0:
        raise EOFError  # GzipFile would read it as an empty text
    return io.BufferedReader(_Unzipped(path), 1 << 20)
