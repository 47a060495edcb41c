"""A dump becomes a graded collection: XML, titles, wikitext, grades, and the two passes.

Real pieces of English Wikipedia are looked for in $GR2_DATA, else in `../shared/data` beside the checkout.
"""

import bz2
import gzip
import json
import random
import time
import tracemalloc
from importlib import import_module
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pytest
from helpers import paths
from hypothesis import given
from hypothesis import strategies as st

import gr2.data.wikipedia.passes as building
from gr2.data.collection import Collection
from gr2.data.formats import FormatError, read_folder
from gr2.data.wikipedia import (
    Dump,
    Page,
    WikipediaConfig,
    build,
    is_article,
    links,
    plain,
    read_article,
    sections,
)
from gr2.data.wikipedia.dump import Site
from gr2.data.wikipedia.markup import MARK, all_links, section_links
from gr2.data.wikipedia.titles import NOWHERE, Listing, Titles, normal
from gr2.store import verify

DATA = paths.DATA / "wiki-dump"
PIECES = ("gensim-shortened", "dbpedia-minidump", "wp2txt-52eb3f04", "wp2txt-c22d6ef6")
HEAD = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="en">\n'
    "<siteinfo><sitename>Wikipedia</sitename><case>first-letter</case><namespaces>"
    '<namespace key="-2" case="first-letter">Media</namespace><namespace key="0" case="first-letter" />'
    '<namespace key="6" case="first-letter">File</namespace>'
    '<namespace key="14" case="first-letter">Category</namespace>'
    "</namespaces></siteinfo>\n"
)
TAIL = "</mediawiki>\n"


def page_xml(page):
    redirect = f"<redirect title={quoteattr(page.redirect)} />" if page.redirect else ""
    return (
        f"<page><title>{escape(page.title)}</title><ns>{page.namespace}</ns><id>{page.id}</id>{redirect}"
        f"<revision><id>{page.id + 9000}</id><contributor><username>Ann</username><id>7</id></contributor>"
        f'<model>wikitext</model><text xml:space="preserve">{escape(page.text)}</text></revision></page>\n'
    )


def xml(pages, head=HEAD, tail=TAIL):
    return (head + "".join(map(page_xml, pages)) + tail).encode()


def lay(path, pages, **parts):
    """Write a dump file; what its name ends in says how it is compressed."""
    data = xml(pages, **parts)
    if path.suffix == ".bz2":
        data = bz2.compress(data)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def article(id, title, text):
    return Page(id, title, 0, "", text)


def leads(id, title, target):
    return Page(id, title, 0, target, f"#REDIRECT [[{target}]]")


# --- XML


PAGES = [
    article(1, "Apple", "An '''apple''' & a <ref>x</ref> pear.\n"),
    leads(2, "Apples", "Apple"),
    Page(3, "Talk:Apple", 1, "", "Hm."),
    article(4, "Æsir & Vanir", ""),
]


@pytest.mark.parametrize("name", ["d.xml", "d.xml.bz2", "d.xml.gz", "odd-name"])
def test_pages_of_a_dump(tmp_path, name):
    dump = Dump(lay(tmp_path / name, PAGES))
    assert list(dump) == PAGES
    assert dump.site.name == "Wikipedia"
    assert dump.site.first_letter
    assert dump.bytes_read == (tmp_path / name).stat().st_size


def test_a_multistream_dump_is_read_through_all_its_streams(tmp_path):
    streams = [HEAD, *map(page_xml, PAGES), TAIL]
    path = tmp_path / "multistream.xml.bz2"
    path.write_bytes(b"".join(bz2.compress(stream.encode()) for stream in streams))
    assert list(Dump(path)) == PAGES


def test_the_latest_revision_counts_and_other_ids_do_not(tmp_path):
    first = "<revision><id>5</id><text>old</text></revision>"
    data = xml(PAGES[:1]).replace(b"<revision>", first.encode() + b"<revision>", 1)
    path = tmp_path / "d.xml"
    path.write_bytes(data)
    assert list(Dump(path)) == PAGES[:1]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ('<text xml:space="preserve">', '<text xml:space="preserve" deleted="deleted"/><x>', ""),
        ("<model>wikitext</model>", "<model>json</model>", ""),
        ("<model>wikitext</model>", "", PAGES[0].text),
    ],
)
def test_pages_without_wikitext(tmp_path, before, after, text):
    data = xml(PAGES[:1]).decode().replace(before, after)
    (tmp_path / "d.xml").write_text(data.replace("</text>", "</x>") if "<x>" in after else data)
    assert [page.text for page in Dump(tmp_path / "d.xml")] == [text]


def test_old_dumps_tell_the_namespace_by_the_title_alone(tmp_path):
    data = xml([article(1, "File:A", "x"), article(2, "Filed: B", "x")]).replace(b"<ns>0</ns>", b"")
    (tmp_path / "d.xml").write_bytes(data)
    assert [page.namespace for page in Dump(tmp_path / "d.xml")] == [6, 0]


def test_a_wiki_in_another_language(tmp_path):
    head = HEAD.replace(">File<", ">Datei<").replace("<case>first-letter", "<case>case-sensitive")
    dump = Dump(lay(tmp_path / "d.xml", PAGES, head=head))
    list(dump)
    assert not dump.site.first_letter
    assert {"datei", "file", "image", "category"} <= dump.site.unseen


def broken(data, place):
    """Where a dump is broken by a stray `<` that is put in at a place of its last page."""
    return data[:place] + b"<<" + data[place:]


@pytest.mark.parametrize("end", [".xml", ".xml.bz2"])
def test_broken_xml_names_the_byte(tmp_path, end):
    data = xml(PAGES * 50)
    place = data.rindex(b"Vanir")
    path = tmp_path / f"d{end}"
    path.write_bytes(bz2.compress(broken(data, place)) if end.endswith("bz2") else broken(data, place))
    line = data[:place].count(b"\n") + 1
    with pytest.raises(
        FormatError, match=rf"d{end}: broken at byte {place + 1:,} of the XML .line {line}.: "
    ):
        list(Dump(path))
    with pytest.raises(FormatError, match="broken at byte"):  # that it ends too early is another matter
        list(Dump(path, truncated=True))


def test_bytes_that_are_no_text(tmp_path):
    data = xml(PAGES).replace("Æ".encode(), b"\xff")
    (tmp_path / "d.xml").write_bytes(data)
    with pytest.raises(FormatError, match=f"broken at byte {data.index(bytes([255])):,} of the XML"):
        list(Dump(tmp_path / "d.xml"))


def test_a_dump_that_ends_too_early(tmp_path):
    data = xml(PAGES)
    for cut in (len(data) - len(TAIL), data.rindex(b"<revision>"), data.rindex(b"evision>")):
        path = tmp_path / "d.xml"
        path.write_bytes(data[:cut])
        with pytest.raises(FormatError, match="ends too early, at byte"):
            list(Dump(path))
        whole = 4 if cut == len(data) - len(TAIL) else 3
        assert list(Dump(path, truncated=True)) == PAGES[:whole]


def test_compression_that_ends_too_early_or_is_broken(tmp_path):
    data = bz2.compress(xml(PAGES * 3000))
    path = tmp_path / "d.xml.bz2"
    path.write_bytes(data[: len(data) - 20])
    with pytest.raises(FormatError, match=rf"the file ends too early, at byte {len(data) - 20:,}"):
        list(Dump(path))
    found = list(Dump(path, truncated=True))
    whole = bz2.BZ2Decompressor().decompress(path.read_bytes()).count(b"</page>")
    assert len(found) == whole > 8000, "all that can be unpacked is read"
    path.write_bytes(data[:400] + bytes(100) + data[500:])
    with pytest.raises(FormatError, match=r"broken compression before byte [\d,]+ of the file"):
        list(Dump(path, truncated=True))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<html><body>404</body></html>", "expected <mediawiki>, found <html>"),
        (b'<!DOCTYPE x [<!ENTITY a "b">]><mediawiki/>', "document type"),
        (b"", "ends too early, at byte 0"),
        (b"7z\xbc\xaf\x27\x1c", "unpack it first"),
        (b"<mediawiki><page><title>A</title><id>x</id></page></mediawiki>", "expected a page with title, id"),
        (b"<mediawiki><page><id>1</id></page></mediawiki>", "expected a page with title, id"),
    ],
)
def test_files_that_are_no_dump(tmp_path, data, words):
    path = tmp_path / "d.xml"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=words):
        list(Dump(path, truncated=bool(data)))


def test_no_such_dump(tmp_path):
    with pytest.raises(FormatError, match=r"x\.xml: no such file"):
        list(Dump(tmp_path / "x.xml"))


def test_memory_is_that_of_a_page_not_of_the_dump(tmp_path):
    path = tmp_path / "d.xml"
    text = "word " * 2000
    with path.open("wb") as stream:
        stream.write(HEAD.encode())
        for id in range(1, 2001):
            stream.write(page_xml(article(id, f"T{id}", text)).encode())
        stream.write(TAIL.encode())
    tracemalloc.start()
    assert sum(1 for _ in Dump(path)) == 2000  # 20 MB of text
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e6


# --- titles


@pytest.mark.parametrize(
    ("target", "title"),
    [
        ("apple", "Apple"),
        ("Apple pie", "Apple pie"),
        (" apple__pie_ ", "Apple pie"),
        ("apple\u00a0pie", "Apple pie"),
        ("Apple#History", "Apple"),
        ("#History", ""),
        (":Category:Fruit", "Category:Fruit"),
        (":apple", "Apple"),
        ("AT&amp;T", "AT&T"),
        ("Caf%C3%A9", "Café"),
        ("100% Wolf", "100% Wolf"),
        ("50%FF", "50%FF"),
        ("cafe\u0301", "Café"),
        ("éclair", "Éclair"),
        ("ßoot", "ßoot"),
        ("Apple\u200e", "Apple"),
        ("2001: A Space Odyssey", "2001: A Space Odyssey"),
        ("", ""),
    ],
)
def test_targets_as_titles(target, title):
    assert normal(target) == title


def test_a_wiki_that_minds_the_first_letter():
    assert normal("apple_pie", first_letter=False) == "apple pie"


def titles_of(tmp_path, *files):
    """Titles from rows (title, id or title it leads to), one list per dump file."""
    paths = []
    for number, rows in enumerate(files):
        listing = Listing()
        for title, value in rows:
            if isinstance(value, int):
                listing.article(title, value)
            else:
                listing.redirect(title, value)
            listing.pages += 1
        paths.append(tmp_path / f"{number}.npz")
        listing.save(paths[-1])
    return Titles.load(paths)


def test_redirects_are_followed_to_their_end(tmp_path):
    chain = [(f"R{i}", f"R{i + 1}") for i in range(100)]
    found = titles_of(tmp_path, [*chain, ("R100", "Apple"), ("Apple", 7), ("Lost", "Nothing")])
    assert found.find(["R0", "R57", "R100", "Apple", "Lost", "Nothing"]) == [7, 7, 7, 7, NOWHERE, NOWHERE]
    assert (len(found), found.redirects, found.lost) == (1, 102, 1)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_redirects_in_a_circle_lead_nowhere(tmp_path, size):
    circle = [(f"R{i}", f"R{(i + 1) % size}") for i in range(size)]
    found = titles_of(tmp_path, [*circle, ("Into", "R0"), ("Apple", 7), ("Fine", "Apple")])
    assert found.find([*(title for title, _ in circle), "Into", "Fine"]) == [NOWHERE] * (size + 1) + [7]


@given(
    st.lists(st.tuples(st.integers(0, 15), st.one_of(st.integers(100, 105), st.integers(0, 17))), max_size=30)
)
def test_titles_against_a_walk_through_a_dictionary(tmp_path_factory, rows):
    named = [(f"T{a}", b if b >= 100 else f"T{b}") for a, b in rows]
    known: dict[str, object] = {}
    for title, value in named:
        known.setdefault(title, value)

    def walk(title):
        seen = set()
        while isinstance(title, str):
            if title in seen or title not in known:
                return NOWHERE
            seen.add(title)
            title = known[title]
        return title

    found = titles_of(tmp_path_factory.mktemp("t"), named[:10], named[10:])
    asked = [f"T{i}" for i in range(18)]
    assert found.find(asked) == [walk(title) for title in asked]
    assert len(found) == len({value for value in known.values() if isinstance(value, int)})


def test_of_two_pages_with_one_title_or_one_id_the_first_is_the_document(tmp_path):
    first = [("Apple", 7), ("Pear", 8)]
    second = [("Pear", 9), ("Moved apple", 7), ("Plum", 10)]
    found = titles_of(tmp_path, first, second)
    assert found.find(["Apple", "Pear", "Moved apple", "Plum"]) == [7, 8, 7, 10]
    places = {place: title for place, (title, _) in enumerate([*first, *second])}
    assert [place for place, title in places.items() if found.is_document(title, place)] == [0, 1, 4]
    assert found.files == (2, 3)


def test_a_sample_depends_on_titles_and_seed_alone(tmp_path):
    rows = [(f"T{i}", i) for i in range(1, 201)]
    shuffled = random.Random(0).sample(rows, len(rows))
    one, two = titles_of(tmp_path, rows), titles_of(tmp_path, shuffled[:50], shuffled[50:])
    assert one.sample(20, 0) == two.sample(20, 0)
    assert len(one.sample(20, 0)) == 20
    assert one.sample(20, 0) != one.sample(20, 1)
    assert one.sample(500, 0) == frozenset(range(1, 201))


def test_titles_take_few_bytes(tmp_path):
    found = titles_of(tmp_path, [(f"T{i}", i) for i in range(1, 2001)])
    assert sum(array.nbytes for array in (found.keys, found.ids, found.places, found.own)) == 2000 * 17
    assert found.keys.dtype == np.uint64


# --- wikitext


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''An''' ''apple''.", "An apple."),
        ("[[Apple]]s and [[Pear|pears]] and [[Plum|]].", "Apples and pears and Plum."),
        ("A [[:Category:Fruit]] and [[fr:Pomme]]", "A Category:Fruit and"),
        ("a{{b|c={{d|{{e}}}}}}f", "af"),
        ("a{{{1|{{b}}}}}c {{{{{d}}}}}e", "ac e"),
        ("a {{b c", "a {{b c"),
        ("a }} b {{c}}", "a }} b"),
        ("a {{b {{c}} d", "a {{b d"),
        ("a<!-- b {{c -->d", "ad"),
        ("a<!-- b", "a"),
        ("a<ref>b</ref>c<ref name=d/>e<ref name='f/g'>h</ref>i", "acei"),
        ("a<ref>b</REF >c", "ac"),
        ("a<ref name=x>b", "ab"),
        ("<references><ref>b</ref></references>a", "a"),
        ("a <nowiki>[[b]] ''c'' {{d}}</nowiki> e", "a [[b]] ''c'' {{d}} e"),
        ("a<math>x^2 {{</math> b", "a b"),
        ("a <small>b</small><br />c", "a b c"),
        ("a\n{|\n| b\n{|\n|c\n|}\n|}\nd", "a\n\nd"),
        ("a\n:{| class=x\n| b\n|}\nd", "a\n\nd"),
        ("a\n{|\n| b\n\nc", "a\n\nc"),
        ("a <table><tr><td>b</td></tr></table> c", "a c"),
        ("a [[File:b.png|thumb|c [[d]] [http://x y]]] e", "a e"),
        ("a [[Image:b.png|thumb|[[c|[[d]]]]]] e", "a e"),
        ("a [[File:b|x [[File:c|[[d]]]] e]] f", "a f"),
        ("a [[Category:B]]", "a"),
        ("a [http://x.org b c] [http://x.org] http://y.org/z d", "a b c d"),
        ("a &amp; b&nbsp;c &lt;d&gt;", "a & b c <d>"),
        ("Ann ({{x}}; born {{y}}, 1900 {{z}}) was.", "Ann (born, 1900) was."),
        ("Ann ({{x}}) was ({{y}}, {{z}}).", "Ann was."),
        ("* a\n* b\n# c", "a\n\nb\n\nc"),
        ("a\nb\n\nc", "a b\n\nc"),
        ("__NOTOC__a", "a"),
        ("== B ==\nc", "B\n\nc"),
        ("== B ==\n{{c}}\n=== D ===\ne", "D\n\ne"),
        ("İİİ<ref>b</ref>c", "İİİc"),
    ],
)
def test_plain_text(wikitext, text):
    assert plain(wikitext) == text


@pytest.mark.parametrize(
    ("wikitext", "targets"),
    [
        ("[[a]] [[b|c]] [[d#e|f]]", ["a", "b", "d#e"]),
        ("{{x|[[a]]}} [[b]]", ["b"]),
        ("<ref>[[a]]</ref> [[b]]<ref name=x/> [[c]]", ["b", "c"]),
        ("<ref name=x>[[a]]<references/> [[b]]", ["a", "b"]),
        ("[[File:x.png|thumb|[[a]] and [[b]]]] [[c]]", ["c"]),
        ("[[File:x.png|thumb|[[a]] and [[c]]", ["a", "c"]),
        ("[[file : x.png]] [[:File:x.png]]", [":File:x.png"]),
        ("[[Category:a]] [[:Category:a]]", [":Category:a"]),
        ("{|\n| [[a]]\n|}\n[[b]]", ["b"]),
        ("<nowiki>[[a]]</nowiki> <!-- [[b]] --> '''[[c]]'''", ["c"]),
        ("[[a\nb]] [[c|d\ne]]", ["c"]),
        ("[[a [[b]] c]]", ["b"]),
        ("[[a|b [c] d]] [[e|[f]]]", ["a", "e"]),
        ("[http://x [[a]]]", ["a"]),
        ("[[]] [[|a]] [[b", []),
    ],
)
def test_links_of_running_text(wikitext, targets):
    assert [link.target for link in links(wikitext)] == targets


def test_images_of_a_wiki_in_another_language():
    assert [link.target for link in links("[[Datei:x|[[a]]]] [[b]]", unseen={"datei"})] == ["b"]


def test_anchors():
    assert [link.anchor for link in links("[[a]] [[b|c]] [[d|]]")] == ["a", "c", "d"]


@pytest.mark.parametrize(
    ("heading", "level", "title"),
    [
        ("==B==", 2, "B"),
        ("== B ==  ", 2, "B"),
        ("=== ''B'' [[C|c]] ===", 3, "B c"),
        ("== B == <!-- c -->", 2, "B"),
        ("== {{anchor|x}} B =={{y}}", 2, "B"),
        ("===B==", 2, "=B"),
        ("== B = C ==", 2, "B = C"),
    ],
)
def test_headings(heading, level, title):
    found = sections(f"{{{{t|\n== no ==\n}}}}a\n{heading}\nb {{{{u|[[c]]}}}}\n")
    assert [(part.level, part.title) for part in found] == [(0, ""), (level, title)]
    assert found[1].templates == ("{{u|[[c]]}}",)
    assert found[1].whole.strip() == "b {{u|[[c]]}}"
    assert [link.target for link in all_links(found[1])] == ["c"]


def test_what_is_no_heading():
    text = "a == b ==\n<nowiki>\n== c ==\n</nowiki>\n== d\n<!--\n== e ==\n-->"
    assert [part.title for part in sections(text)] == [""]


WORDS = st.sampled_from(["pear", "1900", "it's", "a b", "x]", "[y", "{z", "= w", "café"])
TARGETS = st.sampled_from(["Apple", "Pear tree", "2001: X", "Café"])


def grown(inside):
    """Wikitext made of parts whose links are known: (wikitext, links that are running text)."""
    text = WORDS.map(lambda word: (word, []))
    link = st.builds(lambda target: (f"[[{target}]]", [target]), TARGETS)
    named = st.builds(lambda target, word: (f"[[{target}|{word.strip('[]')}]]", [target]), TARGETS, WORDS)
    bold = inside.map(lambda part: (f"'''{part[0]}'''", part[1]))
    template = inside.map(lambda part: (f"{{{{t|x={part[0]}}}}}", []))
    reference = inside.map(lambda part: (f"<ref name=a>{part[0]}</ref>", []))
    comment = inside.map(lambda part: (f"<!-- {part[0]} -->", []))
    return st.one_of(text, link, named, bold, template, reference, comment)


PART = st.recursive(WORDS.map(lambda word: (word, [])), grown, max_leaves=12)
TREE = st.lists(PART, max_size=6).map(
    lambda parts: (" ".join(text for text, _ in parts), [target for _, found in parts for target in found])
)


@given(TREE)
def test_links_of_wikitext_grown_from_known_parts(tree):
    wikitext, expected = tree
    if "<ref name=a><ref" in wikitext or wikitext.count("<!--") > 1 or wikitext.count("<ref") > 1:
        return  # these do not nest in MediaWiki either
    assert [link.target for link in links(wikitext)] == expected


@given(st.text(st.sampled_from("[]{}|='<!->/refnowik \n*:\x7f"), max_size=80))
def test_no_wikitext_is_too_odd(wikitext):
    for part in sections(wikitext):
        assert MARK not in plain(wikitext)
        assert part.body.count(MARK) == len(part.templates)
        section_links(part.body)
    assert sections(wikitext)[0].level == 0


HARD = [
    "{{",
    "}}",
    "{{a|",
    "[[",
    "[[File:a|",
    "<ref>",
    "<ref",
    "<!--",
    "'''",
    "{|\n",
    "\n|}",
    "==",
    "\n== ",
    "[a ",
]
HARD += [
    "(, ",
    "&",
    ",",
    ", ",
    "a\n",
    "= ",
    " ",
    "\n ",
    "[//",
    "[//a ",
    "<a ",
    "<table ",
    "[[a|[b]",
    "__A",
    "-",
    "(",
]


@pytest.mark.parametrize("piece", HARD)
def test_the_time_is_linear_in_the_length(piece):
    wikitext = "= [// " + piece * (600_000 // len(piece))
    began = time.process_time()
    plain(wikitext)
    links(wikitext)
    assert time.process_time() - began < 20  # a quadratic step would take hours


# --- grades


SITE = Site()


def linked(text, **config):
    found = read_article(article(1, "A", text), SITE, WikipediaConfig(**config))
    return found.linked[3], found.linked[2], found.linked[1]


@pytest.mark.parametrize(
    "heading",
    [
        "== See also ==",
        "==See also==",
        "==See Also==",
        "===see also===",
        "== See also: ==",
        "== ''See also'' ==",
    ],
)
def test_see_also_however_it_is_written(heading):
    text = f"[[lead]]\n== History ==\n[[body]]\n{heading}\n* [[near]]\n== References ==\n* [[source]]"
    assert linked(text) == (["Near"], ["Lead"], ["Body", "Source"])


@pytest.mark.parametrize(
    "heading", ["External links", "Further reading", "See also references", "Also", "Notes"]
)
def test_sections_that_are_not_see_also(heading):
    text = f"[[lead]]\n== {heading} ==\n* [[other]] [http://x y]"
    assert linked(text) == ([], ["Lead"], ["Other"])


def test_see_also_ends_with_the_next_heading_of_its_level():
    text = "x\n== See also ==\n[[a]]\n=== People ===\n[[b]]\n== External links ==\n[[c]]"
    assert linked(text) == (["A", "B"], [], ["C"])


def test_see_also_lists_inside_templates_and_tables_count():
    text = (
        "{{Infobox|[[i]]}}[[lead]]\n== B ==\n{{t|[[no]]}}{|\n|[[no]]\n|}\n== See also ==\n{{portal|X}}\n"
        "{{columns-list|\n* [[a]]\n* [[b]]}}\n{|\n|[[c]]\n|}\n[[File:x|[[no]]]]\n[[Category:X]]"
    )
    assert linked(text) == (["A", "B", "C"], ["Lead"], [])


def test_see_also_links_that_are_written_as_templates_count():
    text = (
        "[[lead]] {{annotated link|no}}\n== See also ==\n* {{Annotated link|near one}}\n"
        "* {{annotated_link |next|another name}}\n* {{annotated link}}\n* {{portal|X}}\n* [[plain]]"
    )
    assert linked(text) == (["Near one", "Next", "Plain"], ["Lead"], [])


def test_the_references_take_the_place_of_a_missing_see_also():
    text = (
        "[[lead]]<ref>[[no]]</ref>\n== B ==\n[[body]]\n"
        "== References ==\n{{reflist|refs=<ref>{{cite|[[a]]}}</ref>}}\n"
        "* {{cite book|author=[[b]]}}\n* [[c]]\n=== Books ===\n[[d]]\n== External links ==\n[[e]]"
    )
    assert linked(text) == (["A", "B", "C", "D"], ["Lead"], ["Body", "E"])
    assert linked(text.replace("References", "Notes and references"))[0] == ["A", "B", "C", "D"]


def test_a_see_also_without_links_is_a_see_also():
    text = "[[lead]]\n== See also ==\n{{portal}}\n== References ==\n* [[a]]"
    assert linked(text) == ([], ["Lead"], ["A"])


def test_headings_in_another_language():
    text = "x\n== Siehe auch ==\n[[a]]\n== See also ==\n[[b]]"
    assert linked(text, see_also=("siehe auch",)) == (["A"], [], ["B"])


def test_the_abstract_is_the_first_section_and_the_text_is_cut():
    found = read_article(
        article(1, "A", "One two.\n\nThree.\n== B ==\nFour five six."), SITE, WikipediaConfig(words=5)
    )
    assert (found.abstract, found.text) == ("One two.\n\nThree.", "One two.\n\nThree.\n\nB\n\nFour")
    whole = read_article(article(1, "A", "One.\n== B ==\nTwo."), SITE, WikipediaConfig(words=0))
    assert whole.text == "One.\n\nB\n\nTwo."


@pytest.mark.parametrize(
    ("page", "is_one"),
    [
        (article(1, "Apple", "An apple. {{About|x|y|Apple (disambiguation)}}"), True),
        (article(1, "Apple", "An apple.{{disambiguation needed|date=x}}"), True),
        (article(1, "Apple", "* [[A]]\n{{disambiguation}}"), False),
        (article(1, "Apple", "* [[A]]\n{{Disambig|geo}}"), False),
        (article(1, "Apple", "* [[A]]\n{{ hndis |name=x}}"), False),
        (article(1, "Apple", "* [[A]]\n{{Place name disambiguation}}"), False),
        (article(1, "Apple", "* [[A]]\n{{human_name_disambiguation cleanup}}"), False),
        (article(1, "Apple", "* [[A]]\n{{set_index article}}"), False),
        (article(1, "Apple", "__DISAMBIG__"), False),
        (article(1, "Apple (disambiguation)", "* [[A]]"), False),
        (article(1, "List of apples", "* [[A]]"), False),
        (article(1, "Listed building", "A building."), True),
        (article(1, "Apple", "#redirect [[Pear]]"), False),
        (leads(1, "Apple", "Pear"), False),
        (Page(1, "Talk:Apple", 1, "", "x"), False),
        (article(1, "Apple", " \n"), False),
    ],
)
def test_which_pages_are_articles(page, is_one):
    assert is_article(page, WikipediaConfig()) == is_one


@pytest.mark.parametrize(
    "wrong", [{"words": -1}, {"limit": 0}, {"sample": 0}, {"per_grade": 0}, {"queries": 0}]
)
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match="at least"):
        WikipediaConfig(**wrong)


# --- the two passes


def fruit(title, lead="", *rest):
    return f"The {title.lower()} is a good fruit{lead}.\n" + "\n".join(rest)


ORCHARD = [
    article(
        11,
        "Apple",
        fruit(
            "Apple",
            " of the [[tree]] and of [[Pear]] and [[Nothing]]",
            "== B ==\n[[plums]] [[Talk:X]] [[Apple]]",
        )
        + "\n== See also ==\n* [[The pear]]\n* [[fr:Pomme]]\n* [[List of fruits]]",
    ),
    leads(12, "The pear", "Pears"),
    leads(13, "Pears", "Pear#Uses"),
    leads(14, "Round", "Round and round"),
    leads(15, "Round and round", "Round"),
    article(16, "Pear", fruit("Pear", "", "== References ==\n{{cite|[[apple]]}} [[Round]]")),
    Page(17, "Talk:X", 1, "", "No."),
    article(18, "Plum", "No sentence\n== B ==\n[[Tree]]"),
    leads(19, "Plums", "Plum"),
    article(20, "Tree", "The tree is a tall plant. It is green in summer.\n[[File:x.png|[[Plum]]]]\n"),
    article(21, "List of fruits", "* [[Apple]]"),
    article(22, "Mercury", "* [[Apple]]\n{{disambiguation}}"),
    leads(23, "Quicksilver", "Mercury"),
]
JUDGED = {
    "11-1": {"11": 4, "16": 3, "20": 2, "18": 1},
    "16-1": {"16": 4, "11": 3},
    "20-1": {"20": 4},
}


@pytest.fixture
def sentences():
    """Queries need the extra `wikipedia`."""
    pytest.importorskip("sentencex", reason="finding sentences needs the extra `wikipedia`")


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_dump_becomes_a_graded_collection(tmp_path, sentences):
    dump = lay(tmp_path / "d.xml.bz2", ORCHARD)
    tally = build([dump], tmp_path / "out")
    made = read_folder(tmp_path / "out")
    verify(tmp_path / "out")
    assert made.qrels == {"train": JUDGED}
    assert made.grades == 4
    assert [(document.docno, document.title) for document in made.documents] == [
        ("11", "Apple"),
        ("16", "Pear"),
        ("18", "Plum"),
        ("20", "Tree"),
    ]
    assert made.queries["16-1"] == "The pear is a good fruit."
    assert made.queries["11-1"] == "The apple is a good fruit of the tree and of Pear and Nothing."
    assert made.queries["20-1"] in ("The tree is a tall plant.", "It is green in summer.")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["pairs_per_grade"] == {"4": 3, "3": 2, "2": 1, "1": 1}
    assert (report["documents"], report["queries"], report["with_see_also"]) == (4, 3, 1)
    assert (report["redirects"], report["redirects_to_no_article"]) == (6, 3)
    assert report["dumps"] == [{"name": "d.xml.bz2", "bytes": dump.stat().st_size}]
    assert "4 documents, 3 queries, 7 pairs" in str(tally)
    assert not (tmp_path / "out.making").exists()


def test_neither_order_nor_files_change_anything(tmp_path, sentences):
    build([lay(tmp_path / "d.xml", ORCHARD)], tmp_path / "one")
    shuffled = random.Random(3).sample(ORCHARD, len(ORCHARD))
    parts = [lay(tmp_path / "a.xml", shuffled[:5]), lay(tmp_path / "b.xml.bz2", shuffled[5:])]
    build(parts, tmp_path / "two")
    assert read_folder(tmp_path / "one").fingerprint == read_folder(tmp_path / "two").fingerprint


def wide(count=40, first=1):
    """Articles that all link to each other from each kind of section."""
    rows = []
    for i in range(count):
        near, lead, rest = (" ".join(f"[[T{j}]]" for j in range(k, count, 3)) for k in range(3))
        text = f"This is the fine text of {i}. It goes on with {i} words. {lead}\n"
        text += f"== B ==\n{rest}\n== See also ==\n{near}"
        rows.append(article(i + first, f"T{i}", text))
    return rows


def test_a_few_are_drawn_of_each_grade(tmp_path, sentences):
    dump = lay(tmp_path / "d.xml", wide())
    build([dump], tmp_path / "zero", WikipediaConfig(per_grade=3))
    build([dump], tmp_path / "one", WikipediaConfig(per_grade=3, seed=1))
    zero, one = read_folder(tmp_path / "zero"), read_folder(tmp_path / "one")
    for qid, judged in zero.split("train").items():
        own = int(qid.split("-")[0]) - 1
        assert sorted(judged.values()) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4]
        for docno, grade in judged.items():
            kind = {0: 3, 1: 2, 2: 1}[(int(docno) - 1) % 3]
            assert grade == (4 if int(docno) - 1 == own else kind)
    assert zero.qrels != one.qrels
    drawn = {
        docno for judged in zero.split("train").values() for docno, grade in judged.items() if grade == 3
    }
    assert len(drawn) > 8  # not the same three for all


def test_several_queries_of_an_article(tmp_path, sentences):
    build([lay(tmp_path / "d.xml", wide(4))], tmp_path / "out", WikipediaConfig(queries=5))
    made = read_folder(tmp_path / "out")
    assert {made.queries["2-1"], made.queries["2-2"]} == {
        "This is the fine text of 1.",
        "It goes on with 1 words.",
    }
    assert made.split("train")["2-1"] == made.split("train")["2-2"]
    assert len(made.queries) == 8


def test_a_limit_reads_no_further(tmp_path, sentences):
    good, bad = xml(wide(), tail="").decode(), "<<<"
    (tmp_path / "d.xml").write_text(good + " " * (1 << 20) + bad)
    build([tmp_path / "d.xml", tmp_path / "d.xml"], tmp_path / "out", WikipediaConfig(limit=10))
    made = read_folder(tmp_path / "out")
    assert list(made.docnos) == [str(id) for id in range(1, 11)]
    assert all(docno in made.docnos for judged in made.split("train").values() for docno in judged)


def test_a_sample_asks_and_what_it_links_to_is_there(tmp_path, sentences):
    dump = lay(tmp_path / "d.xml", wide(120))
    build([dump], tmp_path / "all", WikipediaConfig(per_grade=2))
    tally = build([dump], tmp_path / "some", WikipediaConfig(per_grade=2, sample=5))
    whole, some = read_folder(tmp_path / "all"), read_folder(tmp_path / "some")
    assert len(some.queries) == tally.queries == tally.looked_at == tally.with_see_also == 5
    assert some.queries.items() <= whole.queries.items()
    assert {qid: whole.split("train")[qid] for qid in some.queries} == some.split("train")
    judged = {docno for row in some.split("train").values() for docno in row}
    assert set(some.docnos) == judged
    assert {d for d in whole.documents if d.docno in judged} == set(some.documents)


class Stop(Exception):
    """Somebody pulls the plug."""


@pytest.mark.parametrize("pages", [0, 1, 4, 9, 12])
def test_an_interrupted_build_goes_on_and_ends_with_the_same_bytes(tmp_path, sentences, monkeypatch, pages):
    monkeypatch.setattr(building, "PART", 4)
    rows = wide(14, first=101)
    dumps = [lay(tmp_path / "a.xml.bz2", [*ORCHARD, *rows[:5]]), lay(tmp_path / "b.xml", rows[5:])]
    build(dumps, tmp_path / "whole")
    whole = read_folder(tmp_path / "whole")
    done = []

    def counted(page, *rest, **options):
        if len(done) == pages:
            raise Stop
        done.append(page.title)
        return read_article(page, *rest, **options)

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(building, "read_article", counted)
        build(dumps, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    kept = sorted(path.name for path in (tmp_path / "out.making").iterdir())
    parts = "".join(path.read_text() for path in (tmp_path / "out.making").glob("part-*.jsonl"))
    finished = {json.loads(line)["id"] for line in parts.splitlines()}
    with pytest.raises(ValueError, match="interrupted build"):
        build(dumps, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out.making").iterdir()) == kept
    with pytest.raises(ValueError, match="other config"):
        build(dumps, tmp_path / "out", WikipediaConfig(seed=1), resume=True)
    again, listed = [], []
    monkeypatch.setattr(
        building, "read_article", lambda page, *a, **o: again.append(page) or read_article(page, *a, **o)
    )
    monkeypatch.setattr(building, "is_article", lambda *a: listed.append(a) or is_article(*a))
    build(dumps, tmp_path / "out", resume=True)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    assert not listed  # the titles were there
    assert {page.id for page in again} == {int(docno) for docno in whole.docnos} - finished
    assert bool(finished) == (pages > 0)


@pytest.mark.parametrize("left", [[], ["part-00000.jsonl", "titles-00000.npz"]])
def test_a_build_that_was_killed_before_it_said_what_it_is_starts_anew(tmp_path, sentences, left):
    """Or while its finished work was removed: what is left belongs to nothing that is known."""
    dump = lay(tmp_path / "d.xml", ORCHARD)
    build([dump], tmp_path / "whole")
    (tmp_path / "out.making").mkdir()
    for name in left:
        (tmp_path / "out.making" / name).write_text('{"id": 1, "title": "other", "text": ""}\n')
    build([dump], tmp_path / "out", resume=True)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    assert not (tmp_path / "out.making").exists()


def test_an_interruption_in_the_first_pass_keeps_the_listed_files(tmp_path, sentences, monkeypatch):
    rows = wide(9)
    dumps = [lay(tmp_path / "a.xml", rows[:5]), lay(tmp_path / "b.xml", rows[5:])]
    build(dumps, tmp_path / "whole")

    def stop(page, config):
        if page.title == "T7":
            raise KeyboardInterrupt
        return is_article(page, config)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(building, "is_article", stop)
        build(dumps, tmp_path / "out")
    listed = []
    monkeypatch.setattr(
        building, "is_article", lambda page, config: listed.append(page) or is_article(page, config)
    )
    build(dumps, tmp_path / "out", resume=True)
    assert [page.title for page in listed] == ["T5", "T6", "T7", "T8"]
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_a_broken_dump_that_was_mended_goes_on_with_the_listings_before_it(tmp_path, sentences, monkeypatch):
    pages = wide(8)
    dumps = [lay(tmp_path / "a.xml", pages[:4]), lay(tmp_path / "b.xml", pages[4:])]
    build(dumps, tmp_path / "whole")
    mended = dumps[1].read_bytes()
    dumps[1].write_bytes(mended.replace(b"</title>", b"", 1))
    with pytest.raises(FormatError, match=r"b\.xml: .*expected text in <title>, found <ns>, at byte 425"):
        build(dumps, tmp_path / "out")
    dumps[1].write_bytes(mended)
    listed = []
    monkeypatch.setattr(
        building, "is_article", lambda page, config: listed.append(page) or is_article(page, config)
    )
    build(dumps, tmp_path / "out", resume=True)
    assert listed == list(Dump(dumps[1]))
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_a_changed_dump_is_not_mixed_with_what_was_made_of_another(tmp_path, sentences, monkeypatch):
    dump = lay(tmp_path / "a.xml", wide(9))
    monkeypatch.setattr(building, "read_article", lambda *a, **o: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build([dump], tmp_path / "out")
    lay(tmp_path / "a.xml", wide(10))
    with pytest.raises(ValueError, match="other dumps; remove it"):
        build([dump], tmp_path / "out", resume=True)


def test_nothing_is_half_written_from_a_broken_dump(tmp_path):
    good = lay(tmp_path / "a.xml", wide(5))
    (tmp_path / "b.xml").write_bytes(broken(xml(ORCHARD), 900))
    with pytest.raises(FormatError, match=r"b\.xml: broken at byte"):
        build([tmp_path / "b.xml"], tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.xml", "b.xml"]
    with pytest.raises(FormatError, match=r"b\.xml: broken at byte"):
        build([good, tmp_path / "b.xml"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.xml", "b.xml", "out.making"]


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ([], "no article"),
        ([leads(1, "A", "B")], "no article"),
        ([Page(1, "Talk:A", 1, "", "x")], "no article"),
    ],
)
def test_a_dump_without_articles(tmp_path, pages, words):
    with pytest.raises(ValueError, match=words):
        build([lay(tmp_path / "d.xml", pages)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_dump_and_a_place_that_is_taken(tmp_path):
    with pytest.raises(ValueError, match="no dump is given"):
        build([], tmp_path / "out")
    with pytest.raises(FormatError, match="no such file"):
        build([tmp_path / "x.xml"], tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(ValueError, match="was not written by gr2"):
        build([lay(tmp_path / "d.xml", ORCHARD)], tmp_path / "mine")
    assert not (tmp_path / "mine.making").exists()


# --- the command line


def test_from_wikipedia(gr2, tmp_path, sentences):
    import_module("gr2.cli.pretraining")  # the commands are there once it is imported
    dumps = [lay(tmp_path / "a.xml.bz2", ORCHARD[:6]), lay(tmp_path / "b.xml", ORCHARD[6:], tail="")]
    command = ("collection", "from-wikipedia", *dumps, "--out")
    with pytest.raises(SystemExit, match="ends too early, at byte"):
        gr2(*command, tmp_path / "none")
    printed = gr2(*command, tmp_path / "out", "--truncated", "--per-grade", "1")
    assert "grade 4: 3, grade 3: 2, grade 2: 1, grade 1: 1" in printed
    assert read_folder(tmp_path / "out").qrels == {"train": JUDGED}


# --- the real pieces


def real_pages():
    """The pages of each article of the real pieces, the first version of each title."""
    if not DATA.is_dir():
        pytest.skip(f"the dump pieces are not at hand (looked in {DATA})")
    found = {}
    for name in PIECES:
        for page in Dump(DATA / f"enwiki-{name}.xml.bz2", truncated=True):
            if page.namespace == 0 and not page.redirect:
                found.setdefault(page.title, page)
    return list(found.values())


def flat(text):
    return [(part.title, [link.target for link in section_links(part.body)]) for part in sections(text)]


def naive(parser, text):
    """The same by mwparserfromhell: every link outside templates, tables, tags and images."""
    raw = {
        "ref",
        "references",
        "table",
        "math",
        "chem",
        "ce",
        "gallery",
        "timeline",
        "syntaxhighlight",
        "source",
    }
    raw |= {
        "score",
        "hiero",
        "imagemap",
        "pre",
        "nowiki",
        "section",
        "includeonly",
        "maplink",
        "mapframe",
        "graph",
    }

    def walk(code):
        for node in code.nodes:
            if isinstance(node, parser.nodes.Wikilink):
                if str(node.title).partition(":")[0].strip().lower() not in (
                    "file",
                    "image",
                    "category",
                    "media",
                ):
                    yield str(node.title).strip()
                    yield from walk(node.text) if node.text is not None else ()
            elif isinstance(node, parser.nodes.Tag) and str(node.tag).strip().lower() not in raw:
                yield from walk(node.contents) if node.contents is not None else ()
            elif isinstance(node, parser.nodes.ExternalLink) and node.title is not None:
                yield from walk(node.title)

    # With style tags, it takes the headings behind an unclosed '' for text.
    for section in parser.parse(text, skip_style_tags=True).get_sections(flat=True, include_lead=True):
        heading = section.filter_headings(recursive=False)
        yield (
            (heading[0].title.strip_code().strip().replace("''", "") if heading else ""),
            list(walk(section)),
        )


def test_the_real_pieces_have_the_known_numbers():
    pages = real_pages()
    # Their README counts 295 pages, 193 of them with See also, and 1,274 links: 54 of these lie in no dump.
    assert len(pages) == 241
    see_also = [
        (page, part) for page in pages for part in sections(page.text) if part.title.lower() == "see also"
    ]
    assert len({page.title for page, _ in see_also}) == 169
    config = WikipediaConfig()
    found = [read_article(page, SITE, config) for page in pages]
    assert sum(page.see_also for page in found) == 169
    annotated = sum(part.whole.lower().count("{{annotated link|") for _, part in see_also)
    assert sum(len(page.linked[3]) for page in found if page.see_also) == 1214 + annotated and annotated == 3


@pytest.mark.slow
def test_the_real_pieces_as_mwparserfromhell_reads_them():
    parser = pytest.importorskip("mwparserfromhell")
    different = [page.title for page in real_pages() if flat(page.text) != list(naive(parser, page.text))]
    # Both have a table that is indented by a colon, which mwparserfromhell takes for text.
    assert sorted(different) == ["Absolute value", "Astatine"]


@pytest.mark.slow
def test_the_real_pieces_become_a_collection(tmp_path, sentences):
    real_pages()
    tally = build(
        [DATA / f"enwiki-{name}.xml.bz2" for name in PIECES],
        tmp_path / "out",
        WikipediaConfig(truncated=True),
    )
    made = read_folder(tmp_path / "out")
    assert isinstance(made, Collection)
    assert len(made.docnos) == tally.documents == 222
    assert tally.with_see_also == 155
    for text in made.queries.values():
        assert not any(mark in text for mark in ("[[", "]]", "{{", "}}", "''", "<ref"))
