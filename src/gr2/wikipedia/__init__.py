"""English Wikipedia, or any other wiki's XML dump → a graded collection to pre-train on (paper, GR²P).

`dump` reads pages, `markup` reads wikitext, `titles` knows which articles there are and where redirects lead,
`articles` says what a page links to on which grade, and `passes` brings them together.
"""

from gr2.wikipedia.articles import WikipediaConfig, is_article, read_article
from gr2.wikipedia.dump import Dump, Page
from gr2.wikipedia.markup import Section, Wikilink, links, plain, sections
from gr2.wikipedia.passes import build

__all__ = [
    "Dump",
    "Wikilink",
    "Page",
    "Section",
    "WikipediaConfig",
    "build",
    "is_article",
    "links",
    "plain",
    "read_article",
    "sections",
]
