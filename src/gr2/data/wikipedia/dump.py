"""A MediaWiki XML dump (.xml, .bz2, multistream, .gz) → its pages, one at a time.

The parser is expat, which knows at which byte it stopped, so errors name the place where a dump is broken. No
tree is built; memory use is that of the longest page.
"""

import bz2
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from gr2.data.formats.lines import FormatError

BLOCK = 1 << 18
"""Bytes that are read at a time."""
FILE, CATEGORY, MEDIA = 6, 14, -2
"""Namespaces whose links are not part of an article's text: images, categories, sounds."""
LONGEST_TEXT, LONGEST_TAG, DEEPEST = 64 << 20, 1 << 20, 100
"""Maximum bytes of an element's text and of a tag, and maximum depth of elements. A page of MediaWiki has at
most 2 MiB, but a small compressed file can hold gigabytes of anything."""
NUMBER = re.compile(r"[0-9]{1,18}")
ENDS_EARLY = {
    expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
    expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
    expat.errors.codes[expat.errors.XML_ERROR_PARTIAL_CHAR],
}
Opener = Callable[[BufferedReader], BufferedIOBase]
MAGIC: dict[bytes, Opener] = {
    b"BZh": lambda raw: bz2.BZ2File(raw),
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
}
OTHER_MAGIC = {b"7z\xbc\xaf": ".7z", b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zX": ".xz", b"PK\x03\x04": ".zip"}


class Page(NamedTuple):
    """One page: its latest revision in the dump."""

    id: int
    title: str
    namespace: int = 0
    redirect: str = ""
    """The title this page redirects to; empty if it is not a redirect."""
    text: str = ""
    """Wikitext."""


class Site:
    """What the header of a dump says about its wiki."""

    def __init__(self) -> None:
        """Start with the defaults of a dump without a header."""
        self.name = ""
        self.first_letter = True
        """Whether titles always begin with a capital letter, as in every Wikipedia."""
        self.namespaces: dict[int, str] = {}

    def namespace_of(self, title: str) -> int:
        """The namespace by the title's prefix; dumps before 2012 do not give it for each page."""
        prefix, colon, _ = title.partition(":")
        return next((key for key, name in self.namespaces.items() if colon and name and name == prefix), 0)

    @property
    def unseen(self) -> frozenset[str]:
        """Prefixes of links that are not part of the text, in lower case: `file`, `category`, ..."""
        own = (self.namespaces.get(key, "") for key in (FILE, CATEGORY, MEDIA))
        return frozenset({"file", "image", "category", "media", *(name.lower() for name in own if name)})


class Dump:
    """A dump file, read once from start to end."""

    def __init__(self, path: Path, *, truncated: bool = False) -> None:
        """Set the file; with `truncated`, a file that ends too early gives the pages it has."""
        self.path, self.truncated = path, truncated
        self.site = Site()
        self.bytes_read = 0
        """Number of (compressed) bytes read so far, for a progress bar."""

    def __iter__(self) -> Iterator[Page]:
        """Yield every page of every namespace; a FormatError names the byte where the XML is broken."""
        if not self.path.is_file():
            raise FormatError(self.path, 0, "no such file (expected a MediaWiki XML dump)")
        pages = _Pages(self.site)
        with self.path.open("rb") as raw:
            for block in self._blocks(raw):
                self._parse(pages, block)
                yield from pages.take()
                pages.read += len(block)
                if most := pages.exceeded():
                    message = f"expected at most {most:,} bytes until a text or tag ends, {pages.place}"
                    raise FormatError(self.path, 0, message)
            self._parse(pages, b"", last=True)
            yield from pages.take()

    def _parse(self, pages: "_Pages", block: bytes, *, last: bool = False) -> None:
        try:
            pages.parser.Parse(block, last)
        except expat.ExpatError as error:
            if last and self.truncated and error.code in ENDS_EARLY and pages.parser.ErrorByteIndex > 0:
                return
            place = f"at byte {max(0, pages.parser.ErrorByteIndex):,} of the XML"
            if last and error.code in ENDS_EARLY:
                raise FormatError(self.path, 0, f"ends too early, {place}") from None
            message = f"broken {place} (line {error.lineno:,}): {expat.ErrorString(error.code)}"
            raise FormatError(self.path, 0, message) from None
        except _NotADump as error:
            raise FormatError(self.path, 0, f"not a MediaWiki dump: {error}, {pages.place}") from None

    def _blocks(self, raw: BufferedReader) -> Iterator[bytes]:
        head = raw.read(4)
        raw.seek(0)
        if head in OTHER_MAGIC:
            raise FormatError(self.path, 0, f"is compressed as {OTHER_MAGIC[head]}: unpack it first")
        opener = next((opener for magic, opener in MAGIC.items() if head.startswith(magic)), None)
        stream: BufferedIOBase = opener(raw) if opener else raw
        while True:
            try:
                block = stream.read1(BLOCK)  # `read` would lose data when the file ends too early
            except EOFError:
                if self.truncated:
                    return
                where = f"the file ends too early, at byte {raw.tell():,}: it is incomplete"
                raise FormatError(self.path, 0, where) from None
            except (OSError, zlib.error) as error:
                where = f"broken compression before byte {raw.tell():,} of the file: {error}"
                raise FormatError(self.path, 0, where) from None
            self.bytes_read = raw.tell()
            if not block:
                return
            yield block


class _NotADump(Exception):
    """The XML is not a MediaWiki dump."""


class _Pages:
    """Expat's events → pages."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.done: list[Page] = []
        self.path: list[str] = []
        self.fields: dict[str, str] = {}
        self.pieces: list[str] = []
        self.key = ""
        self.read = 0
        """Bytes of XML that the parser was given."""
        self.began = 0
        """Where the element began whose text is being kept."""
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.buffer_size = BLOCK
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.StartDoctypeDeclHandler = self.doctype

    def take(self) -> list[Page]:
        """The pages completed since the last call."""
        done, self.done = self.done, []
        return done

    def exceeded(self) -> int:
        """The limit that an incomplete text or tag exceeds, in bytes; 0 if it exceeds none."""
        if self.read - max(0, self.parser.CurrentByteIndex) > LONGEST_TAG:
            return LONGEST_TAG
        inside = self.parser.CharacterDataHandler is not None
        return LONGEST_TEXT if inside and self.read - self.began > LONGEST_TEXT else 0

    @property
    def place(self) -> str:
        """Where the parser is."""
        return f"at byte {max(0, self.parser.CurrentByteIndex):,} of the XML"

    def doctype(self, *_: object) -> None:
        """Refuse a doctype: dumps have none, and it could define entities that grow without bound."""
        raise _NotADump("found a document type declaration")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        parent = self.path[-1] if self.path else ""
        if not parent and name != "mediawiki":
            raise _NotADump(f"expected <mediawiki>, found <{name}>")
        if self.parser.CharacterDataHandler is not None:
            raise _NotADump(f"expected text in <{parent}>, found <{name}>")
        if len(self.path) >= DEEPEST:
            raise _NotADump(f"found elements nested deeper than {DEEPEST}")
        self.path.append(name)
        if name == "page":
            self.fields = {}
        elif parent == "page" and name == "redirect":
            self.fields["redirect"] = attributes.get("title", "")
        elif (parent == "page" and name in ("title", "ns", "id")) or (
            parent == "revision" and name in ("text", "model")
        ):
            self.collect(name)
        elif parent == "siteinfo" and name in ("sitename", "case"):
            self.collect(name)
        elif parent == "namespaces":
            self.key = attributes.get("key", "")
            self.collect(name)

    def collect(self, name: str) -> None:
        """Keep the text of this element."""
        self.pieces, self.began = [], self.parser.CurrentByteIndex
        self.fields.pop(name, None)
        self.parser.CharacterDataHandler = self.pieces.append

    def end(self, name: str) -> None:
        """An element is complete."""
        self.path.pop()
        if self.parser.CharacterDataHandler is not None:
            self.fields[name] = "".join(self.pieces)
            self.pieces = []
            self.parser.CharacterDataHandler = None
        if name == "page":
            self.page()
        elif (
            name == "namespace"
            and self.path[-1] == "namespaces"
            and NUMBER.fullmatch(self.key.removeprefix("-"))
        ):
            self.site.namespaces[int(self.key)] = self.fields[name]
        elif name == "siteinfo":
            self.site.name = self.fields.get("sitename", "")
            self.site.first_letter = self.fields.get("case", "first-letter") == "first-letter"

    def page(self) -> None:
        """A page is complete."""
        title, number, space = (self.fields.get(key, "") for key in ("title", "id", "ns"))
        if (
            not title
            or not NUMBER.fullmatch(number)
            or not NUMBER.fullmatch((space or "0").removeprefix("-"))
        ):
            raise _NotADump(
                f"expected a page with title, id and namespace, found {title!r}, {number!r}, {space!r}"
            )
        text = self.fields.get("text", "") if self.fields.get("model", "wikitext") == "wikitext" else ""
        namespace = int(space) if space else self.site.namespace_of(title)
        self.done.append(Page(int(number), title, namespace, self.fields.get("redirect", ""), text))
