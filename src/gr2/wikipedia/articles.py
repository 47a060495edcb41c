"""A page of a dump → is it an article, what does it say, and what does it link to on which grade.

- grade 3: links of the See-also section; of a page without one, links of the References section
- grade 2: links of the first section
- grade 1: links of all other sections

On grade 3 every link counts that is written in the section, also inside a template or table, since that is
how long lists are set in columns. On grades 2 and 1 only links of running text do: an infobox, a table, a
reference or a caption is no section's text. This file knows no other page: whether a target exists is asked
elsewhere.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from gr2.links import FIRST_SECTION, OTHER_SECTIONS, SEE_ALSO, GradeConfig
from gr2.wikipedia.dump import Page, Site
from gr2.wikipedia.markup import Section, Wikilink, all_links, plain_sections, section_links, sections
from gr2.wikipedia.titles import normal

_REDIRECT = re.compile(r"\s*#\s*redirect(?:ion)?\s*:?\s*\[\[([^\[\]|\n]+)", re.I)


@dataclass(frozen=True, kw_only=True)
class WikipediaConfig(GradeConfig):
    """What is made of a dump. The names of templates, sections and lists are those of English Wikipedia."""

    words: int = 384
    """Words at which an article's text is cut (its abstract comes first); 0 keeps all of it."""
    limit: int | None = None
    """Read no more than the first so many articles, for a trial; links to others are lost."""
    sample: int | None = None
    """How many articles ask, drawn by the seed; None: all. The documents are they and what they link to."""
    truncated: bool = False
    """Take a dump that ends too early as far as it goes."""
    see_also: tuple[str, ...] = ("see also",)
    """Headings of the section whose links have grade 3, in lower case."""
    references: tuple[str, ...] = (
        "references",
        "reference",
        "notes and references",
        "references and notes",
        "references and sources",
        "sources and references",
        "references and further reading",
    )
    """Headings of the section that takes its place on pages without one."""
    disambiguation: tuple[str, ...] = (
        "dab",
        "disamb",
        "geodis",
        "hndis",
        "hospitaldis",
        "mathdab",
        "mil-unit-dis",
        "numberdis",
        "roaddis",
        "schooldis",
        "setindex",
        "set index article",
        "sia",
    )
    """Templates that mark a page as no article; also every `... disambig` and `... disambiguation`."""
    lists: tuple[str, ...] = ("List of ", "Lists of ")
    """How the titles of list pages begin."""

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        super().__post_init__()
        if self.words < 0 or min(self.limit or 1, self.sample or 1) < 1 or 0 in (self.limit, self.sample):
            raise ValueError("words is at least 0, limit and sample at least 1 (or none)")


class Article(NamedTuple):
    """What is kept of a page."""

    abstract: str
    """The text of the first section."""
    text: str
    """Of all sections, cut."""
    linked: dict[int, list[str]]
    """grade → titles as they are linked to, normalised."""
    see_also: bool
    """Whether it has a See-also section."""


def redirect_of(page: Page) -> str:
    """The title that a page leads to; empty if it is no redirect."""
    if page.redirect:
        return page.redirect
    found = _REDIRECT.match(page.text)
    return found[1] if found else ""


def is_article(page: Page, config: WikipediaConfig) -> bool:
    """Whether a page is an article: not of another namespace, a redirect, a list or a disambiguation."""
    return (
        page.namespace == 0
        and not redirect_of(page)
        and bool(page.text.strip())
        and not page.title.startswith(config.lists)
        and not page.title.endswith("(disambiguation)")
        and not _disambiguates(config.disambiguation).search(page.text)
    )


@cache
def _disambiguates(names: Sequence[str]) -> re.Pattern[str]:
    known = "|".join(re.escape(name).replace(r"\ ", "[ _]") for name in names)
    general = r"(?:[\w –-]{1,40}[ _-])?(?:hn)?disambig(?:uation)?(?:[ _](?:page|cleanup))?"
    return re.compile(rf"\{{\{{\s*(?:template:)?(?:{general}|{known})\s*(?:\||\}}\}})|__DISAMBIG__", re.I)


def read_article(page: Page, site: Site, config: WikipediaConfig, *, links: bool = True) -> Article:
    """Read an article; without `links` only its texts, which is faster."""
    parts = sections(page.text)
    abstract, text = _texts(parts, site, config.words)
    if not links:
        return Article(abstract, text, {}, see_also=False)
    unseen = site.unseen
    roles = list(_roles(parts, config.see_also))
    see_also = any(roles)
    related = _listed(parts, roles, unseen)
    if not see_also and any(_roles(parts, config.references)):
        whole = sections(page.text, references=True)  # what is written in <ref> in that section counts here
        related = _listed(whole, _roles(whole, config.references), unseen)
        roles = list(_roles(parts, config.references))
    others = [part.body for part, role in zip(parts[1:], roles[1:], strict=True) if not role]
    running = (link for body in others for link in section_links(body, unseen))
    linked = {
        SEE_ALSO: _titles(related, site),
        FIRST_SECTION: _titles(section_links(parts[0].body, unseen), site),
        OTHER_SECTIONS: _titles(running, site),
    }
    return Article(abstract, text, linked, see_also)


def _listed(parts: list[Section], roles: Iterable[bool], unseen: frozenset[str]) -> list[Wikilink]:
    """Every link of the sections that have the role."""
    chosen = (part for part, role in zip(parts, roles, strict=True) if role)
    return [link for part in chosen for link in all_links(part, unseen)]


def _roles(parts: list[Section], headings: Sequence[str]) -> Iterator[bool]:
    """Whether each section has one of these headings, or is below one that has."""
    level = 0
    for part in parts:
        if level and part.level > level:
            yield True
            continue
        level = part.level if part.title.rstrip(" :.").lower() in headings else 0
        yield bool(level)


def _titles(links: Iterable[Wikilink], site: Site) -> list[str]:
    return [title for link in links if (title := normal(link.target, first_letter=site.first_letter))]


def _texts(parts: list[Section], site: Site, most: int) -> tuple[str, str]:
    """The abstract, and the text up to a number of words; sections behind that are not even read."""
    texts = plain_sections(parts, site.unseen)
    abstract = next(texts, "")
    kept = [abstract] if abstract else []
    count = len(abstract.split())
    while (not most or count < most) and (text := next(texts, None)) is not None:
        count += len(text.split())
        kept += [text] if text else []
    return abstract, _cut("\n\n".join(kept), most)


def _cut(text: str, most: int) -> str:
    """The first words of a text, with the white space between them."""
    if not most:
        return text
    end = 0
    for number, word in enumerate(re.finditer(r"\S+", text)):
        if number == most:
            return text[:end]
        end = word.end()
    return text
