"""A page of a dump → whether it is an article, its text, and the titles it links to with their grades.

- grade 3: links of the See-also section; on a page without one, links of the References section
- grade 2: links of the first section
- grade 1: links of all other sections

For grade 3 every link of the section counts, also inside templates and tables, because long lists are often
written that way. For grades 2 and 1 only links in running text count, not those in infoboxes, tables,
references and captions. A page is read on its own: `titles` checks whether a link's target exists.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from gr2.data.links import FIRST_SECTION, OTHER_SECTIONS, SEE_ALSO, GradeConfig
from gr2.data.wikipedia.dump import Page, Site
from gr2.data.wikipedia.markup import Section, Wikilink, all_links, plain_sections, section_links, sections
from gr2.data.wikipedia.titles import normal

_REDIRECT = re.compile(r"\s*#\s*redirect(?:ion)?\s*:?\s*\[\[([^\[\]|\n]+)", re.I)


@dataclass(frozen=True, kw_only=True)
class WikipediaConfig(GradeConfig):
    """How a dump is read. The names of templates, sections and lists are those of English Wikipedia."""

    words: int = 384
    """Maximum number of words of an article's text (its abstract comes first); 0 keeps all of it."""
    limit: int | None = None
    """Read only this many articles, for a trial; links to other articles are lost."""
    sample: int | None = None
    """Number of articles that get queries, drawn by the seed; None: all. The documents are these articles
    and the articles they link to."""
    truncated: bool = False
    """Accept a dump that ends too early and use the pages it has."""
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
    """Headings of the section that is used on pages without a See-also section."""
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
    """Templates that mark a page as not an article, besides every `... disambig` and `... disambiguation`."""
    lists: tuple[str, ...] = ("List of ", "Lists of ")
    """How the titles of list pages begin."""

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        if self.words < 0 or min(self.limit or 1, self.sample or 1) < 1 or 0 in (self.limit, self.sample):
            raise ValueError("words is at least 0, limit and sample at least 1 (or none)")


class Article(NamedTuple):
    """The text and links of an article."""

    abstract: str
    """The text of the first section."""
    text: str
    """The text of all sections, cut to a number of words."""
    linked: dict[int, list[str]]
    """grade → normalised titles of the linked pages."""
    see_also: bool
    """Whether it has a See-also section."""


def redirect_of(page: Page) -> str:
    """The title that a page redirects to; empty if it is not a redirect."""
    if page.redirect:
        return page.redirect
    found = _REDIRECT.match(page.text)
    return found[1] if found else ""


def is_article(page: Page, config: WikipediaConfig) -> bool:
    """Whether a page is an article: in the main namespace, and no redirect, list or disambiguation page."""
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
    """Read an article; without `links` only its text, which is faster."""
    parts = sections(page.text)
    abstract, text = _texts(parts, site, config.words)
    if not links:
        return Article(abstract, text, {}, see_also=False)
    unseen = site.unseen
    roles = list(_roles(parts, config.see_also))
    see_also = any(roles)
    related = _listed(parts, roles, unseen)
    if not see_also and any(_roles(parts, config.references)):
        whole = sections(page.text, references=True)  # here links inside <ref> count, too
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
    """Every link of the sections with the role."""
    chosen = (part for part, role in zip(parts, roles, strict=True) if role)
    return [link for part in chosen for link in all_links(part, unseen)]


def _roles(parts: list[Section], headings: Sequence[str]) -> Iterator[bool]:
    """Whether each section has one of these headings or is a subsection of one that has."""
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
    """The abstract, and the text up to a number of words; later sections are not parsed."""
    texts = plain_sections(parts, site.unseen)
    abstract = next(texts, "")
    kept = [abstract] if abstract else []
    count = len(abstract.split())
    while (not most or count < most) and (text := next(texts, None)) is not None:
        count += len(text.split())
        kept += [text] if text else []
    return abstract, _cut("\n\n".join(kept), most)


def _cut(text: str, most: int) -> str:
    """The first `most` words of a text, with the white space between them."""
    if not most:
        return text
    end = 0
    for number, word in enumerate(re.finditer(r"\S+", text)):
        if number == most:
            return text[:end]
        end = word.end()
    return text
