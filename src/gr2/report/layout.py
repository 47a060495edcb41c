"""Sections of a report → one self-contained HTML page, and the same as Markdown."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from gr2.data.documents import Snippet
from gr2.evaluate.tables import is_figure, render

STYLE = Path(__file__).with_name("style.css")
COLOURS = 6
"""Colours of curves and bars, `--0` and so on in the style sheet."""
LONG = 40
"""Characters from which the cells of a column are wrapped."""
_FIRST = ' class="first"'
WEB = re.compile(r"https?://\S+", re.IGNORECASE)


@dataclass(frozen=True)
class Table:
    """A header and rows of text, behind a line that opens it."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = "All figures"


@dataclass(frozen=True)
class Picture:
    """An SVG and its caption."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True)
class Entry:
    """A document in a list."""

    grade: int
    title: str
    url: str
    snippet: Snippet
    note: str


@dataclass(frozen=True)
class Card:
    """A query, and lists of documents side by side, each with a heading."""

    query: str
    note: str
    columns: Sequence[tuple[str, Sequence[Entry]]]


@dataclass(frozen=True)
class Cards:
    """Queries under a heading."""

    title: str
    cards: Sequence[Card]


Part = str | Table | Picture | Points | Cards
"""A paragraph, or one of the above."""


@dataclass(frozen=True)
class Section:
    """A heading and its content."""

    title: str
    parts: Sequence[Part]


def as_html(title: str, sections: Sequence[Section]) -> str:
    """The report as an HTML page; the first section is its summary, after which the others are listed."""
    blocks = [
        f'<section id="s{number}"{_FIRST if not number else ""}><h2>{escape(section.title)}</h2>'
        f"{''.join(map(_html, section.parts))}</section>\n"
        for number, section in enumerate(sections)
    ]
    links = "".join(
        f'<li><a href="#s{number}">{escape(section.title)}</a></li>'
        for number, section in enumerate(sections)
        if number
    )
    contents = f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n' if links else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_style()}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n{''.join(blocks[:1])}{contents}{''.join(blocks[1:])}"
        "</main></body></html>\n"
    )


def as_markdown(title: str, sections: Sequence[Section]) -> str:
    """The report as Markdown; pictures are replaced by their captions."""
    blocks = [f"# {title}"]
    for section in sections:
        blocks.append(f"## {section.title}")
        blocks += [_markdown(part) for part in section.parts]
    return "\n\n".join(blocks) + "\n"


def _style() -> str:
    kinds = (
        f".c{n} {{ stroke: var(--{n}); }} .d{n}, .b{n} {{ fill: var(--{n}); }}\n" for n in range(COLOURS)
    )
    return STYLE.read_text(encoding="utf-8") + "".join(kinds)


def _html(part: Part) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Picture):
        return f"<figure>{part.svg}<figcaption>{escape(part.caption)}</figcaption></figure>"
    if isinstance(part, Points):
        return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in part.items)}</ul>"
    if isinstance(part, Cards):
        return f"<h3>{escape(part.title)}</h3>{''.join(map(_card, part.cards))}"
    return _table(part)


def _table(table: Table) -> str:
    columns = range(len(table.header))
    words = [not all(is_figure(row[i]) or not row[i] for row in table.rows) for i in columns]
    long = [any(len(row[i]) > LONG for row in table.rows) for i in columns]

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = [" ".join(["word"] * word + ["long"] * wrap) for word, wrap in zip(words, long, strict=True)]
        marks = [f' class="{kind}"' if kind else "" for kind in kinds]
        return "<tr>" + "".join(
            f"<{tag}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(cells, marks, strict=True)
        ) + "</tr>"  # fmt: skip

    rows = "".join(line(row, "td") for row in table.rows)
    head = f"<thead>{line(table.header, 'th')}</thead>"
    title = escape(table.title, quote=True)
    return (
        f'<details><summary>{title}</summary><div class="wide" role="group" tabindex="0" '
        f'aria-label="{title}"><table>{head}<tbody>{rows}</tbody></table></div></details>'
    )


def _card(card: Card) -> str:
    columns = "".join(
        f'<div><p class="label">{escape(name)}</p><ol>{"".join(map(_entry, entries))}</ol></div>'
        for name, entries in card.columns
    )
    return (
        f'<article class="card"><h4>{escape(card.query)}</h4><p class="note">{escape(card.note)}</p>'
        f'<div class="columns">{columns}</div></article>'
    )


def _entry(entry: Entry) -> str:
    title = escape(entry.title)
    if WEB.fullmatch(entry.url):
        title = f'<a href="{escape(entry.url, quote=True)}" rel="noreferrer noopener">{title}</a>'
    good = " good" if entry.grade > 0 else ""
    text = "".join(f"<mark>{escape(a)}</mark>" if mark else escape(a) for a, mark in entry.snippet)
    return (
        f'<li><span class="grade{good}">{entry.grade}</span>{title}<p>{text}</p>'
        f'<p class="note">{escape(entry.note)}</p></li>'
    )


def _markdown(part: Part) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Picture):
        return f"*{part.caption} (See the chart in report.html.)*"
    if isinstance(part, Points):
        return "\n".join(f"- {item}" for item in part.items)
    if isinstance(part, Cards):
        return "\n\n".join([f"### {part.title}", *map(_card_as_markdown, part.cards)])
    safe = [[cell.replace("|", "\\|") for cell in row] for row in part.rows]
    return f"{part.title}:\n\n{render(list(part.header), safe, 'markdown')}"


def _card_as_markdown(card: Card) -> str:
    found = [f"- **{card.query}** ({card.note})"]
    for name, entries in card.columns:
        found.append(f"  - {name}")
        found += [f"    - [{entry.grade}] {entry.title} ({entry.note})" for entry in entries]
    return "\n".join(found)
