"""`gr2 collection from-...`: graded collections to pre-train on, made from links."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gr2.cli.app import Folder, progress
from gr2.cli.collections import collection

Dumps = Annotated[Positional[tuple[Path, ...]], arg(metavar="DUMP [DUMP ...]")]


@collection.command(name="from-wikipedia")
def from_wikipedia(
    dumps: Dumps,
    /,
    *,
    out: Path,
    resume: bool = False,
    limit: int | None = None,
    sample: int | None = None,
    per_grade: int = 5,
    queries: int = 1,
    words: int = 384,
    seed: int = 0,
    truncated: bool = False,
    language: str = "en",
    see_also: tuple[str, ...] = (),
    references: tuple[str, ...] = (),
) -> None:
    """Make a graded collection to pre-train on from a MediaWiki dump (pages-articles, .xml or .bz2).

    A query is a sentence of an article's abstract. Its grades: 4 the article itself, 3 its See-also links
    (else those of its References), 2 links of its first section, 1 links of other sections.

    Args:
        dumps: The file or files of one wiki's dump.
        out: The folder to write; it appears whole or not at all. Work in progress lies in OUT.making.
        resume: Go on after an interruption.
        limit: Read no more than the first so many articles, for a trial; links to others are lost.
        sample: How many articles ask, drawn by the seed (default: all). The documents are then they and
            what they link to.
        per_grade: Most documents of each of the grades 3, 2 and 1 per query.
        queries: Most queries per article.
        words: Words at which an article's text is cut; 0 keeps all of it.
        seed: Draws sentences and links.
        truncated: Take a dump that ends too early as far as it goes.
        language: Of the wiki, by its two-letter code: where sentences end depends on it.
        see_also: What See-also sections are called, if not in English, e.g. `"siehe auch"`.
        references: The same of References sections.
    """
    from gr2.wikipedia import WikipediaConfig, build

    usual = WikipediaConfig()
    config = WikipediaConfig(
        limit=limit,
        sample=sample,
        per_grade=per_grade,
        queries=queries,
        words=words,
        seed=seed,
        truncated=truncated,
        language=language,
        see_also=see_also or usual.see_also,
        references=references or usual.references,
    )
    print(build(dumps, out, config, resume=resume, progress=progress()))
    print(f"Written to {out}")


@collection.command(name="from-links")
def from_links(
    folder: Folder,
    /,
    *,
    out: Path,
    per_grade: int = 5,
    queries: int = 1,
    lead: int = 200,
    seed: int = 0,
    language: str = "en",
    see_also: tuple[str, ...] = ("see_also",),
) -> None:
    """Make a graded collection to pre-train on from documents and a table of the links between them.

    A query is a sentence of a document's first section. Its grades: 4 the document itself, 3 See-also links
    (in a table without such a kind: documents that link to each other), 2 links whose anchor stands in the
    first section, 1 other links.

    Args:
        folder: With corpus.jsonl and links.tsv (source, target, maybe kind and anchor); each may be .gz.
        out: The folder to write; it appears whole or not at all.
        per_grade: Most documents of each of the grades 3, 2 and 1 per query.
        queries: Most queries per document.
        lead: Words that are the first section of a text without headings, and the most of any.
        seed: Draws sentences and links.
        language: Of the texts, by its two-letter code: where sentences end depends on it.
        see_also: The kinds of link that are See-also links.
    """
    from gr2.formats import write_folder
    from gr2.info import headline
    from gr2.links import LinksConfig, read_linked_folder

    config = LinksConfig(
        per_grade=per_grade, queries=queries, lead=lead, seed=seed, language=language, see_also=see_also
    )
    made, tally = read_linked_folder(folder, config)
    print(headline(write_folder(made, out)))
    print(tally)
    print(f"Written to {out}")
