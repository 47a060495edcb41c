"""The order in which a decoder writes the words of a docid."""

from gr2.data.collection import Collection, Document
from gr2.docids.clashes import letters
from gr2.schemes.config import SchemeConfig
from gr2.schemes.registry import SchemeContext
from gr2.schemes.word_order import rarest_first

PROPOSALS = {
    "lemon": [("what is a lemon", -0.1)],
    "lime": [("what is a lime", -0.2)],
    "other": [("what is a lime", -0.3)],
}


def resolved(tmp_path, *, rarest: bool, about=None):
    documents = tuple(Document(docno, docno, docno) for docno in PROPOSALS)
    context = SchemeContext(
        collection=Collection(name="fruit", documents=documents, queries={}, qrels={}),
        backbone="none",
        folder=tmp_path,
        config=SchemeConfig(rarest_first=rarest),
        scheme="query",
    )
    return context.resolve(PROPOSALS, letters, about)


def test_equally_rare_words_keep_their_order_and_unknown_ones_come_last():
    ordered = rarest_first(["b a", "b c", "b c", "d"])
    assert ordered("b c a d 2") == "a d c b 2"


def test_a_word_counts_once_in_a_text():
    assert rarest_first(["a a a", "b", "b"])("b a") == "a b"


def test_only_the_tokens_are_turned(tmp_path):
    turned, plain = (resolved(tmp_path, rarest=rarest) for rarest in (True, False))
    assert turned.texts == plain.texts == ("what is a lemon", "what is a lime", "what is a lime 2")
    tokens = dict(zip(turned.docnos, turned.tokens, strict=True))
    expected = {"lemon": "lemon what is a", "lime": "lime what is a", "other": "lime what is a 2"}
    assert tokens == {docno: tuple(letters([text])[0]) for docno, text in expected.items()}
    assert turned.about["rarest_first"] is True and "rarest_first" not in plain.about


def test_codes_keep_their_order(tmp_path):
    about = {"codes": 300}
    assert resolved(tmp_path, rarest=True, about=about) == resolved(tmp_path, rarest=False, about=about)
