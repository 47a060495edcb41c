"""The texts of a document: for L_MLE^d, or as queries of its docid."""

from dataclasses import replace

import pytest
from helpers import tiny

from gr2.data.collection import Document
from gr2.training.augment import queries_of, texts_of
from gr2.training.batches import Batches
from gr2.training.config import AugmentConfig, BatchConfig
from gr2.training.examples import examples_of
from gr2.training.fit import with_self_negatives

TEXT = "One is here. Two is there. Three. Four.\n\nSecond part.\n\nThird part.\n\nFourth part."
DOCUMENT = Document("d1", "The title", TEXT)
NAMES = ["Ada", "Bob", "Cy", "Di"]
PAPER = AugmentConfig(paragraphs=3, sentences=3, entities=3, pieces=0, document=True, as_queries=True)


def entities(document):
    return NAMES


def test_three_paragraphs_three_sentences_and_three_entities_are_queries():
    found = queries_of(DOCUMENT, PAPER, entities)
    assert found[:3] == ["One is here. Two is there. Three. Four.", "Second part.", "Third part."]
    assert found[3:6] == ["One is here.", "Two is there.", "Three."]
    assert len(set(found[6:])) == 3 and set(found[6:]) < set(NAMES)
    assert queries_of(DOCUMENT, PAPER, entities, seed=0) == found
    assert any(queries_of(DOCUMENT, PAPER, entities, seed=i) != found for i in range(1, 6))


@pytest.mark.parametrize(("name", "left"), [("paragraphs", 6), ("sentences", 6), ("entities", 6)])
def test_each_kind_can_be_left_out(name, left):
    assert len(queries_of(DOCUMENT, replace(PAPER, **{name: 0}), entities)) == left


def test_the_whole_document_is_the_text():
    assert texts_of(DOCUMENT, PAPER, entities) == [" ".join(f"The title {TEXT}".split())]
    assert texts_of(DOCUMENT, replace(PAPER, max_words=3), entities) == ["The title One"]
    assert texts_of(DOCUMENT, replace(PAPER, document=False), entities) == ["The title"]


def test_pieces_are_spread_over_the_whole_text():
    config = replace(PAPER, pieces=2, words=3)
    whole, *pieces = texts_of(DOCUMENT, config, entities)
    assert len(pieces) == 2 and all(len(piece.split()) == 3 and piece in whole for piece in pieces)
    assert whole.startswith(pieces[0]) and pieces[1].split()[-1] in whole.split()[-6:]


def test_without_the_switch_the_same_texts_stand_for_the_document():
    config = replace(PAPER, as_queries=False, document=False)
    assert queries_of(DOCUMENT, config, entities) == []
    assert texts_of(DOCUMENT, config, entities) == ["The title", *queries_of(DOCUMENT, PAPER, entities)]


def test_pseudo_queries_go_where_the_other_texts_go():
    made = {"pseudo_queries": ("asked",)}
    assert queries_of(DOCUMENT, PAPER, entities, **made)[0] == "asked"
    assert "asked" not in texts_of(DOCUMENT, PAPER, entities, **made)
    assert texts_of(DOCUMENT, replace(PAPER, as_queries=False), entities, **made)[0] == "asked"


def test_texts_as_queries_have_their_own_document_as_the_top_grade(t5):
    data, model, *_ = tiny.prepared(t5)
    plain = examples_of(data, model.docids, model.read)
    examples = examples_of(data, model.docids, model.read, augment=PAPER)
    count = len(plain.queries)
    assert list(examples.queries[:count]) == list(plain.queries) and len(examples.queries) > count
    assert examples.judged[:count] == plain.judged
    owners = [grades[2] for grades in examples.judged[count:] if set(grades) == {2}]
    assert len(owners) == len(examples.queries) - count, "the top grade of this collection is 2"
    assert {docid for (docid,) in owners} == set(range(len(model.docids)))
    assert list(examples.text_docids) == [model.docids.index[d.docno] for d in data.documents]


def test_only_judged_queries_have_self_negatives(t5):
    data, model, *_ = tiny.prepared(t5)
    examples = examples_of(data, model.docids, model.read, augment=PAPER)
    found = with_self_negatives(model, data, examples, k=5)
    judged = len(data.split("train"))
    assert len(found.self_negatives) == len(examples.queries) > judged
    assert any(found.self_negatives[:judged]) and not any(found.self_negatives[judged:])
    batches = Batches(found, BatchConfig(queries=len(examples.queries), texts=1, self_negatives=2))
    batch = batches[0]
    rows = [(int(q), int(d)) for q, d in zip(batch.query_index[batch.owner], batch.docids, strict=True)]
    for query, wrong in enumerate(found.self_negatives):
        assert {(query, docid) for docid in wrong[:2]} <= set(rows)
    of_self = batch.grades.sum(0) == 0  # rows of grade 0 are self-negatives
    assert int(of_self.sum()) == sum(min(2, len(wrong)) for wrong in found.self_negatives)
    assert bool(batch.negatives[batch.owner[of_self], of_self.nonzero()[:, 0]].all()), "they are in A_q"
