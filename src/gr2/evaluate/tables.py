"""Rows of figures → text, Markdown or CSV; and a comparison of systems as such rows.

A cell shows the mean and the letters of the systems that this one significantly outperforms.
"""

import csv
import io
from collections.abc import Sequence
from typing import Literal

from gr2.evaluate.significance import Comparison

Format = Literal["text", "markdown", "csv"]
Row = Sequence[str]


def render(header: Row, rows: Sequence[Row], style: Format = "text") -> str:
    """Format rows as a table; in text and Markdown, columns that contain numbers are right-aligned.

    >>> print(render(["system", "P@20"], [["bm25", ".178"], ["dense", ".2"]]))
    system  P@20
    bm25    .178
    dense     .2
    """
    if style == "csv":
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([header, *rows])
        return buffer.getvalue().rstrip("\n")
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    words = [not any(is_figure(row[i]) for row in rows) for i in range(len(header))]

    def line(cells: Row) -> list[str]:
        aligned = zip(cells, widths, words, strict=True)
        return [cell.ljust(width) if word else cell.rjust(width) for cell, width, word in aligned]

    if style == "markdown":
        rule = [
            "-" * width if word else "-" * (width - 1) + ":"
            for width, word in zip(widths, words, strict=True)
        ]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in [line(header), rule, *map(line, rows)])
    return "\n".join("  ".join(line(cells)).rstrip() for cells in [header, *rows])


def comparison_table(comparison: Comparison, style: Format = "text") -> str:
    """Systems in rows, measures in columns, significance as letters behind the figure."""
    measures = list(comparison.evaluations[0].values)
    marks = {(e.name, m): comparison.beaten(e.name, m) for e in comparison.evaluations for m in measures}
    widest = {m: max(len(marks[e.name, m]) for e in comparison.evaluations) for m in measures}
    rows = []
    for evaluation in comparison.evaluations:
        figures = []
        for measure in measures:
            mark = marks[evaluation.name, measure]
            figure = f"{evaluation.means[measure]:.4f}"
            # In text the letters are padded to the same width, so that the figures stay aligned.
            figures.append(f"{figure}{_mark(mark, style):<{widest[measure] if style == 'text' else 0}}")
        rows.append([comparison.letter(evaluation.name), evaluation.name, *figures])
    return render(["", "system", *measures], rows, style)


def _mark(letters: str, style: Format) -> str:
    if not letters or style == "text":
        return letters
    return f"<sup>{letters}</sup>" if style == "markdown" else f" {letters}"


def is_figure(cell: str) -> bool:
    """Whether a cell begins like a number."""
    return cell.lstrip("-+.")[:1].isdigit()
