"""Dump files → a BEIR folder with grades 1-4, in two passes.

The first pass lists titles: which pages are articles, and where redirects lead. The second reads the
articles, now that the existing link targets are known. Finished work is kept next to the result in OUT.making
(the listing of each dump file, then parts of a fixed number of pages), so an interrupted build can be resumed
and ends with the same bytes. Only the titles are held in memory (`gr2.data.wikipedia.titles`); texts, queries
and judgements are streamed.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import orjson

from gr2.data.formats.lines import FormatError
from gr2.data.links import Tally, ask, draw
from gr2.data.wikipedia.articles import WikipediaConfig, is_article, read_article, redirect_of
from gr2.data.wikipedia.dump import Dump, Page, Site
from gr2.data.wikipedia.titles import NOWHERE, Listing, Titles, normal
from gr2.store import atomic_file, atomic_folder, write_json

PART = 10_000
"""Pages per part: after each part the second pass saves its work."""
RULES = 2
"""Version of this package's rules; parts made with another version are not reused."""


def build(
    dumps: Sequence[Path],
    out: Path,
    config: WikipediaConfig | None = None,
    *,
    resume: bool = False,
    progress: bool = False,
) -> Tally:
    """Write the graded collection of one or several dump files; returns counts that describe it.

    Args:
        dumps: files of one wiki, plain or compressed; of two pages with the same title the first counts.
        out: the folder to write, atomically.
        config: everything else.
        resume: continue an interrupted build.
        progress: whether to show progress bars.
    """
    config = config or WikipediaConfig()
    making = out.with_name(out.name + ".making")
    with atomic_folder(out) as folder:
        _claim(making, dumps, config, resume)
        try:
            titles = _list_titles(dumps, making, config, progress)
            _read_articles(dumps, making, config, titles, progress)
            tally = _assemble(making, folder, config, titles)
        except BaseException:
            if not any(path.suffix in (".npz", ".jsonl") for path in making.iterdir()):
                shutil.rmtree(making)  # there is nothing to resume yet
            raise
        sources = [{"name": path.name, "bytes": path.stat().st_size} for path in dumps]
        write_json(folder / "report.json", {"dumps": sources, "config": asdict(config), **tally.as_dict()})
    shutil.rmtree(making)
    return tally


def _claim(making: Path, dumps: Sequence[Path], config: WikipediaConfig, resume: bool) -> None:
    """Make sure that an existing folder of unfinished work belongs to this build."""
    if not dumps:
        raise ValueError("no dump is given")
    for path in dumps:
        if not path.is_file():
            raise FormatError(path, 0, "no such file (expected a MediaWiki XML dump)")
    files = [path.stat() for path in dumps]
    sources = [[path.name, file.st_size, file.st_mtime_ns] for path, file in zip(dumps, files, strict=True)]
    about = {"rules": RULES, "part": PART, "dumps": sources, "config": asdict(config)}
    if making.exists():
        if not resume:
            raise ValueError(f"{making}: holds an interrupted build; resume it (--resume) or remove it")
        _drop_changed(making, about)
    making.mkdir(parents=True, exist_ok=True)
    write_json(making / "about.json", about)


def _drop_changed(making: Path, about: Mapping[str, Any]) -> None:
    """Drop unfinished work from dump files that have changed; refuse that of other settings.

    All of it is dropped if the build was killed before it had said what it is, or while its work was removed.
    """
    known = making / "about.json"
    if not known.is_file():
        _forget(making, 0)
        return
    before = orjson.loads(known.read_bytes())
    changed = [name for name, value in orjson.loads(orjson.dumps(about)).items() if before.get(name) != value]
    pairs = zip(about["dumps"], before.get("dumps", []), strict=False)
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    if set(changed) - {"dumps"} or not same:
        raise ValueError(f"{making}: was begun with other {', '.join(changed)}; remove it to start anew")
    if changed:
        _forget(making, same)


def _forget(making: Path, same: int) -> None:
    """Drop work from dump files after the first `same`; typically a broken file was replaced."""
    for part in making.glob("part-*.jsonl"):
        part.unlink()
    for listing in sorted(making.glob("titles-*.npz"))[same:]:
        listing.unlink()


def _list_titles(dumps: Sequence[Path], making: Path, config: WikipediaConfig, progress: bool) -> Titles:
    """The first pass: list the titles of each dump file, then merge the listings."""
    listings: list[Path] = []
    left = config.limit
    for number, path in enumerate(dumps):
        if left == 0:
            break
        listings.append(making / f"titles-{number:05}.npz")
        if not listings[-1].is_file():
            _list_file(path, listings[-1], left, config, progress)
        left = None if left is None else left - Listing.articles_in(listings[-1])
    titles = Titles.load(listings)
    if not len(titles):
        raise ValueError(f"{', '.join(path.name for path in dumps)}: no article found")
    return titles


def _list_file(path: Path, listed: Path, most: int | None, config: WikipediaConfig, progress: bool) -> None:
    """List the pages of a dump file, up to `most` articles."""
    dump, listing = Dump(path, truncated=config.truncated), Listing()
    for page in _shown(dump, f"titles of {path.name}", None, progress):
        _list_page(page, dump.site, listing, config)
        if listing.articles == most:
            break
    listing.save(listed)


def _list_page(page: Page, site: Site, listing: Listing, config: WikipediaConfig) -> None:
    if page.namespace == 0:
        if is_article(page, config):
            listing.article(page.title, page.id)
        elif target := redirect_of(page):
            listing.redirect(page.title, normal(target, first_letter=site.first_letter))
    listing.pages += 1


def _read_articles(
    dumps: Sequence[Path], making: Path, config: WikipediaConfig, titles: Titles, progress: bool
) -> None:
    """The second pass: write the records of all pages in parts; existing parts are skipped."""
    count = -(-sum(titles.files) // PART)
    missing = {number for number in range(count) if not (making / f"part-{number:05}.jsonl").is_file()}
    asking = None if config.sample is None else titles.sample(config.sample, config.seed)
    placed = _placed(dumps, titles.files, missing, config, progress)
    for number, rows in groupby(placed, key=lambda row: row[0] // PART):
        if number not in missing:
            continue
        with atomic_file(making / f"part-{number:05}.jsonl") as temporary, temporary.open("wb") as stream:
            for place, site, page in rows:
                if page.namespace == 0 and titles.is_document(page.title, place):
                    asks = asking is None or page.id in asking
                    stream.write(orjson.dumps(_record(page, site, titles, config, asks)) + b"\n")


def _placed(
    dumps: Sequence[Path], files: Sequence[int], missing: set[int], config: WikipediaConfig, progress: bool
) -> Iterator[tuple[int, Site, Page]]:
    """Every page of the dump files needed for a missing part, with its position among all pages."""
    before = 0
    for path, pages in zip(dumps, files, strict=False):
        if any(number in missing for number in range(before // PART, -(-(before + pages) // PART))):
            dump = Dump(path, truncated=config.truncated)
            for place, page in enumerate(_shown(dump, path.name, pages, progress), start=before):
                if place == before + pages:  # the limit was reached here
                    break
                yield place, dump.site, page
        before += pages


def _record(page: Page, site: Site, titles: Titles, config: WikipediaConfig, asks: bool) -> dict[str, Any]:
    """The record of an article: its text and, if it gets queries, its queries and judgements."""
    article = read_article(page, site, config, links=asks)
    record: dict[str, Any] = {"id": page.id, "title": page.title, "text": article.text}
    if asks:
        linked = {grade: set(titles.find(names)) - {NOWHERE} for grade, names in article.linked.items()}
        judged = draw(page.title, page.id, linked, config)
        record["queries"] = ask(page.title, article.abstract, config)
        record["judged"] = list(judged.items())
        record["see_also"] = article.see_also
    return record


def _records(making: Path) -> Iterator[dict[str, Any]]:
    for part in sorted(making.glob("part-*.jsonl")):
        with part.open("rb") as stream:
            yield from map(orjson.loads, stream)


def _assemble(making: Path, folder: Path, config: WikipediaConfig, titles: Titles) -> Tally:
    """The parts → corpus.jsonl, queries.jsonl and qrels/train.tsv, one record at a time."""
    judged: set[int] | None = None
    if config.sample is not None:
        rows = (record["judged"] for record in _records(making) if record.get("queries"))
        judged = {id for row in rows for id, _ in row}
    tally = Tally()
    (folder / "qrels").mkdir()
    with (
        (folder / "corpus.jsonl").open("wb") as corpus,
        (folder / "queries.jsonl").open("wb") as queries,
        (folder / "qrels" / "train.tsv").open("wb") as qrels,
    ):
        qrels.write(b"query-id\tcorpus-id\tscore\n")
        for record in _records(making):
            if judged is not None and record["id"] not in judged:
                continue
            docno, texts = str(record["id"]), record.get("queries", [])
            document = {"_id": docno, "title": record["title"], "text": record["text"]}
            corpus.write(orjson.dumps(document) + b"\n")
            for number, text in enumerate(texts, start=1):
                queries.write(orjson.dumps({"_id": f"{docno}-{number}", "text": text}) + b"\n")
                lines = (f"{docno}-{number}\t{id}\t{grade}\n" for id, grade in record["judged"])
                qrels.write("".join(lines).encode())
            tally.add(len(texts), dict(record.get("judged", ())), see_also=record.get("see_also"))
    tally.notes = {
        "articles_in_the_dump": len(titles),
        "redirects": titles.redirects,
        "redirects_to_no_article": titles.lost,
    }
    return tally


def _shown(dump: Dump, name: str, total: int | None, progress: bool) -> Iterator[Page]:
    """Pass the pages on, with a progress bar that shows pages per second and the share of the file read."""
    from tqdm import tqdm

    size = max(1, dump.path.stat().st_size)
    with tqdm(total=total, desc=name, unit=" pages", disable=not progress, leave=False) as bar:
        for count, page in enumerate(dump, start=1):
            yield page
            bar.update()
            if progress and not count % 1000:
                bar.set_postfix_str(f"{dump.bytes_read / size:.1%} of the file read", refresh=False)
