"""Wikitext → sections, links and plain text.

Everything but running text is removed in the order in which MediaWiki parses a page: comments and raw tags,
then (nested) templates; then the page is split into sections, and tables, images and other markup are removed
from each. A placeholder marks where a template was, so that the templates of a section can be restored: lists
of links are often written inside one. Unclosed markup is text, as in MediaWiki. Every step is linear in the
length of the page.
"""

import html
import re
from collections.abc import Iterator, Set
from functools import cache
from typing import NamedTuple

UNSEEN = frozenset({"file", "image", "category", "media"})
"""Prefixes of links that show no text, in lower case; wikis in other languages add their own."""
MARK = "\x7f"
"""Placeholder for a removed template: a control character, invisible if a page contains it anyway."""

_RAW_TAGS = (
    "math|chem|ce|gallery|timeline|syntaxhighlight|source|score|hiero|graph|imagemap|templatedata|mapframe|"
    "maplink|inputbox|section|templatestyles|includeonly|categorytree"
)
_OPENING = re.compile(rf"<(?:(!--)|(nowiki|pre|ref|references|{_RAW_TAGS})\b[^<>]*(>))", re.I)
_BRACES = re.compile(r"\{\{+|\}\}+")
_HEADING = re.compile(r"^(={1,6})(.+?)(={1,6})[ \t\x7f]*$", re.M)
_TABLE = re.compile(r"^[ \t:\x7f]*(\{\|)|^[ \t]*(\|\})|(<table\b[^<>]*>)|(</table\s*>)", re.M | re.I)
_BRACKETS = re.compile(r"\[\[|\]\]")
_LINK = re.compile(r"\[\[([^\[\]|{}<>\n]+)(?:\|([^\[\]]*(?:\[[^\[\]]+\][^\[\]]*)*))?\]\]")
_ANNOTATED = re.compile(
    r"\{\{\s*(?:template:)?annotated[ _]link\s*\|\s*([^\[\]|{}<>\n]+)(?:\|[^{}]*)?\}\}", re.I
)
_LANGUAGE = re.compile(r"\s*[a-z]{2,3}(?:-[a-z]+)*:")
_EXTERNAL = re.compile(r"\[(?:[a-z]{3,6}:)?//[^\s\[\]]*+[ \t]*+([^\[\]\n]*)\]", re.I)
_ADDRESS = re.compile(r"\b(?:https?|ftp)://[^\s<>\[\]]+", re.I)
_QUOTES = re.compile(r"'{2,}")
_BREAK = re.compile(
    r"<(?:br|hr)\b[^<>]*>|</?(?:p|div|blockquote|center|poem|li|ul|ol|dl|dd|dt|tr|h\d)\b[^<>]*>", re.I
)
_TAG = re.compile(r"</?[a-z][^<>]*>", re.I)
_SWITCH = re.compile(r"__[A-Z]{3,}__")
_LINE_START = re.compile(r"^(?:[*#:;]+|-{4,})[ \t]*", re.M)
_HOLLOW = re.compile(r"\((?: |[,;:/–-])*\)|\[ ?\]")
_FIRST_IN_BRACKETS = re.compile(r"\((?: ?[,;:])+ ?|\( ")
_BEFORE_STOP = re.compile(r"(?: |, ?)(?=[,;.)](?: |$))")
_MARKUP = re.compile(r"[^\w ,.:–-]")
_ESCAPES = {ord(character): f"&#{ord(character)};" for character in "[]{}|'=*#:;<>_-~\n"}


class Wikilink(NamedTuple):
    """A link inside the wiki, as written."""

    target: str
    anchor: str


class Section(NamedTuple):
    """A part of a page between two headings; the first, the lead, has level 0 and no heading."""

    level: int
    title: str
    body: str
    """Wikitext with a placeholder for each template."""
    templates: tuple[str, ...]
    """The templates, in the order of their placeholders."""

    @property
    def whole(self) -> str:
        """The body with its templates."""
        rest = iter(self.templates)
        return re.sub(MARK, lambda _: next(rest, ""), self.body)


def sections(wikitext: str, *, references: bool = False) -> list[Section]:
    """The lead and the sections of a page, without comments and, by default, without references."""
    body, templates = _without_templates(_without_raw(wikitext.replace(MARK, ""), references=references))
    found: list[Section] = []
    level, title, start, used = 0, "", 0, 0
    for heading in [*_HEADING.finditer(body), None]:
        text = body[start : heading.start() if heading else len(body)]
        count = text.count(MARK)
        found.append(Section(level, title, text, tuple(templates[used : used + count])))
        if heading:
            used += count + heading[0].count(MARK)
            level = min(len(heading[1]), len(heading[3]))
            title, start = inline(_shorter(heading, level)), heading.end()
    return found


def links(wikitext: str, *, unseen: Set[str] = UNSEEN) -> list[Wikilink]:
    """The links in running text: none in templates, tables, references or images, and no categories.

    >>> links("An [[apple]]s, [[Pear|pears]] {{x|[[No]]}} [[File:a.png|thumb|a [[no]]]] [[Category:No]]")
    [Wikilink(target='apple', anchor='apple'), Wikilink(target='Pear', anchor='pears')]
    """
    body, _ = _without_templates(_without_raw(wikitext))
    return section_links(body, unseen)


def section_links(body: str, unseen: Set[str] = UNSEEN) -> list[Wikilink]:
    """The links in the running text of a section's body."""
    return _written(_without_images(_without_tables(body), unseen))


def _written(text: str) -> list[Wikilink]:
    found = ((target.strip(), anchor.strip()) for target, anchor in _LINK.findall(text))
    return [Wikilink(target, anchor or target) for target, anchor in found]


def all_links(section: Section, unseen: Set[str] = UNSEEN) -> list[Wikilink]:
    """Every link of a section, also inside templates and tables: for lists of links.

    >>> all_links(sections("{{annotated link|Apple|Apples}} {{columns|[[Pear]]}}")[0])
    [Wikilink(target='Apple', anchor='Apple'), Wikilink(target='Pear', anchor='Pear')]
    """
    return _written(_without_images(_ANNOTATED.sub(r"[[\1]]", section.whole), unseen))


def plain(wikitext: str, *, unseen: Set[str] = UNSEEN) -> str:
    """A page as text: paragraphs with a blank line between them, headings and list items on their own lines.

    >>> plain("'''Ann''' ({{lang|x}}; born 1900)<ref>No</ref> was a [[poet]].")
    'Ann (born 1900) was a poet.'
    """
    return "\n\n".join(text for text in plain_sections(sections(wikitext), unseen) if text)


def plain_sections(parts: list[Section], unseen: Set[str] = UNSEEN) -> Iterator[str]:
    """Yield the text of each section below its heading; an empty string for a section without text."""
    for part in parts:
        text = plain_body(part.body, unseen)
        yield f"{part.title}\n\n{text}" if part.title and text else text


def plain_body(body: str, unseen: Set[str] = UNSEEN) -> str:
    """The text of a section's body."""

    def shown(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2]
        if anchor is None and _LANGUAGE.match(target):
            return ""
        return anchor or target.removeprefix(":")

    text = _without_images(_without_tables(body), unseen)
    text = _LINK.sub(shown, text).replace(MARK, "")
    text = _ADDRESS.sub("", _EXTERNAL.sub(r"\1", text))
    text = _TAG.sub("", _BREAK.sub("\n", _QUOTES.sub("", text)))
    text = _LINE_START.sub("\n", _SWITCH.sub("", text))
    text = html.unescape(text) if "&" in text else text
    return _tidy(text)


def inline(wikitext: str) -> str:
    """A heading or other short wikitext as one line of plain text."""
    if not _MARKUP.search(wikitext):
        return " ".join(wikitext.split())
    return " ".join(plain_body(wikitext).split())


def _tidy(text: str) -> str:
    """Normalise white space and remove the traces of what was cut out of a sentence."""
    paragraphs: list[list[str]] = [[]]
    for line in text.split("\n"):
        if any(map(str.isalnum, line)):
            paragraphs[-1] += line.split()
        elif paragraphs[-1]:
            paragraphs.append([])
    return "\n\n".join(_mended(" ".join(words)) for words in paragraphs if words)


def _mended(paragraph: str) -> str:
    for _ in range(2):  # removing empty brackets may leave others empty
        paragraph = _HOLLOW.sub("", paragraph)
    paragraph = _BEFORE_STOP.sub("", _FIRST_IN_BRACKETS.sub("(", paragraph))
    return " ".join(paragraph.split())


def _shorter(heading: re.Match[str], level: int) -> str:
    """The text of a heading; with unequal runs of `=`, the surplus ones belong to the text."""
    return "=" * (len(heading[1]) - level) + heading[2] + "=" * (len(heading[3]) - level)


def _without_raw(text: str, *, references: bool = False) -> str:
    """Drop comments and tags whose content is not wikitext; the content of `nowiki` is kept as shown."""
    pieces: list[str] = []
    position = 0
    absent: set[str] = set()  # tags without another closing tag, so that it is searched for only once
    for tag in _OPENING.finditer(text):
        name = "" if tag[1] else tag[2].lower()
        if tag.start() < position or name in absent or (references and name in ("ref", "references")):
            continue
        begin = end = tag.end()
        if tag[1] or text[begin - 2] != "/":
            close = _closing(name).search(text, begin)
            if close is None and name:
                absent.add(name)
                continue
            begin, end = (close.start(), close.end()) if close else (len(text), len(text))
        pieces.append(text[position : tag.start()])
        if name in ("nowiki", "pre"):
            pieces.append(text[tag.end() : begin].translate(_ESCAPES))
        position = end
    return "".join((*pieces, text[position:])) if pieces else text


@cache
def _closing(name: str) -> re.Pattern[str]:
    """The end of a raw tag, or of a comment (which has no name)."""
    return re.compile(rf"</(?i:{name})\s*>" if name else "-->")


def _without_templates(text: str) -> tuple[str, list[str]]:
    """Replace every outermost `{{...}}` by a placeholder; also returns the templates."""
    spans: list[tuple[int, int]] = []
    open_runs: list[list[int]] = []  # [start, braces left] of each run of braces not yet closed
    for run in _BRACES.finditer(text):
        start, end = run.span()
        if text[start] == "{":
            open_runs.append([start, end - start])
            continue
        while open_runs and end - start >= 2:
            top = open_runs[-1]
            closed = 3 if min(top[1], end - start) >= 3 else 2
            top[1] -= closed
            start += closed
            begin = top[0] + top[1]
            while spans and spans[-1][0] > begin:
                spans.pop()
            spans.append((begin, start))
            if top[1] < 2:
                open_runs.pop()
    pieces: list[str] = []
    position = 0
    for begin, end in spans:
        pieces += (text[position:begin], MARK)
        position = end
    return "".join((*pieces, text[position:])), [text[begin:end] for begin, end in spans]


def _without_tables(text: str) -> str:
    """Drop tables, nested ones too; an unclosed one ends with its paragraph."""
    if "{|" not in text and "<table" not in text and "<TABLE" not in text:
        return text
    pieces: list[str] = []
    position, depth, begin = 0, 0, 0
    for token in _TABLE.finditer(text):
        if token[1] or token[3]:
            begin = begin if depth else token.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                pieces.append(text[position:begin])
                position = token.end()
    if depth:
        pieces.append(text[position:begin])
        end = text.find("\n\n", begin)
        position = len(text) if end < 0 else end
    return "".join((*pieces, text[position:]))


def _without_images(text: str, unseen: Set[str]) -> str:
    """Drop links that show no text, with everything nested in them, such as an image's caption."""
    prefix = _unseen_start(frozenset(unseen))
    if not prefix.search(text):
        return text
    spans: list[tuple[int, int]] = []
    opened: list[int] = []
    for bracket in _BRACKETS.finditer(text):
        if bracket[0] == "[[":
            opened.append(bracket.start())
        elif opened and prefix.match(text, begin := opened.pop()):
            while spans and spans[-1][0] > begin:
                spans.pop()
            end = bracket.end()  # [[File:a|[http://b c]]]: the first of the three closes the inner link
            spans.append((begin, end + (text[end : end + 1] == "]" and text.find("[", begin + 2, end) > 0)))
    pieces: list[str] = []
    position = 0
    for begin, end in spans:
        pieces.append(text[position:begin])
        position = end
    return "".join((*pieces, text[position:]))


@cache
def _unseen_start(unseen: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"\[\[\s*(?i:{'|'.join(map(re.escape, sorted(unseen)))})\s*:")
