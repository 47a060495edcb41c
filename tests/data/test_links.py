"""A table of links becomes a graded collection.

The real tables are looked for in $GR2_DATA, else in `../shared/data` beside the checkout.
"""

import gzip
import json
import sys
from collections import Counter
from importlib import import_module

import pytest
from helpers.paths import DATA

from gr2.data.collection import Document
from gr2.data.formats import FormatError, read_folder, write_folder
from gr2.data.links import (
    GradeConfig,
    Link,
    LinksConfig,
    ask,
    draw,
    first_section,
    graded_by_links,
    read_linked_folder,
    read_links,
    segmented,
)


@pytest.fixture
def splitter():
    """Queries need the extra `wikipedia`."""
    return pytest.importorskip("sentencex", reason="finding sentences needs the extra `wikipedia`")


def document(docno, text, title=""):
    return Document(docno, title or docno.capitalize(), text)


ORCHARD = (
    document("apple", "The apple is a fruit of the apple tree.\n## Kinds\nSome are like a pear.", "Apples"),
    document("pear", "The pear is a fruit, too. See the apple for more of this."),
    document("plum", "Plums"),
    document("tree", "The tree is a tall plant."),
    document("nut", "The nut is no fruit at all."),
)
LINKS = [
    Link("apple", "pear", "body", "pear"),
    Link("apple", "tree", "body", "apple tree"),
    Link("apple", "plum", "see_also", "plum"),
    Link("apple", "apple", "body", "apple"),
    Link("pear", "apple", "body", "Apple"),
    Link("pear", "apple", "see_also", "apple"),
    Link("plum", "tree", "body", "tree"),
    Link("pear", "cherry", "body", "cherry"),
    Link("cherry", "pear", "body", "pear"),
]


# --- the rule


def test_grades_of_a_table_with_kinds_and_anchors(splitter):
    made, tally = graded_by_links("orchard", ORCHARD, LINKS)
    assert made.qrels["train"] == {
        "apple-1": {"apple": 4, "plum": 3, "tree": 2, "pear": 1},
        "pear-1": {"pear": 4, "apple": 3},
        "tree-1": {"tree": 4},
        "nut-1": {"nut": 4},
    }
    assert made.queries["apple-1"] == "The apple is a fruit of the apple tree."
    assert tally.as_dict() == {
        "documents": 5,
        "queries": 4,
        "pairs": 8,
        "pairs_per_grade": {"4": 4, "3": 2, "2": 1, "1": 1},
        "documents_looked_at": 5,
        "with_see_also": 2,
        "share_with_see_also": 0.4,
        "links_to_missing_documents": 2,
    }
    assert "2 of 5 documents (40%) with See-also links" in str(tally)


def test_without_see_also_links_mutual_ones_take_their_place(splitter):
    rows = [Link("apple", "pear"), Link("pear", "apple"), Link("apple", "tree"), Link("apple", "nut")]
    made, tally = graded_by_links("orchard", ORCHARD, rows)
    judged = made.qrels["train"]
    assert judged["apple-1"] == {"apple": 4, "pear": 3, "tree": 2, "nut": 1}  # found by their titles
    assert judged["pear-1"] == {"pear": 4, "apple": 3}
    assert "mutual" in str(tally)
    kinds = [*rows, Link("nut", "tree", "see_also")]
    assert graded_by_links("orchard", ORCHARD, kinds)[0].qrels["train"]["apple-1"]["pear"] == 1


@pytest.mark.parametrize(
    ("anchor", "grade"),
    [("big apple", 2), ("Big  Apple!", 2), ("apple", 2), ("app", 1), ("big apples", 1), ("the", 2), ("!", 1)],
)
def test_an_anchor_is_found_as_whole_words(splitter, anchor, grade):
    rows = (document("a", "See the big apple in the tree.\n== More ==\nIn a town."), document("b", "x"))
    links = [Link("a", "b", "", anchor)]
    assert graded_by_links("x", rows, links)[0].qrels["train"]["a-1"]["b"] == grade


def test_a_few_of_each_grade_by_seed_and_key_alone():
    linked = {3: range(10, 30), 2: range(20, 60), 1: range(0, 100)}
    config = GradeConfig(per_grade=4)
    judged = draw("key", 5, linked, config)
    assert Counter(judged.values()) == {4: 1, 3: 4, 2: 4, 1: 4}
    for number, grade in judged.items():
        assert grade == (4 if number == 5 else 3 if number in linked[3] else 2 if number in linked[2] else 1)
    turned = {grade: [*reversed(numbers), *numbers] for grade, numbers in linked.items()}
    assert draw("key", 5, turned, config) == judged
    assert draw("other", 5, linked, config) != judged
    assert draw("key", 5, linked, GradeConfig(per_grade=4, seed=1)) != judged


def test_every_link_is_drawn_for_somebody():
    drawn = Counter(n for key in range(300) for n in draw(str(key), -1, {3: range(20)}, GradeConfig()))
    expected = 300 * 5 / 20
    assert all(0.6 * expected < drawn[n] < 1.4 * expected for n in range(20))


def test_queries_are_whole_sentences_of_the_abstract(splitter):
    text = (
        "Apples grow on trees. Too short. It was seen by Dr. Smith of the U.S. in May.\n"
        "List of kinds: red, green\nIs it a fruit of a tree?"
    )
    able = {
        "Apples grow on trees.",
        "It was seen by Dr. Smith of the U.S. in May.",
        "Is it a fruit of a tree?",
    }
    assert set(ask("a", text, GradeConfig(queries=9))) == able
    assert {ask(str(key), text, GradeConfig())[0] for key in range(50)} == able
    assert ask("a", text, GradeConfig()) == ask("a", text, GradeConfig())
    assert ask("a", "word " * 60 + "end.", GradeConfig()) == []
    assert ask("a", "", GradeConfig()) == []


def test_sentences_need_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(ValueError, match=r"pip install 'gr2\[wikipedia\]'"):
        segmented("A b c.")


@pytest.mark.parametrize(
    ("text", "lead"),
    [
        ("One two.\n## Three\nfour", "One two."),
        ("One two.\n== Three ==\nfour", "One two."),
        ("One\ntwo three four five six", "One\ntwo three four"),
        ("#hash is no heading", "#hash is no heading"),
        ("## Three\nfour", ""),
        ("", ""),
    ],
)
def test_the_first_section(text, lead):
    assert first_section(text, 4) == lead


@pytest.mark.parametrize("wrong", [{"per_grade": 0}, {"queries": 0}, {"least_words": 9, "most_words": 8}])
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match="at least"):
        LinksConfig(**wrong)


# --- folders


def lay(folder, table, end=""):
    folder.mkdir()
    rows = [json.dumps({"_id": d.docno, "title": d.title, "text": d.text}) for d in ORCHARD]
    (folder / "corpus.jsonl").write_text("\n".join(rows))
    data = table.encode()
    (folder / f"links.tsv{end}").write_bytes(gzip.compress(data) if end else data)
    return folder


TABLE = "source\ttarget\tkind\tanchor\n" + "".join("\t".join(link) + "\n" for link in LINKS)


@pytest.mark.parametrize("end", ["", ".gz"])
def test_a_folder_with_links(tmp_path, splitter, end):
    made, _ = read_linked_folder(lay(tmp_path / "orchard", TABLE, end))
    same, _ = graded_by_links("orchard", ORCHARD, LINKS)
    assert made.name == "orchard"
    assert made.fingerprint == same.fingerprint
    write_folder(made, tmp_path / "out")
    assert read_folder(tmp_path / "out").fingerprint == same.fingerprint


def test_a_table_may_have_only_source_and_target(tmp_path):
    path = tmp_path / "links.tsv"
    path.write_text("target\tsource\nb\ta\n")
    assert list(read_links(path)) == [Link("a", "b")]


@pytest.mark.parametrize(
    ("table", "line"),
    [("source\tgoal\na\tb\n", 2), ("source\ttarget\na\tb\na\t\n", 3), ("source\ttarget\na b\tc\n", 2)],
)
def test_tables_that_are_none(tmp_path, table, line):
    path = tmp_path / "links.tsv"
    path.write_text(table)
    with pytest.raises(FormatError, match=rf"links\.tsv:{line}: expected the fields source and target"):
        list(read_links(path))


def test_folders_that_have_none(tmp_path):
    with pytest.raises(FormatError, match=r"expected corpus\.jsonl"):
        read_linked_folder(tmp_path)
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "text": "b"}\n')
    with pytest.raises(FormatError, match=r"expected links\.tsv"):
        read_linked_folder(tmp_path)


# --- real tables


def real(name):
    if not (DATA / name).is_dir():
        pytest.skip(f"the collection {name} is not at hand (looked in {DATA})")
    return DATA / name


def test_wikispeedia(splitter):
    folder = real("wikispeedia")
    made, tally = read_linked_folder(folder)
    rows = {(link.source, link.target) for link in read_links(folder / "links.tsv.gz")}
    assert (tally.documents, len(rows)) == (4598, 119879)
    assert tally.with_see_also == len({a for a, b in rows if (b, a) in rows and a != b})
    assert tally.notes == {"links_to_missing_documents": 0}
    for qid, judged in made.qrels["train"].items():
        own = qid.rpartition("-")[0]
        for docno, grade in judged.items():
            mutual = (own, docno) in rows and (docno, own) in rows
            assert (grade == 4) == (docno == own)
            assert (grade == 3) == (mutual and docno != own)
            assert grade == 4 or (own, docno) in rows
        assert max(Counter(judged.values()).values()) <= 5


def test_mdn(splitter):
    folder = real("mdn-links")
    made, tally = read_linked_folder(folder)
    rows = list(read_links(folder / "links.tsv.gz"))
    near = {(link.source, link.target) for link in rows if link.kind == "see_also"}
    every = {(link.source, link.target) for link in rows}
    assert tally.documents == 14593
    assert tally.with_see_also == len({source for source, _ in near}) == 9487
    counts = Counter()
    for qid, judged in made.qrels["train"].items():
        own = qid.rpartition("-")[0]
        for docno, grade in judged.items():
            counts[grade] += 1
            assert (grade == 4) == (docno == own)
            assert (grade == 3) == ((own, docno) in near and docno != own)
            assert grade == 4 or (own, docno) in every
    assert counts == tally.pairs


# --- the command line


def test_from_links(gr2, tmp_path, splitter):
    import_module("gr2.cli.pretraining")  # the commands are there once it is imported
    printed = gr2("collection", "from-links", lay(tmp_path / "orchard", TABLE), "--out", tmp_path / "out")
    assert printed.startswith("orchard: 5 documents, 4 queries, grades 1-4, fingerprint ")
    assert "grade 4: 4, grade 3: 2, grade 2: 1, grade 1: 1" in printed
    assert read_folder(tmp_path / "out").grades == 4
