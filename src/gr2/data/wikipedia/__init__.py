"""An XML dump of Wikipedia or another wiki → a graded collection for pre-training (paper, GR²P).

`dump` reads pages, `markup` parses wikitext, `titles` maps titles and redirects to articles, `articles` finds
the links of a page and their grades, and `passes` combines them.
"""

from gr2.data.wikipedia.articles import WikipediaConfig, is_article, read_article
from gr2.data.wikipedia.dump import Dump, Page
from gr2.data.wikipedia.markup import Section, Wikilink, links, plain, sections
from gr2.data.wikipedia.passes import build

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
