"""What a collection promises, whatever it was read from."""

import random
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gr2.data.collection import Collection, Document, Scan, digest

WORDS = st.text(alphabet="ab \0,1[]", max_size=5)  # few letters: neighbouring fields easily look alike
KEYS = st.text(alphabet="abc", min_size=1, max_size=3)


@st.composite
def collections(draw):
    documents = draw(
        st.lists(st.builds(Document, KEYS, WORDS, WORDS, WORDS), min_size=1, unique_by=lambda d: d.docno)
    )
    queries = draw(st.dictionaries(KEYS, WORDS, min_size=1, max_size=4))
    grades = st.dictionaries(st.sampled_from([d.docno for d in documents]), st.integers(-2, 4), min_size=1)
    rows = st.dictionaries(st.sampled_from(sorted(queries)), grades, min_size=1)
    qrels = draw(st.dictionaries(st.sampled_from(["train", "dev", "test"]), rows, min_size=1))
    return Collection(name="drawn", documents=tuple(documents), queries=queries, qrels=qrels)


def shuffled(mapping, rng):
    pairs = list(mapping.items())
    rng.shuffle(pairs)
    return {key: shuffled(value, rng) if isinstance(value, dict) else value for key, value in pairs}


def reordered(collection, seed):
    """The same documents, queries and judgements in another order."""
    rng = random.Random(seed)
    documents = list(collection.documents)
    rng.shuffle(documents)
    return Collection(
        name="reordered",
        documents=tuple(documents),
        queries=shuffled(collection.queries, rng),
        qrels=shuffled(collection.qrels, rng),
    )


def numbered(count, judged=(), queries=10):
    """A collection of d0, d1, ... in which query q0, q1, ... judges some of them."""
    docnos = [f"d{number}" for number in range(count)]
    qids = [f"q{number}" for number in range(queries)]
    rows = {qid: {docno: 1} for qid, docno in zip(qids, judged, strict=False)} or {qid: {} for qid in qids}
    return Collection(
        name="numbered",
        documents=tuple(Document(docno, text=f"text of {docno}") for docno in docnos),
        queries={qid: f"query {qid}" for qid in qids},
        qrels={"test": rows},
    )


def docnos_of(collection):
    return {document.docno for document in collection.documents}


def test_negative_grades_become_zero_in_every_split():
    qrels = {"train": {"q": {"a": -2, "b": 1}}, "test": {"q": {"a": 0, "b": -1}}}
    made = Collection(name="n", documents=(Document("a"), Document("b")), queries={"q": "text"}, qrels=qrels)
    assert made.qrels == {"train": {"q": {"a": 0, "b": 1}}, "test": {"q": {"a": 0, "b": 0}}}
    assert qrels["train"]["q"]["a"] == -2, "what was passed in is not changed"


@pytest.mark.parametrize(
    ("qrels", "expected"),
    [
        ({}, 0),
        ({"test": {}}, 0),
        ({"test": {"q": {"a": -1}}}, 0),
        ({"test": {"q": {"a": 1}}}, 1),
        ({"train": {"q": {"a": 4}}, "test": {"q": {"a": 2, "b": 3}}}, 4),
    ],
)
def test_highest_grade_is_derived_from_the_judgements_of_all_splits(qrels, expected):
    documents = (Document("a"), Document("b"))
    assert Collection(name="n", documents=documents, queries={"q": ""}, qrels=qrels).grades == expected


def test_contents_is_title_and_text():
    assert Document("d", "Cats", "purr").contents == "Cats purr"
    assert Document("d", "", "purr").contents == "purr"
    assert Document("d", "Cats").contents == "Cats"


def test_two_documents_with_one_docno_are_refused():
    twice = (Document("a", "one"), Document("b"), Document("a", "two"))
    with pytest.raises(ValueError, match="'a'"):
        Scan(twice)
    with pytest.raises(ValueError, match="'a'"):
        _ = Collection(name="n", documents=twice, queries={}, qrels={}).docnos


def test_docnos_are_positions_in_the_corpus():
    made = Collection(name="n", documents=(Document("z"), Document("a")), queries={}, qrels={})
    assert dict(made.docnos) == {"z": 0, "a": 1}


def test_unknown_split_is_refused_with_the_splits_there_are():
    made = Collection(name="pets", documents=(), queries={}, qrels={"train": {}, "dev": {}})
    with pytest.raises(ValueError, match=r"pets.*'test'.*train, dev"):
        made.split("test")
    with pytest.raises(ValueError, match="none"):
        replace(made, qrels={}).split("test")


# --- fingerprint


@given(collections(), st.integers())
@settings(max_examples=60, deadline=None)
def test_fingerprint_does_not_depend_on_any_order(made, seed):
    assert reordered(made, seed).fingerprint == made.fingerprint


@given(collections(), st.data())
@settings(max_examples=150, deadline=None)
def test_fingerprint_changes_with_any_single_change(made, data):
    documents, queries = list(made.documents), dict(made.queries)
    qrels = {split: {qid: dict(row) for qid, row in rows.items()} for split, rows in made.qrels.items()}
    what = data.draw(
        st.sampled_from(
            ["docno", "title", "text", "url", "less", "more", "qid", "query", "no query"]
            + ["grade", "judgement", "split"]
        )
    )
    place = data.draw(st.integers(0, len(documents) - 1))
    qid = data.draw(st.sampled_from(sorted(queries)))
    split = data.draw(st.sampled_from(sorted(qrels)))
    judged = data.draw(st.sampled_from(sorted(qrels[split])))
    row = qrels[split][judged]
    docno = data.draw(st.sampled_from(sorted(row)))
    if what in Document._fields:
        longer = getattr(documents[place], what) + data.draw(st.sampled_from(["x", "\0", " ", "0"]))
        documents[place] = documents[place]._replace(**{what: longer})
    elif what == "less":
        del documents[place]
    elif what == "more":
        documents.append(Document("new"))
    elif what == "qid":
        queries[qid + "x"] = queries.pop(qid)
    elif what == "query":
        queries[qid] += " "
    elif what == "no query":
        del queries[qid]
    elif what == "grade":
        row[docno] += 1
    elif what == "judgement":
        del row[docno]
    else:
        qrels["renamed"] = qrels.pop(split)
    changed = Collection(name="drawn", documents=tuple(documents), queries=queries, qrels=qrels)
    assert changed.fingerprint != made.fingerprint


def test_fingerprint_is_32_hex_digits_and_does_not_depend_on_the_name():
    made = numbered(3)
    assert len(made.fingerprint) == 32
    int(made.fingerprint, 16)
    assert replace(made, name="other").fingerprint == made.fingerprint


def test_moving_a_letter_to_the_next_field_changes_the_fingerprint():
    prints = {
        Collection(name="n", documents=(document,), queries={}, qrels={}).fingerprint
        for document in (
            Document("d", "ab", "c"),
            Document("d", "a", "bc"),
            Document("d", "", "abc"),
            Document("d", "", "", "abc"),
            Document("da", "b", "c"),
            Document("d", "a\0", "bc"),
            Document("d", "a", "\0bc"),
        )
    }
    assert len(prints) == 7


def test_a_document_and_a_query_of_the_same_words_do_not_look_alike():
    one = Collection(name="n", documents=(Document("x", "", ""),), queries={"y": "z"}, qrels={})
    two = Collection(name="n", documents=(Document("y", "z", ""),), queries={"x": ""}, qrels={})
    assert one.fingerprint != two.fingerprint


@given(st.lists(WORDS, max_size=4), st.lists(WORDS, max_size=4))
def test_digests_are_equal_only_for_equal_parts(one, two):
    assert (digest("kind", *one) == digest("kind", *two)) == (one == two)


# --- subset


def test_subset_keeps_every_judged_document_and_has_exactly_the_size_asked_for():
    made = numbered(100, judged=["d3", "d50", "d99"])
    for size in (3, 4, 17, 99, 100):
        part = made.subset(size)
        assert len(docnos_of(part)) == size == len(part.docnos)
        assert docnos_of(part) >= {"d3", "d50", "d99"}
        assert part.qrels == made.qrels
        assert part.queries == made.queries


def test_subset_takes_the_judged_documents_of_every_split_and_of_every_grade():
    made = replace(numbered(50), qrels={"train": {"q0": {"d7": 2}}, "test": {"q1": {"d8": 0, "d9": -1}}})
    assert docnos_of(made.subset(3)) == {"d7", "d8", "d9"}


def test_subset_is_seeded():
    made = numbered(200, judged=["d0"])
    assert docnos_of(made.subset(50, seed=1)) == docnos_of(made.subset(50, seed=1))
    assert docnos_of(made.subset(50, seed=1)) != docnos_of(made.subset(50, seed=2))


def test_subset_fill_looks_random():
    """A fill of the first, last or alphabetically first documents would not spread over the corpus."""
    made = numbered(1000)
    places = sorted(int(docno[1:]) for docno in docnos_of(made.subset(500)))
    for start in range(0, 1000, 250):
        assert 90 <= sum(start <= place < start + 250 for place in places) <= 160


@given(collections(), st.integers(), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_subset_does_not_depend_on_the_order_of_the_corpus(made, order, seed):
    judged = {docno for rows in made.qrels.values() for row in rows.values() for docno in row}
    size = (len(judged) + len(made.docnos) + 1) // 2
    part, other = made.subset(size, seed=seed), reordered(made, order).subset(size, seed=seed)
    assert docnos_of(part) == docnos_of(other)
    assert part.fingerprint == other.fingerprint


def test_subset_keeps_the_documents_whole_and_in_their_order():
    made = numbered(30, judged=["d20"])
    kept = docnos_of(made.subset(10))
    assert list(made.subset(10).documents) == [d for d in made.documents if d.docno in kept]


def test_subset_does_not_take_over_what_a_reader_found_in_the_whole_corpus():
    made = numbered(30, judged=["d20"])
    read = replace(made, scanned=Scan(made.documents))
    assert read.subset(10).docnos == made.subset(10).docnos
    assert read.subset(10).fingerprint == made.subset(10).fingerprint != read.fingerprint


def test_a_smaller_subset_is_part_of_a_larger_one():
    made = numbered(60, judged=["d20"])
    assert docnos_of(made.subset(10)) < docnos_of(made.subset(20))


@pytest.mark.parametrize("size", [-1, 0, 2, 11])
def test_subset_refuses_fewer_than_the_judged_and_more_than_all_documents(size):
    made = numbered(10, judged=["d1", "d2", "d3"])
    with pytest.raises(ValueError, match=rf"numbered.* 3 .* 10 .*{size}"):
        made.subset(size)


def test_a_judged_document_that_the_corpus_lacks_takes_no_place():
    made = numbered(10, judged=["d1", "nowhere"])
    assert len(docnos_of(made.subset(5))) == 5
    assert docnos_of(made.subset(1)) == {"d1"}


# --- folds


@given(st.integers(2, 6), st.integers(6, 40), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_folds_are_disjoint_cover_the_split_and_are_of_even_size(count, queries, seed):
    made = numbered(3, queries=queries).with_folds(count, seed=seed)
    dealt = [qid for fold in made.folds for qid in fold]
    assert len(made.folds) == count
    assert len(dealt) == len(set(dealt))
    assert set(dealt) == set(made.split("test"))
    sizes = [len(fold) for fold in made.folds]
    assert max(sizes) - min(sizes) <= 1


def test_folds_are_seeded_and_do_not_depend_on_the_order_of_the_queries():
    made = numbered(3, queries=40)
    assert made.with_folds(5).folds == reordered(made, 7).with_folds(5).folds
    assert made.with_folds(5, seed=1).folds != made.with_folds(5, seed=2).folds
    assert made.with_folds(5).folds != tuple(tuple(sorted(made.queries))[i::5] for i in range(5))


def test_folds_are_of_the_split_asked_for():
    made = replace(numbered(3), qrels={"train": {"q1": {}, "q2": {}, "q3": {}}, "test": {"q4": {}}})
    assert {q for fold in made.with_folds(3, split="train").folds for q in fold} == {"q1", "q2", "q3"}


@pytest.mark.parametrize("count", [-1, 0, 1, 11])
def test_folds_that_cannot_be_are_refused(count):
    with pytest.raises(ValueError, match=rf"numbered: 10 queries.*{count} folds"):
        numbered(3).with_folds(count)


def test_a_fold_is_the_test_split_and_the_others_are_the_train_split():
    judged = ["d1", "d2", "d3", "d4", "d5", "d6"]
    made = numbered(9, judged=judged, queries=6).with_folds(3)
    tested = []
    for index in range(3):
        part = made.fold(index)
        assert set(part.qrels) == {"train", "test"}
        assert set(part.split("test")) == set(made.folds[index])
        assert part.split("train").keys() | part.split("test").keys() == made.split("test").keys()
        assert not part.split("train").keys() & part.split("test").keys()
        assert {**part.split("train"), **part.split("test")} == made.split("test")
        assert part.docnos == made.docnos
        assert str(index) in part.name
        tested += part.split("test")
    assert sorted(tested) == sorted(made.split("test"))


@pytest.mark.parametrize("index", [-1, 5])
def test_a_fold_that_is_not_there_is_refused(index):
    with pytest.raises(ValueError, match=rf"numbered has no fold {index}; it has 5"):
        numbered(3).with_folds(5).fold(index)
    with pytest.raises(ValueError, match="0 folds"):
        numbered(3).fold(0)


# --- streaming


class Counted(Document):
    """A document that knows how many of its kind are alive."""

    alive = 0
    most = 0

    def __new__(cls, *fields):
        cls.alive += 1
        cls.most = max(cls.most, cls.alive)
        return super().__new__(cls, *fields)

    def __del__(self):
        type(self).alive -= 1


class Stream:
    """A corpus that makes each document when it is asked for, and counts how often it is read."""

    def __init__(self, count, words=1):
        self.count, self.words, self.passes = count, words, 0

    def __iter__(self):
        self.passes += 1
        for number in range(self.count):
            yield Counted(f"d{number}", "", f"{number} " * self.words, "")


def test_no_two_passes_and_no_document_held():
    Counted.alive = Counted.most = 0
    stream = Stream(2000)
    made = Collection(name="s", documents=stream, queries={"q": "x"}, qrels={"test": {"q": {"d7": 1}}})
    assert len(made.docnos) == 2000
    assert made.fingerprint
    assert made.grades == 1
    assert stream.passes == 1, "docnos and fingerprint come from one pass"
    part = made.subset(100)
    assert sum(1 for _ in part.documents) == 100
    assert len(part.docnos) == 100
    assert Counted.most <= 3
    assert Counted.alive == 0


def test_memory_does_not_grow_with_the_documents_but_for_the_docnos():
    stream = Stream(10_000, words=600)  # about 30 MB of text in all
    made = Collection(name="s", documents=stream, queries={}, qrels={})
    tracemalloc.start()
    try:
        assert made.fingerprint
        assert sum(1 for _ in made.subset(5_000).documents) == 5_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000
