"""Sections of a report → one self-contained HTML page, and the same as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from gr2.evaluate.tables import is_figure, render

STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --page: #fff; --quiet: #60646c; --line: #d9d9e0;
  --0: #0b68cb; --1: #c2410c; --2: #15803d; --3: #7e22ce; --4: #a16207; --5: #64748b; }
@media (prefers-color-scheme: dark) { :root { --text: #edeef0; --page: #111113; --quiet: #b0b4ba;
  --line: #363a3f; --0: #70b8ff; --1: #ffa057; --2: #3dd68c; --3: #d19dff; --4: #f5e147; --5: #b0b4ba; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); margin: 0 auto;
  max-width: 60rem; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p, figcaption { max-width: 44rem; } figcaption, .note { color: var(--quiet); font-size: .9rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, .word { text-align: left; }
svg { width: 100%; max-width: 40rem; font: 11px system-ui, sans-serif; } svg text { fill: var(--text); }
.axis { stroke: var(--quiet); fill: none; } .grid { stroke: var(--line); }
.mid, .side { text-anchor: middle; } .end { text-anchor: end; } polyline { stroke-width: 2; }
""" + "".join(f".c{n} {{ stroke: var(--{n}); }} .d{n}, .b{n} {{ fill: var(--{n}); }}\n" for n in range(6))


@dataclass(frozen=True)
class Table:
    """A header and rows of text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """An SVG and its caption."""

    svg: str
    caption: str


Part = str | Table | Picture
"""A paragraph, a table or a picture."""


@dataclass(frozen=True)
class Section:
    """A heading and its content."""

    title: str
    parts: Sequence[Part]


def as_html(title: str, sections: Sequence[Section]) -> str:
    """The report as an HTML page."""
    body = "".join(
        f"<section><h2>{escape(section.title)}</h2>{''.join(map(_html, section.parts))}</section>\n"
        for section in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n{body}</main></body></html>\n"
    )


def as_markdown(title: str, sections: Sequence[Section]) -> str:
    """The report as Markdown; pictures are replaced by their captions."""
    blocks = [f"# {title}"]
    for section in sections:
        blocks.append(f"## {section.title}")
        blocks += [_markdown(part) for part in section.parts]
    return "\n\n".join(blocks) + "\n"


def _html(part: Part) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Picture):
        return f"<figure>{part.svg}<figcaption>{escape(part.caption)}</figcaption></figure>"
    columns = range(len(part.header))
    words = [not all(is_figure(row[i]) or not row[i] for row in part.rows) for i in columns]

    def line(cells: Sequence[str], tag: str) -> str:
        marks = [' class="word"' if word else "" for word in words]
        return "<tr>" + "".join(
            f"<{tag}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(cells, marks, strict=True)
        ) + "</tr>"  # fmt: skip

    rows = "".join(line(row, "td") for row in part.rows)
    head = f"<thead>{line(part.header, 'th')}</thead>"
    return f'<div class="wide"><table>{head}<tbody>{rows}</tbody></table></div>'


def _markdown(part: Part) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Picture):
        return f"*{part.caption} (See the chart in report.html.)*"
    safe = [[cell.replace("|", "\\|") for cell in row] for row in part.rows]
    return render(list(part.header), safe, "markdown")
