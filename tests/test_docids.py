"""Docids of every scheme: unique, the same for the same seed, by one clash rule, and learned by a model."""

import json
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import checkpoints as tiny
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gr2.data import Collection, Document
from gr2.docids import Docids, letters, settle
from gr2.docids.clusters import kmeans_paths, product_codes, residual_codes
from gr2.docids.codes import DIGITS, code_tokeniser, count, written
from gr2.docids.fusion import FusionConfig
from gr2.docids.schemes import SCHEMES, Making, build
from gr2.docids.text import summaries, term_sets, titles, tokeniser, urls
from gr2.docids.writing import WritingConfig
from gr2.formats import write_folder
from gr2.learn import Plan, learn
from gr2.model import GR2, GR2Config
from gr2.network import FIRST, Network, NetworkConfig
from gr2.trie import Trie

CODED = ("number", "kmeans", "pq", "rq")
WRITTEN = ("query", "fusion")
FAST = WritingConfig(
    fusion=FusionConfig(width=8, slots=2),
    steps=3,
    batch=8,
    learning_rate=1e-2,
    pretrained_rate=1.0,
    beams=3,
    query=6,
    tries=2,
)
SMALL = {"branches": 4, "leaf": 10, "places": 4, "codes": 16, "writing": FAST}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    return {name: tiny.save_checkpoint(tmp_path_factory.mktemp(name), name) for name in tiny.FAMILIES}


@pytest.fixture(scope="module")
def t5(checkpoints) -> Path:
    return checkpoints["t5"]


def collection(documents, queries=None, train=None) -> Collection:
    qrels = {"train": train} if train else {}
    return Collection(name="toy", documents=tuple(documents), queries=queries or {}, qrels=qrels)


def words(seed: int, number: int = 6) -> str:
    return " ".join(random.Random(seed).sample(tiny.WORDS, number))


def mixed(number: int = 40) -> list[Document]:
    """Documents as they come: some share a title, some are the same, some have no title or no text."""
    documents = []
    for i in range(number):
        title = words(i % 7, 3) if i % 5 else ""
        text = "" if i % 11 == 3 else f"{words(i - i % 3)}. {words(i - i % 3 + 100)}.".title()
        documents.append(
            Document(f"d{i * 37 % 100:02}", title, text, f"https://{words(i % 9, 1)}.org/{i // 3}")
        )
    return documents


def with_queries(number: int = 30) -> Collection:
    documents = [Document(f"d{i:02}", words(i, 3), words(i), f"http://x.org/{i}") for i in range(number)]
    queries = {f"q{i:02}": words(i, 4) for i in range(number)}
    train = {f"q{i:02}": {f"d{i:02}": 2, f"d{(i + 1) % number:02}": 1} for i in range(number)}
    return collection(documents, queries, train)


def made(scheme: str, documents, backbone: Path, folder: Path, **options) -> Docids:
    data = documents if isinstance(documents, Collection) else collection(documents)
    making = Making(collection=data, backbone=str(backbone), folder=folder, **{**SMALL, **options})
    return build(scheme, making)


UNICODE = [
    *("日本語の題名", "日本語", "中文标题", "🎉🎉", "👩‍👩‍👧", "שלום עולם", "مرحبا بالعالم"),
    *("e\u0301te\u0301", "\u00e9t\u00e9", "\ufb01n", "fin", "１２３", "123", "baka\u00a0beke", "baka beke"),
    *("\u0301", "\u200b", "\u202eabc"),
]
CORPORA = {
    "duplicates": [
        Document(f"d{i}", "baka beke", "Beki boko. Duku dake.", "http://a.b/c") for i in range(15)
    ],
    "without words": [
        *(Document(f"e{i}", " " * (i % 2), "\n" * (i % 3), f"http://a.b/{i % 2}") for i in range(6)),
        Document("a title", "baka beke", "", "http://a.b"),
        Document("a text", "", "Baka beke. Boko duku.", "http://a.b/"),
    ],
    "one": [Document("only", "baka beke", "beki boko", "http://x.y/z")],
    "unicode": [Document(f"u{i}", t, f"{t} {t}", f"http://x.y/{t}") for i, t in enumerate(UNICODE)],
}


def assert_sound(docids: Docids, documents: list[Document], backbone: Path) -> None:
    """Every document has one docid, no two have the same tokens, and tokens are what the text reads as."""
    assert docids.docnos == tuple(sorted(document.docno for document in documents))
    assert len(set(docids.tokens)) == len(set(docids.texts)) == len(documents)
    assert sum(docids.clashes.values()) == len(documents)
    if docids.about["scheme"] in CODED:
        tokens = {token for row in docids.tokens for token in row}
        assert min(tokens) >= 0 and max(tokens) < docids.about["codes"]
    else:
        assert "codes" not in docids.about
        assert list(map(list, docids.tokens)) == tokeniser(str(backbone))(list(docids.texts))
    assert len(Trie.build(*docids.flat(), end=10_000)) == len(documents)


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_two_documents_share_their_tokens(t5, tmp_path, scheme, name):
    documents = CORPORA[name]
    assert_sound(made(scheme, documents, t5, tmp_path), documents, t5)


@pytest.mark.parametrize(
    ("scheme", "number"),
    [(scheme, 300 if scheme in WRITTEN else 10_000) for scheme in SCHEMES],
)
def test_many_documents_of_one_title(t5, tmp_path, scheme, number):
    documents = [Document(f"d{i}", "baka beke", "", "http://a.b") for i in range(number)]
    if scheme in WRITTEN:  # something to learn from
        documents = [document._replace(text=words(i % 50)) for i, document in enumerate(documents)]
    docids = made(scheme, documents, t5, tmp_path)
    assert_sound(docids, documents, t5)
    if scheme == "title":
        assert docids.clashes == {"rank 1": 1, "numbered": number - 1}
        numbers = {int(text.removeprefix("baka beke ")) for text in docids.texts if text != "baka beke"}
        assert numbers == set(range(2, number + 1)), "no number is left out"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_same_seed_gives_the_same_bytes_in_any_order(t5, tmp_path, scheme):
    documents = mixed()
    shuffled = documents.copy()
    random.Random(3).shuffle(shuffled)
    for name, rows in (("one", documents), ("two", shuffled)):
        made(scheme, rows, t5, tmp_path / f"{name}.making", seed=5).save(tmp_path / name)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two and "docids.jsonl" in one
    assert ("codes.safetensors" in one) == (scheme in ("pq", "rq"))
    assert_sound(Docids.load(tmp_path / "one"), documents, t5)


@pytest.mark.parametrize("scheme", ["kmeans", "fusion"])
def test_another_seed_gives_other_docids(t5, tmp_path, scheme):
    writing = replace(FAST, radius=3.0, fusion=replace(FAST.fusion, latent_only=True), steps=20)
    one, two = (
        made(scheme, with_queries(), t5, tmp_path / str(seed), seed=seed, writing=writing) for seed in (0, 1)
    )
    assert one.texts != two.texts


@pytest.mark.parametrize("scheme", ["kmeans", "pq", "rq", "query", "fusion"])
def test_a_collection_without_any_word_is_refused_where_words_are_needed(t5, tmp_path, scheme):
    with pytest.raises(ValueError, match="a word in it|nothing to learn docids from"):
        made(scheme, [Document("a"), Document("b")], t5, tmp_path)


def test_what_cannot_be_named_is_refused(t5, tmp_path):
    with pytest.raises(ValueError, match="no docid scheme is called 'titel'; there are: title, url, summary"):
        made("titel", mixed(), t5, tmp_path)
    for scheme in SCHEMES:
        with pytest.raises(ValueError, match="toy has no documents"):
            made(scheme, [], t5, tmp_path)
    with pytest.raises(ValueError, match="document 'd2' has no URL"):
        made("url", [Document("d1", url="a.b/c"), Document("d2", "title", "text")], t5, tmp_path)
    with pytest.raises(ValueError, match="power of 2.*12"):
        made("rq", mixed(), t5, tmp_path, codes=12)


def test_what_docids_say_of_themselves(t5, tmp_path):
    data = collection(mixed())
    for scheme, expected in {
        "title": {"words": 12},
        "number": {"codes": 2 * 10 + DIGITS},
        "kmeans": {"branches": 4, "leaf": 10},
        "rq": {"places": 4, "codes": 4 * 16 + DIGITS},
        "query": {"generator": t5.name, "steps": 3, "seed": 0},
        "fusion": {"generator": t5.name, "steps": 3, "seed": 0, "radius": 2.0},
    }.items():
        about = made(scheme, data, t5, tmp_path / scheme).about
        common = {"scheme": scheme, "backbone": t5.name, "fingerprint": data.fingerprint}
        assert {**common, **expected}.items() <= about.items()
    assert "radius" not in made("query", data, t5, tmp_path / "again").about


# Docids that are read off the document.


def test_titles_else_leading_words():
    found = titles(
        [
            Document("a", "One  two\nthree four", "text"),
            Document("b", "", "some text here"),
            Document("c"),
        ],
        words=3,
    )
    assert found == {"a": [("One two three", 0.0)], "b": [("some text here", 0.0)], "c": [("c", 0.0)]}


def test_a_blank_title_is_no_title():
    assert titles([Document("a", " \n", "some text")])["a"][0][0] == "some text"


def test_urls_are_read_path_first():
    for url, expected in {
        "https://www.site.org/a/b-c/page_1.html": "page_1 html b-c a www site org",
        "site.org/Caf%C3%A9": "café site org",
        "http://site.org": "site org",
        "//site.org/": "site org",
        "https://site.org/1/2/3/4": "4 3 2 1 site org",
    }.items():
        assert urls([Document("d", url=url)])["d"] == [(expected, 0.0)]
    assert urls([Document("d", url="http://a.b/c/d/e")], words=2)["d"] == [("e d", 0.0)]


def test_terms_are_the_rarest_words_and_the_last_one_is_traded():
    documents = [
        Document("a", "", "common rare rare seldom"),
        Document("b", "", "common seldom"),
        Document("c", "", "common"),
    ]
    found = term_sets(documents, words=2)
    assert [text for text, _ in found["a"]] == ["rare seldom", "rare common"]
    assert found["c"] == [("common", 0.0)]


def test_summaries_are_sentences_of_rare_words():
    documents = [
        Document("a", "", "Common words only. Quokkas hop nimbly. Common words."),
        Document("b", "", "Common words only. Common words."),
        Document("c", "A title"),
    ]
    found = summaries(documents, words=2)
    assert [text for text, _ in found["a"]][0] == "Quokkas hop"
    assert found["c"] == [("A title", 0.0)]


@pytest.mark.parametrize("propose", [titles, summaries, term_sets])
def test_proposals_are_best_first_and_each_once(propose):
    # Cut at three words, its best sentence and its worst are one.
    cut = "The common words name quokkas nimbly hopping. Rare words. The common words the common words."
    usual = [Document(f"y{i}", "", "The common words") for i in range(9)]
    for documents in ([Document("x", "", cut), *usual], mixed()):
        for docno, row in propose(documents, words=3).items():
            scores = [score for _, score in row]
            assert scores == sorted(scores, reverse=True), docno
            assert len({text for text, _ in row}) == len(row)


def test_numbers_are_all_places_and_follow_no_order_of_docnos(t5, tmp_path):
    docids = made("number", [Document(f"n{i:03}") for i in reversed(range(101))], t5, tmp_path)
    numbers = [int(text.replace("-", "")) for text in docids.texts]
    assert sorted(numbers) == list(range(101)) and {len(text) for text in docids.texts} == {5}
    nearer = [abs(a - b) for a, b in zip(numbers, numbers[1:], strict=False)]
    assert np.mean(nearer) > 20, "neighbours among docnos would be about a third of 101 apart by chance"
    fewer = made("number", [Document(f"n{i:03}") for i in range(100)], t5, tmp_path)
    assert fewer.texts[0].count("-") == 1
    assert docids.tokens[docids.docnos.index(docids.docno["0-1-2"])] == (0, 10 + 1, 20 + 2)


def test_a_long_text_is_cut_in_its_middle_so_that_numbers_stay(t5):
    read = tokeniser(str(t5), longest=8)
    long = " ".join(tiny.WORDS[:20])
    plain, second, third = read([long, f"{long} 2", f"{long} 13"])
    assert list(map(len, (plain, second, third))) == [8, 8, 8]
    assert len({*map(tuple, (plain, second, third))}) == 3 and plain[:4] == second[:4] == third[:4]
    assert read([]) == [] and read(["baka"]) == [[len(tiny.SPECIAL) + 10]]
    docids = settle({f"{i:02}": [(long, 0.0)] for i in range(60)}, read)
    assert len(set(docids.tokens)) == 60 and set(map(len, docids.tokens)) == {8}


# The clash rule.


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

    def again(docnos, attempt):
        asked.append((tuple(docnos), attempt))
        return {docno: rounds[attempt - 1][docno] for docno in draw.sample(list(docnos), len(docnos))}

    options = {"again": again, "tries": len(rounds), "taken": nobody_s}
    one = settle(proposals, coarse, **options)
    first, asked = asked, []
    two = settle(dict(shuffled), coarse, **options)
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
    found = settle(
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
    found = settle({"a": [("CAT", 0.0)], "b": [("cat", 0.0), ("Tom", 0.0)], "c": [("tox m", 0.0)]}, coarse)
    assert texts_of(found) == {"a": "CAT", "b": "Tom", "c": "tox m"}
    assert texts_of(settle({"a": [("CAT", 0.0)], "b": [("cat", 0.0)]}, coarse)) == {"a": "CAT", "b": "cat 2"}


def test_others_are_asked_for_as_often_as_said_and_for_who_needs_them():
    asked = []

    def again(docnos, attempt):
        asked.append((list(docnos), attempt))
        return {docno: [("cat", 0.0), (f"cat{attempt if docno == 'c' else ''}", -1.0)] for docno in docnos}

    proposals = {docno: [("cat", 0.0)] for docno in "dcba"}
    found = settle(proposals, letters, again=again, tries=3)
    assert asked == [(["b", "c", "d"], 1), (["b", "d"], 2), (["b", "d"], 3)]
    assert texts_of(found) == {"a": "cat", "b": "cat 2", "c": "cat1", "d": "cat 3"}
    assert found.clashes == {"numbered": 2, "rank 1": 1, "resampled": 1}
    asked.clear()
    assert settle(proposals, letters, again=again, tries=0).clashes == {"numbered": 3, "rank 1": 1}
    assert settle({"a": [("cat", 0.0)]}, letters, again=again, tries=5).clashes == {"rank 1": 1}
    assert not asked


def test_what_is_taken_is_nobody_s_and_the_smallest_free_number_is_taken():
    taken = [tuple(row) for row in letters(["cat", "cat 3"])]
    found = settle({docno: [("cat", 0.0)] for docno in "abc"}, letters, taken=taken)
    assert texts_of(found) == {"a": "cat 2", "b": "cat 4", "c": "cat 5"}
    own = settle({"a": [("cat", 0.0)], "b": [("cat 2", 0.0)], "c": [("cat", -1.0)]}, letters)
    assert texts_of(own)["c"] == "cat 3"


def test_clashes_that_no_rule_can_settle_are_refused():
    with pytest.raises(ValueError, match="document 'b' has no proposal"):
        settle({"a": [("cat", 0.0)], "b": []}, letters)
    with pytest.raises(ValueError, match="reads 'cat' with different numbers"):
        settle({"a": [("cat", 0.0)], "b": [("cat", 0.0)]}, lambda texts: [[1] for _ in texts])


# Docids that come and go.


@settings(max_examples=80)
@given(PROPOSALS.filter(len), PROPOSALS)
def test_new_documents_leave_old_docids_alone(old, new):
    before = settle(old, coarse, {"fingerprint": "old", "scheme": "title"})
    new = {f"{docno}!": rows for docno, rows in new.items()}
    after = before.add(new, coarse, fingerprint="new")
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
    before = settle({"a": [("cat", 0.0)], "b": [("dog", 0.0)]}, letters)
    asked = []

    def again(docnos, attempt):
        asked.append((tuple(docnos), attempt))
        return {docno: [("dog" if attempt == 1 else "cow", 0.0)] for docno in docnos}

    new = {"c": [("cat", 0.0)], "d": [("eel", 0.0)]}
    after = before.add(new, letters, fingerprint="", again=again, tries=3)
    assert texts_of(after) == {"a": "cat", "b": "dog", "c": "cow", "d": "eel"}
    assert asked == [(("c",), 1), (("c",), 2)] and after.clashes == {"rank 1": 3, "resampled": 1}


def test_who_has_a_docid_does_not_choose_again():
    """Whoever makes other proposals may hand out some for documents that were not asked for."""
    rows = {"a": [("cat", 0.0)], "b": [("cat", -1.0)]}
    docids = settle(rows, letters, again=lambda docnos, attempt: dict.fromkeys("ab", [("cow", 0.0)]), tries=1)
    assert texts_of(docids) == {"a": "cat", "b": "cow"} and sum(docids.clashes.values()) == 2


def test_docids_with_vectors_can_be_compared():
    rows = np.zeros((5, 3), np.float32)
    one, two = (replace(settle({"a": [("1", 0.0)]}, letters), code_vectors=rows + i) for i in range(2))
    assert one == two, "they follow from the docids"
    assert one.docno == {"1": "a"}


def test_documents_that_are_there_or_are_not_are_named():
    docids = settle({"a": [("cat", 0.0)], "b": [("dog", 0.0)]}, letters)
    with pytest.raises(ValueError, match="document 'b' has a docid already"):
        docids.add({"b": [("cow", 0.0)], "c": [("cow", 0.0)]}, letters, fingerprint="")
    with pytest.raises(ValueError, match="no docid of document 'c'"):
        docids.remove(["a", "c"], fingerprint="")
    left = docids.remove(iter(["a"]), fingerprint="less")
    assert texts_of(left) == {"b": "dog"} and left.index == {"b": 0} and left.clashes == docids.clashes


def test_all_documents_may_go():
    docids = settle({"a": [("cat", 0.0)]}, letters)
    assert len(docids.remove(["a"], fingerprint="")) == 0


@pytest.mark.parametrize("vectors", [False, True])
def test_docids_survive_a_folder_and_a_changed_byte_does_not(tmp_path, vectors):
    strange = {f"d\n{i}": [(text, 0.0)] for i, text in enumerate([*UNICODE, 'a "quote"', "tab\t", "\u2028"])}
    docids = settle(strange, letters, {"scheme": "x", "codes": 5, "nested": {"a": [1, 2.5]}})
    rows = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    docids = replace(docids, code_vectors=rows if vectors else None)
    docids.save(tmp_path / "docids")
    loaded = Docids.load(tmp_path / "docids")
    assert replace(loaded, code_vectors=None) == replace(docids, code_vectors=None)
    assert np.array_equal(loaded.code_vectors, rows) if vectors else loaded.code_vectors is None
    files = {"docids.json", "docids.jsonl", "manifest.json"} | ({"codes.safetensors"} if vectors else set())
    assert {path.name for path in (tmp_path / "docids").iterdir()} == files
    for name in sorted(files):
        path = tmp_path / "docids" / name
        content = path.read_bytes()
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(ValueError, match="changed since it was written|missing"):
            Docids.load(tmp_path / "docids")
        path.write_bytes(content)
    Docids.load(tmp_path / "docids")


def test_flat_tokens_are_all_of_them():
    docids = settle({"a": [("cat", 0.0)], "b": [("", 0.0)], "c": [("do", 0.0)]}, letters)
    flat, offsets = docids.flat()
    assert offsets.tolist() == [0, 3, 3, 5]
    assert [tuple(flat[a:b].tolist()) for a, b in zip(offsets, offsets[1:], strict=False)] == list(
        docids.tokens
    )


# Codes.


@given(st.lists(st.integers(2, 300), min_size=1, max_size=6).flatmap(
    lambda sizes: st.tuples(st.just(sizes), st.tuples(*(st.integers(0, size - 1) for size in sizes)))
), st.integers(0, 999))  # fmt: skip
def test_each_place_has_codes_of_its_own_and_digits_come_behind(made_of, number):
    sizes, codes = made_of
    text = written(codes)
    assert text == "-".join(map(str, codes))
    numbered = f"{text} {number}"
    plain, more = code_tokeniser(sizes)([text, numbered])
    assert [token - sum(sizes[:place]) for place, token in enumerate(plain)] == list(codes)
    assert more == plain + [sum(sizes) + int(digit) for digit in str(number)]
    assert max(more) < count(sizes) == sum(sizes) + 10
    every = [range(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes))]
    assert all(token in place for token, place in zip(plain, every, strict=True))


def test_fewer_codes_than_places_are_a_path_that_ends_early():
    assert code_tokeniser([3, 3, 3])(["2", "2-1", "2-1-0 7"]) == [[2], [2, 4], [2, 4, 6, 9 + 7]]
    assert code_tokeniser([3])([]) == []


@pytest.mark.parametrize("text", ["3-0", "0-3", "0-0-0", "-1", "", "a", "0--1", "0-0 x", "0-", "0 1 2"])
def test_what_is_no_code_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011
        code_tokeniser([3, 3])([text])


def test_a_code_out_of_range_says_what_was_expected():
    with pytest.raises(ValueError, match="at most 2 codes below 20, found '3-17-1'"):
        code_tokeniser([10, 20])(["3-17-1"])
    with pytest.raises(ValueError, match="found '10-1'"):
        code_tokeniser([10, 20])(["10-1"])


# Vectors.


def some_vectors(number: int, width: int = 12, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((number, width)).astype(np.float32)


def assert_tree(paths: list[list[int]], branches: int, leaf: int) -> None:
    """All paths differ; what has more than `leaf` documents is split, what has not ends in a number."""
    assert len(set(map(tuple, paths))) == len(paths)
    sizes = Counter(tuple(path[:depth]) for path in paths for depth in range(len(path) + 1))
    for path in paths:
        for depth in range(len(path)):
            last = depth == len(path) - 1
            assert (sizes[tuple(path[:depth])] <= leaf) == last, "split exactly where there are too many"
            assert 0 <= path[depth] < (leaf if last else branches)
        assert sizes[tuple(path)] == 1


@pytest.mark.parametrize(
    ("number", "branches", "leaf"), [(1, 3, 5), (5, 3, 5), (6, 3, 5), (300, 4, 10), (200, 30, 1), (90, 2, 7)]
)
def test_clusters_larger_than_a_leaf_are_split(number, branches, leaf):
    vectors = some_vectors(number)
    paths = kmeans_paths(vectors, branches=branches, leaf=leaf)
    assert_tree(paths, branches, leaf)
    assert paths == kmeans_paths(vectors.copy(), branches=branches, leaf=leaf)


@pytest.mark.parametrize("others", [0, 1, 40])
def test_vectors_that_are_all_alike_are_split_too(others):
    vectors = np.concatenate([np.ones((200, 8), np.float32), some_vectors(others, 8)])
    paths = kmeans_paths(vectors, branches=3, leaf=5)
    assert_tree(paths, 3, 5)
    if not others:
        assert max(map(len, paths)) == 5, "200 → 67 → 23 → 8 → 3"
    assert_tree(kmeans_paths(np.zeros((50, 4), np.float32), branches=10, leaf=1), 10, 1)


def test_paths_of_neighbours_begin_alike():
    near = np.concatenate([some_vectors(20, 6, seed=i) + 50 * sign for i, sign in enumerate((-1, 1))])
    paths = kmeans_paths(near, branches=2, leaf=20)
    assert {path[0] for path in paths[:20]} != {path[0] for path in paths[20:]}
    assert all(path[0] == paths[0][0] for path in paths[:20]) and len({path[0] for path in paths}) == 2


def decoded(codes: np.ndarray, rows: np.ndarray, size: int) -> np.ndarray:
    """The sum of the vectors of each row's codes."""
    tokens = codes + np.arange(codes.shape[1]) * size
    return rows[tokens].sum(1)


@pytest.mark.parametrize("width", [12, 13])
@pytest.mark.parametrize("quantise", [product_codes, residual_codes])
def test_codes_are_what_vectors_are_made_of(quantise, width):
    vectors = some_vectors(500, width)
    errors = []
    for places in (1, 2, 4, 6):
        codes, rows = quantise(vectors, places=places, codes=16)
        assert codes.shape == (500, places) and rows.shape == (places * 16, width)
        assert rows.dtype == np.float32 and codes.min() >= 0 and codes.max() < 16
        errors.append(float(((decoded(codes, rows, 16) - vectors) ** 2).sum(1).mean()))
        chance = np.random.default_rng(places).integers(0, 16, codes.shape)
        wrong = float(((decoded(chance, rows, 16) - vectors) ** 2).sum(1).mean())
        assert errors[-1] < 0.8 * wrong, "any code would do as well"
    assert errors == sorted(errors, reverse=True) and errors[-1] < errors[0] / 2
    more = quantise(vectors, places=4, codes=64)
    assert float(((decoded(*more, 64) - vectors) ** 2).sum(1).mean()) < errors[2]


def test_product_codes_are_the_nearest_of_each_part():
    vectors = some_vectors(300, 8)
    codes, rows = product_codes(vectors, places=2, codes=8)
    for place in range(2):
        part = slice(4 * place, 4 * place + 4)
        book = rows[8 * place : 8 * place + 8]
        assert not np.delete(book, np.arange(4 * place, 4 * place + 4), axis=1).any()
        distance = ((vectors[:, None, part] - book[None, :, part]) ** 2).sum(-1)
        assert np.array_equal(distance.argmin(1), codes[:, place])


@pytest.mark.parametrize("quantise", [product_codes, residual_codes])
@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_fewer_documents_than_codes(quantise, number):
    vectors = some_vectors(number, 6)
    codes, rows = quantise(vectors, places=3, codes=256)
    assert codes.shape == (number, 3) and rows.shape == (768, 6)
    assert np.isfinite(rows).all() and codes.max() < max(2, number)
    again = quantise(vectors, places=3, codes=256)
    assert np.array_equal(codes, again[0]) and np.array_equal(rows, again[1])
    if number == 1:
        assert np.allclose(decoded(codes, rows, 256), vectors, atol=1e-4)


@pytest.mark.parametrize("codes", [0, 1, 3, 100])
def test_a_number_of_codes_that_is_no_power_of_two_is_refused(codes):
    for quantise in (product_codes, residual_codes):
        with pytest.raises(ValueError, match=f"power of 2 as the number of codes, found {codes}"):
            quantise(some_vectors(20), places=2, codes=codes)


def test_known_vectors_are_used_as_they_are(t5, tmp_path):
    vectors = some_vectors(40, 6)
    data = collection([Document(f"d{i:02}") for i in range(40)])
    docids = made("kmeans", data, t5, tmp_path, known_vectors=vectors)
    assert list(docids.texts) == list(map(written, kmeans_paths(vectors, branches=4, leaf=10)))
    assert not list(tmp_path.iterdir()), "nothing was encoded"


# Codes and the model.


def test_a_new_document_of_known_codes_gets_a_number_behind_them(t5, tmp_path):
    docids = made("rq", mixed(), t5, tmp_path)
    first = docids.texts[0]
    after = docids.add({"new": [(first, 0.0)]}, code_tokeniser([16] * 4), fingerprint="")
    numbered = after.texts[after.index["new"]]
    assert numbered.startswith(f"{first} ") and numbered not in docids.texts
    digits = tuple(4 * 16 + int(digit) for digit in numbered.partition(" ")[2])
    assert after.tokens[after.index["new"]] == docids.tokens[0] + digits
    assert np.array_equal(after.code_vectors, docids.code_vectors)


def test_vectors_of_codes_reach_the_decoder_s_rows(checkpoints, tmp_path):
    for family, backbone in checkpoints.items():
        docids = made("rq", mixed(), backbone, tmp_path / family)
        assert docids.code_vectors is not None
        assert docids.code_vectors.shape == (4 * 16 + DIGITS, 32)
        model = GR2.fresh(backbone, docids, GR2Config(network=NetworkConfig()), seed=2)
        plain = Network.build(backbone, len(model.alphabet), NetworkConfig(), seed=2)
        vectors = torch.from_numpy(docids.code_vectors[model.alphabet])
        known = vectors.norm(dim=1) > 0
        assert known.any() and not known.all(), "digits have no vector"
        for found, before in (
            (model.network.decoder.embed_tokens.weight, plain.decoder.embed_tokens.weight),
            (model.network.head.weight, plain.head.weight),
        ):
            rows, fresh = found[FIRST:].detach(), before[FIRST:].detach()
            assert torch.equal(found[:FIRST], before[:FIRST]) and torch.equal(rows[~known], fresh[~known])
            scale = rows[known].norm(dim=1) / vectors[known].norm(dim=1)
            torch.testing.assert_close(rows[known], vectors[known] * scale.mean())
            assert float(rows[known].norm(dim=1).mean()) == pytest.approx(
                float(fresh.norm(dim=1).mean()), rel=1e-4
            )


def test_vectors_of_another_width_change_nothing(t5, tmp_path):
    docids = made("pq", mixed(), t5, tmp_path, known_vectors=some_vectors(40, 6))
    model = GR2.fresh(t5, docids, GR2Config(network=NetworkConfig()), seed=2)
    plain = Network.build(t5, len(model.alphabet), NetworkConfig(), seed=2)
    assert all(torch.equal(value, plain.weights()[name]) for name, value in model.network.weights().items())


@pytest.mark.parametrize(
    ("scheme", "family"),
    [("number", "t5"), ("kmeans", "t5"), ("pq", "bart"), ("rq", "t5"), ("rq", "encoder")],
)
def test_a_model_learns_codes_and_answers_from_its_folder(checkpoints, tmp_path, scheme, family):
    data, backbone = with_queries(), checkpoints[family]
    docids = made(scheme, data, backbone, tmp_path / "making")
    plan = Plan(steps=2, queries=6, texts=6, learning_rate=5e-3, bf16=False, prior=float(scheme == "rq"))
    model = learn(data, docids, str(backbone), tmp_path / "model", plan)
    again = GR2.from_pretrained(tmp_path / "model")
    assert replace(again.docids, code_vectors=None) == replace(docids, code_vectors=None)
    for query in (data.queries["q03"], "unheard of", ""):
        found = again.search(query, k=7)
        assert found == model.search(query, k=7)
        assert len({result.docno for result in found}) == 7
        assert all(docids.texts[docids.index[result.docno]] == result.docid for result in found)
    everything = again.search(data.queries["q03"], k=len(docids), beams=len(docids))
    assert sorted(result.docno for result in everything) == list(docids.docnos)


# Docids that a model writes.


@pytest.mark.parametrize("scheme", WRITTEN)
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_writes_docids(checkpoints, tmp_path, scheme, family):
    data, backbone = with_queries(), checkpoints[family]
    docids = made(scheme, data, backbone, tmp_path, writing=replace(FAST, steps=25))
    assert_sound(docids, list(data.documents), backbone)
    assert docids.about["targets"] == "titles and leading sentences"
    assert docids.about["generator"] == backbone.name
    model = GR2.fresh(backbone, docids, GR2Config(network=NetworkConfig()))
    assert {result.docno for result in model.search("baka", k=5)} <= set(docids.docnos)


def test_another_checkpoint_may_write_than_the_one_that_reads(checkpoints, tmp_path):
    backbone, generator = checkpoints["encoder"], checkpoints["bart"]
    docids = made("fusion", with_queries(), backbone, tmp_path, generator=str(generator))
    assert (docids.about["backbone"], docids.about["generator"]) == (backbone.name, generator.name)
    assert_sound(docids, list(with_queries().documents), backbone)


@pytest.mark.parametrize(("number", "targets"), [(199, "titles and leading sentences"), (200, "queries")])
def test_it_is_said_what_docids_were_learned_from(t5, tmp_path, number, targets):
    data = with_queries()
    queries = {f"q{i:03}": words(i, 3) for i in range(number)}
    train = {qid: {f"d{i % 30:02}": 1} for i, qid in enumerate(queries)}
    docids = made("query", replace(data, queries=queries, qrels={"train": train}), t5, tmp_path)
    assert docids.about["targets"] == targets
    docids.save(tmp_path / "docids")
    assert Docids.load(tmp_path / "docids").about["targets"] == targets


def test_what_was_taken_is_sampled_again_only_with_a_radius(t5, tmp_path):
    """Eight documents, four times each: without r each try would write the same once more."""
    documents = [Document(f"d{i:02}", words(i % 8, 3), words(i % 8 + 20)) for i in range(32)]
    writing = replace(FAST, steps=40, beams=2, fusion=replace(FAST.fusion, latent_only=True))
    clashes, attempts = {}, {}
    for scheme, radius in (("fusion", 3.0), ("fusion", 0.0), ("query", 3.0)):
        folder = tmp_path / f"{scheme} {radius}"
        docids = made(scheme, documents, t5, folder, writing=replace(writing, radius=radius))
        clashes[folder.name] = docids.clashes
        attempts[folder.name] = {path.name.split("-")[1] for path in folder.rglob("proposals-*")}
    assert clashes["fusion 3.0"]["resampled"] and attempts["fusion 3.0"] == {"0", "1", "2"}
    for name in ("fusion 0.0", "query 3.0"):
        assert "resampled" not in clashes[name] and clashes[name]["numbered"] and attempts[name] == {"0"}


def test_an_interrupted_making_goes_on_to_the_same_bytes(t5, tmp_path, monkeypatch):
    import gr2.docids.writing as writing

    monkeypatch.setattr(writing, "CHUNK", 8)
    monkeypatch.setattr(writing, "SHARD", 1)
    make = partial(made, "fusion", mixed(), t5)
    make(tmp_path / "whole.making").save(tmp_path / "whole")
    write, calls = writing.Writer.write, []

    def broken(self, chunk, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return write(self, chunk, **options)

    with monkeypatch.context() as patch:
        patch.setattr(writing.Writer, "write", broken)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / "twice.making")
    with pytest.raises(ValueError, match="resume"):
        make(tmp_path / "twice.making")
    make(tmp_path / "twice.making", resume=True).save(tmp_path / "twice")
    for name in ("docids.jsonl", "docids.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_resuming_after_the_documents_changed_hands_out_nothing_of_the_old_ones(t5, tmp_path):
    """The same docnos and words, but each document has the contents of the next one."""
    documents = list(with_queries().documents)
    turned = [
        document._replace(docno=before.docno)
        for before, document in zip(documents, documents[1:] + documents[:1], strict=True)
    ]
    writing = replace(FAST, steps=30, radius=0.0)
    wanted = made("fusion", turned, t5, tmp_path / "fresh", writing=writing)
    made("fusion", documents, t5, tmp_path / "used", writing=writing)
    assert wanted != made("fusion", documents, t5, tmp_path / "old", writing=writing)
    with pytest.raises(ValueError, match="another collection; it cannot be resumed"):
        made("fusion", turned, t5, tmp_path / "used", writing=writing, resume=True)


@pytest.mark.parametrize("changed", ["documents", "backbone"])
def test_vectors_of_another_making_are_not_taken_for_these(checkpoints, tmp_path, changed):
    """A folder may hold the vectors of other documents, or of another encoder."""
    documents, backbone = mixed(), checkpoints["t5"]
    made("kmeans", documents, backbone, tmp_path / "used")
    if changed == "documents":
        documents = [document._replace(text=words(i + 500)) for i, document in enumerate(documents)]
    else:
        backbone = checkpoints["encoder"]
    wanted = made("kmeans", documents, backbone, tmp_path / "fresh")
    assert made("kmeans", documents, backbone, tmp_path / "used") == wanted


def test_resuming_with_another_radius_does_not_hand_out_what_the_first_one_wrote(t5, tmp_path):
    writing = replace(FAST, steps=30, fusion=replace(FAST.fusion, latent_only=True), radius=0.0)
    far = replace(writing, radius=4.0)
    wanted = made("fusion", with_queries(), t5, tmp_path / "far", writing=far)
    near = made("fusion", with_queries(), t5, tmp_path / "both", writing=writing)
    assert near.texts != wanted.texts
    assert made("fusion", with_queries(), t5, tmp_path / "both", writing=far, resume=True) == wanted


def test_resuming_for_another_tokenizer_resamples_for_those_that_clash_there(checkpoints, tmp_path):
    """Who clashes depends on the backbone's tokens; the generator and what it first wrote are the same."""
    documents = [Document(f"d{i:02}", words(i % 8, 3), words(i % 8 + 20)) for i in range(32)]
    writing = replace(FAST, steps=40, beams=2, radius=3.0, fusion=replace(FAST.fusion, latent_only=True))
    generator = str(checkpoints["t5"])
    make = partial(made, "fusion", documents, generator=generator, writing=writing)
    other = tiny.save_checkpoint(tmp_path / "other", "t5")
    tiny.save_tokenizer(other, tiny.WORDS[:10])  # all others are one unknown word
    wanted = make(other, tmp_path / "fresh")
    first = make(checkpoints["t5"], tmp_path / "both")
    again = make(other, tmp_path / "both", resume=True)
    assert first.clashes != wanted.clashes and again == wanted
    assert sum(again.clashes.values()) == 32


@pytest.mark.parametrize("scheme", WRITTEN)
def test_the_number_of_shards_changes_no_docid(t5, tmp_path, monkeypatch, scheme):
    import gr2.docids.writing as writing

    monkeypatch.setattr(writing, "CHUNK", 5)
    found = {}
    for shards, size in ((1, 100), (4, 2)):
        monkeypatch.setattr(writing, "SHARD", size)
        folder = tmp_path / f"{shards}.making"
        made(scheme, mixed(), t5, folder).save(tmp_path / str(shards))
        assert len(list(folder.rglob("proposals-0-*"))) == shards
        found[shards] = {p.name: p.read_bytes() for p in (tmp_path / str(shards)).iterdir()}
    assert found[1] == found[4]


def test_docids_of_another_tokenizer_are_refused(checkpoints, tmp_path):
    docids = made("title", with_queries(), checkpoints["t5"], tmp_path)
    other = tiny.save_checkpoint(tmp_path / "other", "t5")
    tiny.save_tokenizer(other, tiny.WORDS[::-1])
    with pytest.raises(ValueError, match=f"built for the tokens of {checkpoints['t5'].name}.*--backbone"):
        GR2.fresh(other, docids, GR2Config(network=NetworkConfig()))
    GR2.fresh(checkpoints["t5"], docids, GR2Config(network=NetworkConfig()))


def test_another_encoder_makes_the_vectors_on_request(checkpoints, tmp_path):
    t5, encoder = checkpoints["t5"], checkpoints["encoder"]
    docids = made("kmeans", mixed(), t5, tmp_path / "a", encoder=str(encoder))
    assert docids.texts == made("kmeans", mixed(), encoder, tmp_path / "b").texts
    assert docids.texts != made("kmeans", mixed(), t5, tmp_path / "c").texts
    assert docids.about["encoder"] == encoder.name and docids.about["backbone"] == t5.name


def test_the_command_line_knows_every_scheme():
    from gr2.cli.docids import Scheme

    assert set(get_args(Scheme)) == set(SCHEMES)


def test_from_radius_to_report_on_the_command_line(gr2, t5, tmp_path):
    data = with_queries()
    folder, out = tmp_path / "data", tmp_path / "docids"
    write_folder(data, folder)
    common = (folder, "--backbone", t5, "--out", out, "--generator-steps", 2)
    told = gr2("docids", "radius", *common, "--radii", 0, 1.5, "--sample", 10, "--json", tmp_path / "r.json")
    assert "unique docids of 10" in told and "--radius " in told
    assert [row["radius"] for row in json.loads((tmp_path / "r.json").read_text())] == [0, 1.5]
    with pytest.raises(SystemExit, match="resume"):
        gr2("docids", "build", *common, "--scheme", "fusion")
    built = gr2("docids", "build", *common, "--scheme", "fusion", "--radius", 1.5, "--resume")
    assert built.splitlines()[-1].startswith("fusion: 30 docids (")
    about = Docids.load(out).about
    assert (about["radius"], about["steps"], about["beams"], about["document"]) == (1.5, 2, 10, 128)
    told = gr2("docids", "report", out, folder, "--json", tmp_path / "health.json", "--sample", 5)
    assert "unique proposals" in told and "BM25 k1=0.9 b=0.4" in told and "radius 1.5" in told
    assert json.loads((tmp_path / "health.json").read_text())["retrieval"]["documents"] == 5
    (out / "mine").write_text("a note")
    with pytest.raises(SystemExit, match="mine: was not written by gr2"):  # before any training
        gr2("docids", "build", *common, "--scheme", "fusion", "--resume")
    assert json.loads(gr2("docids", "show", out, "d07"))["docid"] == Docids.load(out).texts[7]
