"""The health report: every figure against one computed by hand, the trie's against the definition."""

import json
import re
import sys
from collections import Counter
from dataclasses import replace
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gr2.bm25 import BM25, BM25Config
from gr2.data.collection import Collection, Document
from gr2.docids.clashes import add_documents, letters, resolve_clashes
from gr2.docids.codes import code_tokeniser, count
from gr2.docids.docids import Docids
from gr2.schemes.fusion.radius import AtRadius, as_dicts, as_table, neighbourhoods, suggested
from gr2.schemes.health import Depth, Health, health, side_by_side
from gr2.schemes.plots import draw_healths, draw_radii

ANIMALS = {"a": "cat", "b": "cats", "c": "cow", "d": "dog", "e": "dog", "f": "conger"}


def collection(texts: dict[str, str]) -> Collection:
    documents = tuple(Document(docno, text=text) for docno, text in texts.items())
    return Collection(name="toy", documents=documents, queries={}, qrels={})


def animals() -> Docids:
    """In order of tokens: cat, cats, cow, dog, "dog 2", eel."""
    names = {"a": "cat", "b": "cat cats", "c": "cow", "d": "dog", "e": "dog", "f": "cat cats eel"}
    proposals = {docno: [(text, 0.0) for text in row.split()] for docno, row in names.items()}
    return resolve_clashes(proposals, letters, {"scheme": "title", "words": 1})


def coded() -> Docids:
    """0-1, 0-2, 1-0 and "1-0 2", that is [0, 3], [0, 4], [1, 2] and [1, 2, 7]."""
    proposals = {"p": [("0-1", 0.0)], "q": [("0-2", 0.0)], "r": [("1-0", 0.0)], "s": [("1-0", 0.0)]}
    return resolve_clashes(proposals, code_tokeniser([2, 3]), {"scheme": "codes", "codes": count([2, 3])})


def coded_health() -> Health:
    return health(coded(), collection(dict.fromkeys("pqrs", "word")))


def animal_health(**options: int) -> Health:
    return health(animals(), collection(ANIMALS), **options)


def lines(found: Health) -> list[list[str]]:
    """What is printed, line by line, as cells."""
    return [re.split(r"\s{2,}", line.strip()) for line in found.as_text().splitlines()]


def printed(found: Health) -> dict[str, str]:
    """Name → figure, as printed."""
    return {cells[0]: cells[1] for cells in lines(found) if len(cells) == 3}


def test_clashes():
    found = animal_health()
    counts = {"rank 1": 3, "rank 2": 1, "rank 3 or later": 1, "resampled": 0, "numbered": 1}
    assert found.scheme == "title"
    assert found.documents == 6
    assert found.clashes == counts
    assert found.first_proposal == 0.5


def test_resampled_documents_are_counted():
    proposals = {"a": [("cat", 0.0)], "b": [("cat", 0.0)]}
    docids = resolve_clashes(
        proposals, letters, resample=lambda docnos, _: dict.fromkeys(docnos, [("cod", 0.0)]), tries=1
    )
    found = health(docids, collection({"a": "cat", "b": "cat"}))
    assert (found.clashes["rank 1"], found.clashes["resampled"], found.clashes["numbered"]) == (1, 1, 0)


def test_clashes_are_those_of_the_making_after_documents_went():
    """All six chose, so shares are of six, although only cat and cow are left."""
    left = animals().remove("bdef", fingerprint="")
    found = health(left, collection({"a": "cat", "c": "cow"}))
    assert (found.documents, found.first_proposal) == (2, 0.5)
    assert "got rank 1, of 6 when" in found.as_text()


def test_docids_that_tell_nothing_of_clashes():
    found = health(replace(animals(), clashes={}), collection(ANIMALS))
    assert found.first_proposal is None
    assert printed(found)["first proposal"] == "–"


def test_lengths():
    lengths = animal_health().lengths
    assert (lengths.least, lengths.mean, lengths.median, lengths.most) == (3, 3.5, 3, 5)
    assert lengths.counts == {3: 4, 4: 1, 5: 1}


def without_bits(health):
    return tuple(replace(row, bits=0.0) for row in health.depths)


def test_bits_of_each_token():
    """The first code tells 1 from 3, the second one more; the third tells the last two apart."""
    rows = ((0, 0), (1, 0), (1, 1, 0), (1, 1, 1))
    docids = Docids(tuple("abcd"), tuple("abcd"), rows, {"rank 1": 4}, {"codes": 2})
    found = health(docids, collection(dict.fromkeys("abcd", "word")))
    first = 1 / 4 * np.log2(4) + 3 / 4 * np.log2(4 / 3)
    assert [row.bits for row in found.depths] == pytest.approx([0, first, 1.5 - first, 0.5])


def test_depths():
    assert without_bits(animal_health()) == (
        Depth(0, 1, 3.0, 0, 0.0, 0.0),  # c d e
        Depth(1, 3, 4 / 3, 1, 1 / 6, 0.0),  # ca co, do, ee; eel is alone
        Depth(2, 4, 1.0, 2, 2 / 6, 0.0),  # cat, cow, dog, eel; cow is alone too
        Depth(3, 4, 6 / 4, 2, 2 / 6, 0.0),  # end or s, end, end or space, end
        Depth(4, 2, 1.0, 6, 1.0, 0.0),  # cats and "dog "; cat and dog have ended
        Depth(5, 1, 1.0, 6, 1.0, 0.0),
    )


def test_tokens_to_uniqueness():
    """eel needs 1, cow 2; cat, cats, dog and dog 2 need 4, for cat and dog the end is the fourth."""
    unique = animal_health().to_unique
    assert (unique.mean, unique.median, unique.counts) == (19 / 6, 4, {1: 1, 2: 1, 4: 4})


def test_entropy_by_place():
    places = animal_health().places
    three_two_one = 1 / 2 + log2(3) / 3 + log2(6) / 6
    expected = [
        (6, 3, three_two_one, log2(3)),  # c c c d d e
        (6, 3, three_two_one, log2(3)),  # a a o o o e
        (6, 4, 2 / 3 * log2(3) + 2 / 6 * log2(6), 2),  # t t w g g l
        (2, 2, 1, 1),  # s and space
        (1, 1, 0, 0),  # 2
    ]
    assert [place.place for place in places] == [0, 1, 2, 3, 4]
    for place, figures in zip(places, expected, strict=True):
        assert (place.docids, place.distinct, place.entropy, place.maximum) == pytest.approx(figures)


def test_all_places_are_known_and_eight_are_printed():
    found = health(resolve_clashes({"a": [("abcdefghij", 0.0)]}, letters), collection({"a": "word"}))
    assert [row.place for row in found.places] == list(range(10))
    printed = [line.split() for line in found.as_text().partition("Places")[2].splitlines()[1:]]
    assert [row[0] for row in printed if row[0].isdigit()] == [str(n) for n in range(8)]


def test_balance_is_measured_against_all_codes_that_could_stand_there():
    rows = {f"{i:02}": [(f"{i % 2}-{i}", 0.0)] for i in range(40)}
    read = code_tokeniser([64, 64])
    for about, most in (({"choices": 64}, np.log2(40)), ({"choices": 16}, 4), ({}, 1)):
        docids = resolve_clashes(rows, read, {"codes": 138, **about})
        first = health(docids, collection(dict.fromkeys(rows, "word"))).places[0]
        assert (first.entropy, first.distinct) == (pytest.approx(1), 2)
        assert first.maximum == pytest.approx(most), about


def test_unique_proposals_are_counted_before_anyone_chose():
    """Two propose `cat`, and `cow` is given to who wanted `cat`: its own proposer was alone with it."""
    rows = {"a": [("cat", 0.0)], "b": [("cat", -1.0), ("cow", -2.0)], "c": [("cow", -3.0)], "d": [("x", 0.0)]}
    docids = resolve_clashes(rows, letters)
    assert docids.unique == 2 and docids.clashes == {"numbered": 1, "rank 1": 2, "rank 2": 1}
    more = add_documents(docids, {"e": [("y", 0.0)]}, letters, fingerprint="")
    assert more.unique == 3 and more.remove(["a"], fingerprint="").unique == 3


def test_self_retrieval():
    """Ties go to the later docno: cat finds b, then a; dog finds e, then d. No document has the word eel."""
    retrieval = animal_health().retrieval
    assert retrieval is not None
    assert retrieval.documents == 6
    assert retrieval.mrr == pytest.approx((1 / 2 + 1 + 1 + 1 / 2 + 1 + 0) / 6)
    assert retrieval.hits == pytest.approx(3 / 6)


def test_reciprocal_ranks_are_cut_at_100():
    """All 101 documents tie, so the first docno is at rank 101."""
    texts = {f"{number:03}": "same" for number in range(101)}
    docids = resolve_clashes({docno: [("same", 0.0)] for docno in texts}, letters)
    retrieval = health(docids, collection(texts)).retrieval
    assert retrieval is not None
    assert retrieval.mrr == pytest.approx(sum(1 / rank for rank in range(1, 101)) / 101)


def test_a_sample_is_the_same_for_any_order_and_is_stated():
    backwards = collection(dict(reversed(ANIMALS.items())))
    found = animal_health(sample=4)
    assert found.retrieval == health(animals(), backwards, sample=4).retrieval
    assert found.retrieval is not None
    assert found.retrieval.documents == 4
    assert printed(found)["searched for"] == "4"
    assert animal_health(sample=6) == animal_health(sample=100) == animal_health()
    # What a sample leaves out is the search alone.
    assert replace(found, retrieval=None) == replace(animal_health(), retrieval=None)


def test_neighbours():
    """cat-cats 3 of 4, cats-cow 1 of 4, cow-dog 0, dog-dog 2 3 of 5, dog 2-eel 0; cats is stemmed to cat."""
    neighbours = animal_health().neighbours
    assert neighbours is not None
    assert neighbours.prefix == pytest.approx(7 / 5)
    assert neighbours.share == pytest.approx((3 / 4 + 1 / 4 + 3 / 5) / 5)
    assert neighbours.jaccard == pytest.approx((1 + 1 / 2) / 5)


def test_codes():
    found = coded_health()
    assert found.retrieval is None
    assert found.clashes["numbered"] == 1
    assert without_bits(found) == (
        Depth(0, 1, 2.0, 0, 0.0, 0.0),
        Depth(1, 2, 3 / 2, 0, 0.0, 0.0),
        Depth(2, 3, 4 / 3, 2, 0.5, 0.0),
        Depth(3, 1, 1.0, 4, 1.0, 0.0),
    )
    assert found.to_unique.mean == 2.5
    assert [place.entropy for place in found.places] == pytest.approx([1, 1.5, 0])
    assert found.neighbours is not None
    assert (found.neighbours.prefix, found.neighbours.jaccard) == (1, None)
    assert found.neighbours.share == pytest.approx((1 / 2 + 0 + 2 / 3) / 3)
    assert printed(found)["MRR@100"] == printed(found)["Hits@1"] == "–"


def test_exact_duplicates():
    """ab, ab 2, ab 3, ab 4: the first ends at depth 3, the others differ in their fourth letter."""
    docids = resolve_clashes({docno: [("ab", 0.0)] for docno in "wxyz"}, letters)
    found = health(docids, collection(dict.fromkeys("wxyz", "ab")))
    assert found.first_proposal == 1 / 4
    assert found.clashes["numbered"] == 3
    assert found.lengths.counts == {2: 1, 4: 3}
    assert found.to_unique.counts == {3: 1, 4: 3}
    assert [row.unique for row in found.depths] == [0, 0, 0, 1 / 4, 1]
    assert found.retrieval is not None
    assert found.retrieval.mrr == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert found.retrieval.hits == 1 / 4
    assert found.neighbours is not None
    assert found.neighbours.share == pytest.approx((2 / 4 + 3 / 4 + 3 / 4) / 3)
    assert found.neighbours.jaccard == pytest.approx((1 / 2 + 1 / 3 + 1 / 3) / 3)


def test_one_document_alone():
    found = health(resolve_clashes({"a": [("cat", 0.0)]}, letters), collection({"a": "a cat"}))
    assert found.neighbours is None
    assert (found.to_unique.mean, found.depths[0].unique) == (0, 1)
    assert found.retrieval is not None
    assert found.retrieval.mrr == 1
    assert printed(found)["neighbour Jaccard"] == "–"
    json.dumps(found.as_dict())


ROWS = st.sets(st.lists(st.integers(0, 3), max_size=5).map(tuple), min_size=1, max_size=30).map(sorted)


@settings(max_examples=60)
@given(ROWS)
def test_trie_figures_are_those_of_the_definition(rows):
    docnos = tuple(f"{number:02}" for number in range(len(rows)))
    docids = Docids(docnos, docnos, tuple(rows), {"rank 1": len(rows)}, {"codes": 4})
    found = health(docids, collection(dict.fromkeys(docnos, "word")))
    ended = [(*row, -1, *[-2] * 9) for row in rows]  # -1 is the end
    longest = max(map(len, rows))
    assert len(found.depths) == longest + 1
    known = 0.0
    for depth, row in enumerate(found.depths):
        starts = {each[:depth] for each in rows if len(each) >= depth}
        nexts = {each[: depth + 1] for each, plain in zip(ended, rows, strict=True) if len(plain) >= depth}
        cut = [each[:depth] for each in ended]
        assert row.nodes == len(starts)
        assert row.branching == pytest.approx(len(nexts) / len(starts))
        assert row.alone == sum(cut.count(each) == 1 for each in cut)
        entropy = sum(np.log2(len(cut) / cut.count(each)) for each in cut) / len(cut)
        assert row.bits == pytest.approx(entropy - known, abs=1e-9)
        known = entropy
    alone = [min(n for n in range(longest + 1) if _alone(ended, each, n)) for each in ended]
    assert found.to_unique.mean == pytest.approx(sum(alone) / len(alone))


def _alone(rows, row, depth):
    return sum(other[:depth] == row[:depth] for other in rows) == 1


def test_json_survives():
    plain = animal_health().as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["scheme"], plain["first_proposal"], plain["about"]["words"]) == ("title", 0.5, 1)
    assert plain["lengths"]["counts"] == {"3": 4, "4": 1, "5": 1}
    row = {"depth": 1, "nodes": 3, "branching": 4 / 3, "alone": 1, "unique": 1 / 6}
    assert {name: plain["depths"][1][name] for name in row} == row
    assert plain["retrieval"]["documents"] == 6
    assert coded_health().as_dict()["retrieval"] is None


def test_text():
    found = animal_health()
    cells, text = lines(found), found.as_text().splitlines()
    assert text[0] == "title: 6 docids, words 1"
    figures = text[2 : text.index("", 2)]
    assert text[2].split() == ["figure", "value", "what", "it", "says"]
    assert len({re.match(r".*?(\s{2,}\S+)  \S", line).end(1) for line in figures}) == 1  # one column
    for expected in (
        ["documents", "6", "each has a docid of its own"],
        ["first proposal", "50.0%", "got rank 1, of 6 when docids were given out"],
        ["numbered", "1", "found nothing free: the first proposal with a number behind it"],
        ["mean length", "3.50", "tokens that a decoder writes"],
        ["tokens to uniqueness", "3.17", "mean tokens that tell a docid from all others"],
        ["Hits@1", "0.5000", "share of documents that BM25 finds first"],
        ["5", "1", "16.7%"],
        ["4", "2", "1.00", "100.0%", "0.67"],
        ["0", "6", "3", "1.46", "1.58"],
    ):
        assert expected in cells
    assert ["5", "1", "1.00", "100.0%", "0.00"] not in cells  # where all are alone, deeper rows say nothing


def test_orders_of_proposals_are_shown_where_docids_know_them():
    plain = animal_health()
    assert "round trip" not in plain.as_text()
    orders = [
        {"round_trip": 0.0, "documents": 6, "unique": 0.5, "mrr": 0.25},
        {"round_trip": 2.5, "documents": 6, "unique": 1.0, "mrr": 0.75},
    ]
    told = lines(replace(plain, about={**plain.about, "orders": orders}))
    at = told.index(["round trip", "documents", "unique", "MRR@100"])
    assert told[at + 1 : at + 3] == [["0", "6", "50.0%", "0.2500"], ["2.5", "6", "100.0%", "0.7500"]]


def test_side_by_side():
    table = side_by_side({"title": animal_health(), "rq": coded_health()})
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert cells == [
        ["figure", "title", "rq"],
        [cell for cell in cells[1] if set(cell) <= set("-:")],
        ["documents", "6", "4"],
        ["unique proposals", "16.7%", "50.0%"],
        ["first proposal", "50.0%", "75.0%"],
        ["rank 2", "1", "0"],
        ["rank 3 or later", "1", "0"],
        ["resampled", "0", "0"],
        ["numbered", "1", "1"],
        ["mean length", "3.50", "2.25"],
        ["tokens to uniqueness", "3.17", "2.50"],
        ["bits of the first token", "1.46", "1.00"],
        ["bytes", "3.5", "2.2"],
        ["bytes of words", "–", "–"],
        ["MRR@100", "0.6667", "–"],
        ["Hits@1", "0.5000", "–"],
        ["searched for", "6", "–"],
        ["neighbour prefix share", "0.3200", "0.3889"],
        ["neighbour Jaccard", "0.3000", "–"],
    ]


@pytest.mark.parametrize(("name", "begin"), [("health.png", b"\x89PNG"), ("health.svg", b"<?xml")])
def test_plot(tmp_path, name, begin):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'gr2[plots]'")
    healths = {"title": animal_health(), "rq": coded_health()}
    draw_healths(healths, tmp_path / name)
    draw_healths(healths, tmp_path / "again" / name)
    drawn = (tmp_path / name).read_bytes()
    assert drawn.startswith(begin)
    assert drawn == (tmp_path / "again" / name).read_bytes()


def test_plot_of_one_document(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'gr2[plots]'")
    alone = health(resolve_clashes({"a": [("", 0.0)]}, letters), collection({"a": "a cat"}))
    draw_healths({"alone": alone}, tmp_path / "alone.svg")
    assert (tmp_path / "alone.svg").stat().st_size > 1000


def test_plot_refuses_other_formats(tmp_path):
    with pytest.raises(ValueError, match=r"health.pdf: expected a name that ends in .png or .svg"):
        draw_healths({"title": animal_health()}, tmp_path / "health.pdf")


def test_plot_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"pip install 'gr2\[plots\]'"):
        draw_healths({"title": animal_health()}, tmp_path / "health.png")


def test_what_is_refused():
    with pytest.raises(ValueError, match="not the docids of toy: only one of both has 'g'"):
        health(animals(), collection({**ANIMALS, "g": "gnu"}))
    with pytest.raises(ValueError, match="only one of both has 'f'"):
        health(animals(), collection({docno: ANIMALS[docno] for docno in "abcde"}))
    with pytest.raises(ValueError, match="sample of at least 1 document, found 0"):
        animal_health(sample=0)
    with pytest.raises(ValueError, match="no docids"):
        health(Docids((), (), (), {}, {}), collection({}))


def test_the_suggested_radius_has_most_unique_docids_of_those_that_still_find_their_documents():
    def row(radius, found, unique, near=0.5):
        return AtRadius(
            radius=radius, documents=9, found=found, error=0.1, near=near, unique=unique, distance=0.5
        )

    rows = [row(2.0, 0.7, 0.9), row(0.0, 0.8, 0.3), row(1.0, 0.77, 0.5), row(0.5, 0.9, 0.5)]
    assert suggested(rows) == 0.5  # the smaller of two that are level
    assert suggested(rows, keeping=0.5) == 2.0
    assert suggested(rows[1:2]) == 0.0
    assert suggested([*rows, row(3.0, 0.9, 0.8, near=0.4)]) == 0.5, "in the latent space it is far away"
    assert suggested([row(0.0, 0.8, 0.9), rows[0], rows[2]]) == 1.0, "0 is to compare with"
    assert suggested([row(0.0, 0.9, 0.3), rows[0], rows[2]]) == 1.0, "none keeps as much"


def test_radii_are_drawn_and_told(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'gr2[plots]'")
    rows = [
        AtRadius(radius=r, documents=1200, found=0.5, error=0.01, near=0.6, unique=0.7, distance=0.8)
        for r in (0.0, 2.0)
    ]
    for name in ("one.svg", "two.svg"):
        draw_radii(rows, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    table = as_table(rows).splitlines()
    assert "unique docids of 1,200" in table[0] and "0.500 ± 0.010" in table[-1]
    assert [AtRadius(**row) for row in as_dicts(rows)] == rows


def test_a_sample_has_documents_together_that_are_alike():
    texts = {f"d{i:03}": f"topic{i % 300} word{i % 300} and common words" for i in range(900)}
    index = BM25.index(collection(texts).documents, BM25Config())
    found = neighbourhoods(texts, index, 90)
    topics = Counter(text.split()[0] for text in found.values())
    assert len(found) == 90 and set(topics.values()) == {3}, "thirty topics with all their documents"
    assert found == neighbourhoods(dict(reversed(texts.items())), index, 90) and list(found) == sorted(found)
    assert len(neighbourhoods(texts, index, 80)) == 80
    blank = {docno: "" for docno in texts}
    assert len(neighbourhoods(blank, index, 50)) == 50, "who has no words comes alone"
