"""Reading a Wikipedia dump: pages/s of gr2 and of mwxml + mwparserfromhell, and memory by number of pages.

    pip install mwxml mwparserfromhell sentencex
    python benchmarks/wikipedia.py [--dumps FILE ...] [--repeats 3] [--pages 100000 200000 400000]

Speed (CPU time, systems take turns): both read the same dump files and return the first words of each article
and the titles it links to in each grade. `command` is the whole of `gr2 collection from-wikipedia`, which
reads dumps twice and writes a collection. The peer walks the tree of mwparserfromhell with
`skip_style_tags=True`; by default it loses the headings after an unclosed '' (the number of such articles is
reported). Articles for which the two find different links are listed.
Memory: a whole build of synthetic dumps, each in a separate process, and the table of titles alone, which
allows more of them.
"""

import argparse
import bz2
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from machine import facts, peak_mb

from gr2.data.wikipedia import Dump, Page, WikipediaConfig, build, is_article, read_article
from gr2.data.wikipedia.titles import Listing, Titles, normal
from gr2.store import write_json

DUMPS = Path(__file__).parents[2] / "shared" / "data" / "wiki-dump"
CONFIG = WikipediaConfig(truncated=True)
ENGLISH = {"articles": 7_000_000, "redirects": 11_000_000}
"""Roughly the pages of a full English dump; other pages need no memory."""
UNSEEN = {"file", "image", "category", "media"}
RAW = set(
    "ref references table math chem ce gallery timeline syntaxhighlight source score hiero imagemap pre "
    "nowiki section templatestyles includeonly maplink mapframe graph".split()
)
Linked = dict[int, list[str]]
Row = tuple[str, str, Linked]
"""Title, first words, and the titles it links to on each grade."""


def ours(path: Path) -> Iterator[Row]:
    """Read every article of a dump with the functions of `gr2 collection from-wikipedia`."""
    dump = Dump(path, truncated=True)
    for page in dump:
        if is_article(page, CONFIG):
            article = read_article(page, dump.site, CONFIG)
            yield page.title, article.text, article.linked


def peer(path: Path) -> Iterator[Row]:
    """Read a dump with mwxml and every article with mwparserfromhell."""
    import mwxml  # type: ignore[import-not-found,import-untyped,unused-ignore]

    with bz2.open(path) as stream:
        pages = iter(mwxml.Dump.from_file(stream))
        while True:
            try:
                page = next(pages)
            except StopIteration:
                return
            except Exception:  # noqa: BLE001 - any kind: a part of a dump ends without an end tag
                return
            revision = next(iter(page), None)
            text = (revision.text if revision else "") or ""
            as_ours = Page(page.id, page.title, page.namespace, page.redirect or "", text)
            if is_article(as_ours, CONFIG):
                yield page.title, *naive(text)


def naive(text: str, *, skip_style_tags: bool = True) -> tuple[str, Linked]:
    """The same as `read_article`, from the tree of mwparserfromhell."""
    import mwparserfromhell  # type: ignore[import-not-found,import-untyped,unused-ignore]

    parts = mwparserfromhell.parse(text, skip_style_tags=skip_style_tags).get_sections(
        flat=True, include_lead=True
    )
    headings = [_heading(part) for part in parts]
    see_also = _under(headings, CONFIG.see_also)
    near = see_also if any(see_also) else _under(headings, CONFIG.references)
    related = [link for part, chosen in zip(parts, near, strict=True) if chosen for link in _all(part)]
    chosen = near if any(see_also) or related else [False] * len(parts)
    linked = {
        3: related,
        2: list(_running(parts[0])),
        1: [
            link for part, no in zip(parts[1:], chosen[1:], strict=True) if not no for link in _running(part)
        ],
    }
    words: list[str] = []
    for part in parts:
        if len(words) < CONFIG.words:
            words += part.strip_code().replace("''", "").split()
    return " ".join(words[: CONFIG.words]), {grade: _titles(found) for grade, found in linked.items()}


def _heading(part: Any) -> tuple[int, str]:
    found = part.filter_headings(recursive=False)
    if not found:
        return 0, ""
    return found[0].level, found[0].title.strip_code().replace("''", "").strip().rstrip(" :.").lower()


def _under(headings: list[tuple[int, str]], names: tuple[str, ...]) -> list[bool]:
    found, level = [], 0
    for depth, title in headings:
        if not (level and depth > level):
            level = depth if title in names else 0
        found.append(bool(level))
    return found


def _running(code: Any) -> Iterator[str]:
    """Links of running text, in order."""
    from mwparserfromhell import nodes

    for node in code.nodes:
        if isinstance(node, nodes.Wikilink):
            if not _is_unseen(str(node.title)):
                yield str(node.title)
                yield from _running(node.text) if node.text is not None else ()
        elif isinstance(node, nodes.Tag) and str(node.tag).strip().lower() not in RAW:
            yield from _running(node.contents) if node.contents is not None else ()
        elif isinstance(node, nodes.ExternalLink) and node.title is not None:
            yield from _running(node.title)


def _all(code: Any) -> list[str]:
    """Every link of a section, also in templates, but not in captions of images."""
    inside = {
        id(nested)
        for link in code.filter_wikilinks()
        if _is_unseen(str(link.title)) and link.text is not None
        for nested in link.text.filter_wikilinks()
    }
    links = (link for link in code.filter_wikilinks() if id(link) not in inside)
    annotated = [t for t in code.filter_templates() if t.name.strip().lower() == "annotated link"]
    written = [str(template.get(1)) for template in annotated if template.has(1)]
    return [*written, *(str(link.title) for link in links if not _is_unseen(str(link.title)))]


def _is_unseen(target: str) -> bool:
    prefix, colon, _ = target.partition(":")
    return bool(colon) and prefix.strip().lower() in UNSEEN


def _titles(targets: list[str]) -> list[str]:
    return [title for target in targets if (title := normal(target))]


def command(path: Path) -> Iterator[Row]:
    """The whole command: two passes, looking up targets, making queries, writing a folder."""
    with tempfile.TemporaryDirectory() as name:
        build([path], Path(name) / "out", CONFIG)
    yield from ()


def unpacking(path: Path) -> Iterator[Row]:
    """Only unpack a dump, which both have to do."""
    with bz2.open(path) as stream:
        while stream.read(1 << 18):
            pass
    yield from ()


def speed(dumps: list[Path], repeats: int) -> dict[str, Any]:
    """Let the systems take turns over all dump files."""
    systems: dict[str, Callable[[Path], Iterator[Row]]] = {
        "unpacking": unpacking,
        "ours": ours,
        "command": command,
        "peer": peer,
    }
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    rows: dict[str, list[Row]] = {}
    for _ in range(repeats):
        for name, read in systems.items():
            start = time.process_time()
            rows[name] = [row for path in dumps for row in read(path)]
            seconds[name].append(time.process_time() - start)
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    articles, pages = len(rows["ours"]), sum(1 for path in dumps for _ in Dump(path, truncated=True))
    return {
        "pages": pages,
        "articles": articles,
        "cpu_seconds": medians,
        "pages_per_second": {name: pages / medians[name] for name in ("ours", "command", "peer")},
        "articles_per_second": {name: articles / medians[name] for name in ("ours", "peer")},
        "faster": medians["peer"] / medians["ours"],
        "faster_without_unpacking": (medians["peer"] - medians["unpacking"])
        / (medians["ours"] - medians["unpacking"]),
        "agreement": agreement(rows["ours"], rows["peer"]),
    }


def agreement(mine: list[Row], theirs: list[Row]) -> dict[str, Any]:
    """The articles for which the two find different links, and how similar their texts are."""
    assert [row[0] for row in mine] == [row[0] for row in theirs], "they did not read the same articles"
    grades, shares = (3, 2, 1), []
    differ: dict[int, list[str]] = {grade: [] for grade in grades}
    for (title, text, linked), (_, their_text, their_linked) in zip(mine, theirs, strict=True):
        one, two = set(text.split()), set(their_text.split())
        shares.append(len(one & two) / max(1, len(one | two)))
        for grade in grades:
            if sorted(linked[grade]) != sorted(their_linked[grade]):
                differ[grade].append(title)
    return {
        "links_of_ours": {str(grade): sum(len(row[2][grade]) for row in mine) for grade in grades},
        "links_of_the_peer": {str(grade): sum(len(row[2][grade]) for row in theirs) for grade in grades},
        "articles_that_differ": {str(grade): titles for grade, titles in differ.items()},
        "median_jaccard_of_words": statistics.median(shares),
    }


def default_settings(dumps: list[Path]) -> dict[str, int]:
    """The number of articles for which the peer finds other links with its default settings."""
    pages = [page for path in dumps for page in Dump(path, truncated=True) if is_article(page, CONFIG)]
    differ = sum(naive(page.text)[1] != naive(page.text, skip_style_tags=False)[1] for page in pages)
    return {"articles": len(pages), "with_other_links": differ}


def make(path: Path, pages: int, seed: int = 0) -> None:
    """Write a synthetic dump: of 18 pages, 7 articles that link to each other and 11 redirects to them."""
    draw = random.Random(seed)
    with path.open("w", encoding="utf-8") as stream:
        stream.write("<mediawiki><siteinfo><case>first-letter</case></siteinfo>\n")
        for number in range(pages):
            title = f"A page with the long name {number}"
            others = [f"[[A page with the long name {draw.randrange(pages)}]]" for _ in range(12)]
            redirect, text = "", f"#REDIRECT {others[0]}"
            if number % 18 < 7:
                text = (
                    f"'''It''' is the text of page {number}, with {others[0]} of {others[1]}.{{{{cite|x}}}}\n"
                    f"== History ==\n{' and '.join(others[2:8])}.\n== See also ==\n* {' * '.join(others[8:])}"
                )
            else:
                redirect = f'<redirect title="{others[0][2:-2]}" />'
            stream.write(
                f"<page><title>{title}</title><ns>0</ns><id>{number + 1}</id>{redirect}"
                f"<revision><text>{text}</text></revision></page>\n"
            )
        stream.write("</mediawiki>\n")


def child(kind: str, pages: int) -> None:
    """Do one job in this process and print its peak memory as JSON."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if kind == "build":
            # made by another process, so that its memory is not counted
            subprocess.run(
                [sys.executable, __file__, "--child", "make", str(pages), "--at", name], check=True
            )
            before = peak_mb()
            start = time.process_time()
            build([folder / "dump.xml"], folder / "out")
        else:
            before = peak_mb()
            start = time.process_time()
            _list(folder, pages)
            Titles.load([folder / "titles.npz"])
        print(
            json.dumps(
                {"before_mb": before, "peak_mb": peak_mb(), "cpu_seconds": time.process_time() - start}
            )
        )


def _list(folder: Path, pages: int) -> None:
    listing = Listing()
    for number in range(pages):
        if number % 18 < 7:
            listing.article(f"A page with the long name {number}", number + 1)
        else:
            listing.redirect(
                f"A page with the long name {number}", f"A page with the long name {number * 7 % pages}"
            )
        listing.pages += 1
    listing.save(folder / "titles.npz")


def memory(kind: str, sizes: list[int]) -> dict[str, Any]:
    """Peak memory by number of pages, and the slope between the smallest and the largest."""
    rows = []
    for pages in sizes:
        command = [sys.executable, __file__, "--child", kind, str(pages)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{kind} with {pages} pages failed:\n{done.stderr[-800:]}")
        rows.append({"pages": pages, **json.loads(done.stdout.splitlines()[-1])})
    slope = (rows[-1]["peak_mb"] - rows[0]["peak_mb"]) / (rows[-1]["pages"] - rows[0]["pages"])
    titles = sum(ENGLISH.values())
    full = rows[0]["peak_mb"] + slope * (titles - rows[0]["pages"])
    return {"rows": rows, "bytes_per_page": slope * 2**20, "full_english_mb": full}


def main() -> None:
    """Measure speed and memory, print and save both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dumps", type=Path, nargs="+", default=sorted(DUMPS.glob("*.bz2")), help=".bz2 files"
    )
    parser.add_argument("--repeats", type=int, default=3, help="readings of each system (default: 3)")
    parser.add_argument("--pages", type=int, nargs="+", default=[100_000, 200_000, 400_000])
    parser.add_argument("--titles", type=int, nargs="+", default=[1_000_000, 2_000_000, 4_000_000])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "wikipedia.json")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--at", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, pages = options.child[0], int(options.child[1])
        make(options.at / "dump.xml", pages) if kind == "make" else child(kind, pages)
        return
    if not options.dumps:
        sys.exit("no dump was found: give files with --dumps")
    results: dict[str, Any] = {"speed": speed(options.dumps, options.repeats)}
    print(json.dumps(results["speed"], indent=1))
    results["default_settings"] = default_settings(options.dumps)
    print(json.dumps(results["default_settings"], indent=1))
    results["memory"] = {"build": memory("build", options.pages), "titles": memory("titles", options.titles)}
    print(json.dumps(results["memory"], indent=1))
    packages = ("gr2", "mwxml", "mwparserfromhell", "sentencex", "numpy")
    about = {"dumps": [path.name for path in options.dumps], "english": ENGLISH, "machine": facts(*packages)}
    write_json(options.out, {"about": about, **results})


if __name__ == "__main__":
    main()
