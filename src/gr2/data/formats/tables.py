"""TSV and CSV files → numbered rows of cells, or records by the names in the header.

A file named .csv (or .csv.gz) has comma-separated values with optional double quotes, as in RFC 4180: a
quoted cell may contain commas, line breaks and doubled quotes. Any other table has tabs and no quotes. A row
is named by the line it begins in.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gr2.data.formats.lines import Report, every_line, kind, refuse, text_lines

CSV = ".csv"
LONGEST_CELL = 1 << 24
"""Characters of a CSV cell; a quote that is never closed is noticed after these, at the latest."""
FOREIGN = {";": "semicolons", "\t": "tabs", "|": "bars"}
Rows = Iterator[tuple[int, list[str]]]


def rows(path: Path, report: Report = refuse) -> Rows:
    """Yield the line number and the cells of each row that is not blank."""
    if kind(path) == CSV:
        return _csv_rows(path, report)
    return ((line, text.split("\t")) for line, text in text_lines(path, report))


def table(
    path: Path,
    report: Report = refuse,
    *,
    needs: Mapping[str, Sequence[str]] | Sequence[str] = (),
    option: str = "",
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line number and the cells of each row by the names in the header, the first row.

    A header without what is needed is reported, and then nothing can be read: columns, or fields with the
    names that the column of each may have. `option` takes other names, for the message.
    """
    usual = needs if isinstance(needs, Mapping) else {name: (name,) for name in needs}
    header: list[str] = []
    for line, cells in rows(path, report):
        if not header:
            header = cells
            if len(set(header)) < len(header):
                report(path, line, f"expected a header of distinct column names, found {header}")
                return
            if problem := missing_column(header, usual, option):
                report(path, line, problem)
                return
        elif len(cells) != len(header):
            report(path, line, f"expected {len(header)} columns as in the header, found {len(cells)}")
        else:
            yield line, dict(zip(header, cells, strict=True))


def missing_column(
    found: Sequence[str], needs: Mapping[str, Sequence[str]], option: str = "", kind: str = "column"
) -> str:
    """The first field that has no column under any of its names, in words; empty if there is none."""
    for field, names in needs.items():
        if not set(names) & set(found):
            usual = " or ".join(names)
            wanted = f"a {kind} {field}" if usual == field else f"a {kind} for {field} ({usual})"
            hint = f"; say which one it is with {option} {field} NAME" if option else ""
            return f"expected {wanted}; found {', '.join(found)[:80]}{hint}"
    return ""


def _csv_rows(path: Path, report: Report) -> Rows:
    csv.field_size_limit(LONGEST_CELL)  # Python's own limit is shorter than many documents
    reader = csv.reader(_decoded(path, report), strict=True)
    line, first = 1, True
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            report(path, line, _explained(str(error)))
            return
        if cells is None:
            return
        if not cells or not any(map(str.strip, cells)) and len(cells) == 1:
            continue  # a blank line
        if first and len(cells) == 1 and (found := next((c for c in FOREIGN if c in cells[0]), None)):
            report(path, line, f"expected columns separated by commas, found {FOREIGN[found]}")
            return
        first = False
        yield line, cells


def _decoded(path: Path, report: Report) -> Iterator[str]:
    """All lines, also blank ones, with their endings; what is not UTF-8 is reported and left out."""
    for number, line in every_line(path, report):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            report(path, number, f"expected UTF-8: {error.reason} at byte {error.start + 1} of the line")
            text = "\n"  # keeps the count of lines
        yield text


def _explained(error: str) -> str:
    if error == "unexpected end of data" or "field larger than" in error:
        return "expected comma-separated values: a quote that opens in this row is never closed"
    if "expected after" in error:
        return "expected comma-separated values: a quote inside a quoted cell must be doubled"
    return f"expected comma-separated values: {error}"
