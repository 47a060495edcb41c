"""Docids that are read off a document: titles, URLs, terms and summaries."""

import pytest
from helpers import tiny

from gr2.data.collection import Document
from gr2.schemes.text import summaries, term_sets, titles, urls


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
    for documents in ([Document("x", "", cut), *usual], tiny.mixed_documents()):
        for docno, row in propose(documents, words=3).items():
            scores = [score for _, score in row]
            assert scores == sorted(scores, reverse=True), docno
            assert len({text for text, _ in row}) == len(row)
