"""`gr2 collection from-...`: graded collections to pre-train on, made from links."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gr2.cli.app import Folder, Settings, progress
from gr2.cli.collections import collection
from gr2.data.links import LinksConfig
from gr2.data.wikipedia.articles import WikipediaConfig

Dumps = Annotated[Positional[tuple[Path, ...]], arg(metavar="DUMP [DUMP ...]")]


@collection.command(name="from-wikipedia")
def from_wikipedia(
    dumps: Dumps,
    /,
    *,
    out: Path,
    config: Annotated[WikipediaConfig, Settings] = WikipediaConfig(),  # noqa: B008
    resume: bool = False,
) -> None:
    """Make a graded collection to pre-train on from a MediaWiki dump (pages-articles, .xml or .bz2).

    A query is a sentence of an article's abstract. Its grades: 4 the article itself, 3 its See-also links
    (else those of its References), 2 links of its first section, 1 links of other sections.

    Args:
        dumps: The file or files of one wiki's dump.
        out: The folder to write; it appears whole or not at all. Unfinished work is kept in OUT.making.
        config: How the dump is read.
        resume: Continue after an interruption.
    """
    from gr2.data.wikipedia import build

    print(build(dumps, out, config, resume=resume, progress=progress()))
    print(f"Written to {out}")


@collection.command(name="from-links")
def from_links(
    folder: Folder,
    /,
    *,
    out: Path,
    config: Annotated[LinksConfig, Settings] = LinksConfig(),  # noqa: B008
) -> None:
    """Make a graded collection to pre-train on from documents and a table of the links between them.

    A query is a sentence of a document's first section. Its grades: 4 the document itself, 3 See-also links
    (in a table without such a kind: documents that link to each other), 2 links whose anchor stands in the
    first section, 1 other links.

    Args:
        folder: With corpus.jsonl and links.tsv (source, target, maybe kind and anchor); each may be .gz.
        out: The folder to write; it appears whole or not at all.
        config: How queries and links are drawn.
    """
    from gr2.data.formats import write_folder
    from gr2.data.links import read_linked_folder
    from gr2.evaluate.describe import headline

    made, tally = read_linked_folder(folder, config)
    print(headline(write_folder(made, out)))
    print(tally)
    print(f"Written to {out}")
