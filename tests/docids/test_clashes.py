"""The clash rule: as it is told, in any order, with resampling, and for documents that come later."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gr2.docids.clashes import add_documents, letters, resolve_clashes
from gr2.docids.docids import Docids


def coarse(texts):
    """A tokenizer that reads different texts alike: case and the letter x are nothing to it."""
    return letters(text.lower().replace("x", "") for text in texts)


def rule(proposals, read, rounds=(), taken=()) -> dict[str, tuple[str, str]]:
    """The rule as it is told: docno → docid and how it was come by."""
    used, result = set(map(tuple, taken)), {}

    def tokens(text):
        return tuple(read([text])[0])

    def order(rows):
        return sorted(rows, key=lambda docno: (-rows[docno][0][1], docno))

    for number, rows in enumerate([proposals, *rounds]):
        for docno in order(rows):
            if docno in result:
                continue
            for rank, (text, _) in enumerate(rows[docno], 1):
                if tokens(text) not in used:
                    kind = "resampled" if number else {1: "rank 1", 2: "rank 2"}.get(rank, "rank 3 or later")
                    result[docno] = text, kind
                    used.add(tokens(text))
                    break
    for docno in order(proposals):
        if docno not in result:
            text, number = proposals[docno][0][0], 2
            while tokens(f"{text} {number}".lstrip()) in used:
                number += 1
            result[docno] = f"{text} {number}".lstrip(), "numbered"
            used.add(tokens(result[docno][0]))
    return result


TEXTS = st.text("aAbx ", max_size=3) | st.sampled_from(["a 2", "a 3", "b 2"])


ROWS = st.lists(st.tuples(TEXTS, st.integers(-3, 0).map(float)), min_size=1, max_size=4).map(
    lambda rows: sorted(rows, key=lambda row: -row[1])
)


DOCNOS = st.text("pqrs", min_size=1, max_size=2)


PROPOSALS = st.dictionaries(DOCNOS, ROWS, max_size=12)


@settings(max_examples=150)
@given(PROPOSALS, st.lists(st.dictionaries(DOCNOS, ROWS), max_size=2), st.sets(TEXTS), st.randoms())
def test_the_clash_rule(proposals, more, taken, draw):
    """As told, for any order of insertion, with other tries and tokens that are nobody's."""
    rounds = [{docno: rows.get(docno, [("b", 0.0)]) for docno in proposals} for rows in more]
    nobody_s = [tuple(row) for row in coarse(taken)]
    shuffled = list(proposals.items())
    draw.shuffle(shuffled)
    asked = []

    def resample(docnos, attempt):
        asked.append((tuple(docnos), attempt))
        return {docno: rounds[attempt - 1][docno] for docno in draw.sample(list(docnos), len(docnos))}

    options = {"resample": resample, "tries": len(rounds), "taken": nobody_s}
    one = resolve_clashes(proposals, coarse, **options)
    first, asked = asked, []
    two = resolve_clashes(dict(shuffled), coarse, **options)
    assert one == two and asked == first
    expected = rule(proposals, coarse, rounds, nobody_s)
    assert dict(zip(one.docnos, one.texts, strict=True)) == {d: text for d, (text, _) in expected.items()}
    assert one.clashes == Counter(kind for _, kind in expected.values())
    assert one.docnos == tuple(sorted(proposals))
    assert len(set(one.tokens)) == len(proposals) and not set(one.tokens) & set(nobody_s)
    assert list(map(list, one.tokens)) == coarse(one.texts)


def texts_of(docids: Docids) -> dict[str, str]:
    return dict(zip(docids.docnos, docids.texts, strict=True))


def test_the_likelier_document_chooses_first_then_the_smaller_docno():
    found = resolve_clashes(
        {
            "a": [("cat", -2.0), ("tom", -3.0)],
            "b": [("cat", -1.0)],
            "c": [("cat", -2.0), ("tom", -2.5), ("kit", -9.0)],
        },
        letters,
    )
    assert texts_of(found) == {"a": "tom", "b": "cat", "c": "kit"}
    assert found.clashes == {"rank 1": 1, "rank 2": 1, "rank 3 or later": 1}


def test_texts_that_are_read_alike_clash():
    found = resolve_clashes(
        {"a": [("CAT", 0.0)], "b": [("cat", 0.0), ("Tom", 0.0)], "c": [("tox m", 0.0)]}, coarse
    )
    assert texts_of(found) == {"a": "CAT", "b": "Tom", "c": "tox m"}
    assert texts_of(resolve_clashes({"a": [("CAT", 0.0)], "b": [("cat", 0.0)]}, coarse)) == {
        "a": "CAT",
        "b": "cat 2",
    }


def test_others_are_asked_for_as_often_as_said_and_for_who_needs_them():
    asked = []

    def resample(docnos, attempt):
        asked.append((list(docnos), attempt))
        return {docno: [("cat", 0.0), (f"cat{attempt if docno == 'c' else ''}", -1.0)] for docno in docnos}

    proposals = {docno: [("cat", 0.0)] for docno in "dcba"}
    found = resolve_clashes(proposals, letters, resample=resample, tries=3)
    assert asked == [(["b", "c", "d"], 1), (["b", "d"], 2), (["b", "d"], 3)]
    assert texts_of(found) == {"a": "cat", "b": "cat 2", "c": "cat1", "d": "cat 3"}
    assert found.clashes == {"numbered": 2, "rank 1": 1, "resampled": 1}
    asked.clear()
    assert resolve_clashes(proposals, letters, resample=resample, tries=0).clashes == {
        "numbered": 3,
        "rank 1": 1,
    }
    assert resolve_clashes({"a": [("cat", 0.0)]}, letters, resample=resample, tries=5).clashes == {
        "rank 1": 1
    }
    assert not asked


def test_what_is_taken_is_nobody_s_and_the_smallest_free_number_is_taken():
    taken = [tuple(row) for row in letters(["cat", "cat 3"])]
    found = resolve_clashes({docno: [("cat", 0.0)] for docno in "abc"}, letters, taken=taken)
    assert texts_of(found) == {"a": "cat 2", "b": "cat 4", "c": "cat 5"}
    own = resolve_clashes({"a": [("cat", 0.0)], "b": [("cat 2", 0.0)], "c": [("cat", -1.0)]}, letters)
    assert texts_of(own)["c"] == "cat 3"


def test_clashes_that_no_rule_can_settle_are_refused():
    with pytest.raises(ValueError, match="document 'b' has no proposal"):
        resolve_clashes({"a": [("cat", 0.0)], "b": []}, letters)
    with pytest.raises(ValueError, match="reads 'cat' with different numbers"):
        resolve_clashes({"a": [("cat", 0.0)], "b": [("cat", 0.0)]}, lambda texts: [[1] for _ in texts])


@settings(max_examples=80)
@given(PROPOSALS.filter(len), PROPOSALS)
def test_new_documents_leave_old_docids_alone(old, new):
    before = resolve_clashes(old, coarse, {"fingerprint": "old", "scheme": "title"})
    new = {f"{docno}!": rows for docno, rows in new.items()}
    after = add_documents(before, new, coarse, fingerprint="new")
    assert after.docnos == tuple(sorted([*old, *new]))
    for docno in old:
        at, was = after.index[docno], before.index[docno]
        assert (after.texts[at], after.tokens[at]) == (before.texts[was], before.tokens[was])
    assert len(set(after.tokens)) == len(after)
    assert after.about == {"fingerprint": "new", "scheme": "title"}
    assert sum(after.clashes.values()) == len(after)
    back = after.remove(new, fingerprint="old")
    assert (back.docnos, back.texts, back.tokens) == (before.docnos, before.texts, before.tokens)


def test_documents_that_come_may_be_resampled():
    before = resolve_clashes({"a": [("cat", 0.0)], "b": [("dog", 0.0)]}, letters)
    asked = []

    def resample(docnos, attempt):
        asked.append((tuple(docnos), attempt))
        return {docno: [("dog" if attempt == 1 else "cow", 0.0)] for docno in docnos}

    new = {"c": [("cat", 0.0)], "d": [("eel", 0.0)]}
    after = add_documents(before, new, letters, fingerprint="", resample=resample, tries=3)
    assert texts_of(after) == {"a": "cat", "b": "dog", "c": "cow", "d": "eel"}
    assert asked == [(("c",), 1), (("c",), 2)] and after.clashes == {"rank 1": 3, "resampled": 1}


def test_who_has_a_docid_does_not_choose_again():
    """Whoever makes other proposals may hand out some for documents that were not asked for."""
    rows = {"a": [("cat", 0.0)], "b": [("cat", -1.0)]}
    docids = resolve_clashes(
        rows, letters, resample=lambda docnos, attempt: dict.fromkeys("ab", [("cow", 0.0)]), tries=1
    )
    assert texts_of(docids) == {"a": "cat", "b": "cow"} and sum(docids.clashes.values()) == 2
