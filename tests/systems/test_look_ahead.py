"""Look-ahead as a system: the hybrid without judgements, and what `gr2 run` says of it."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny

from gr2.bm25 import BM25
from gr2.data.formats import write_folder
from gr2.data.runs import Run
from gr2.model.config import LookAheadConfig, VectorConfig
from gr2.model.document_vectors import encode_documents
from gr2.model.text_encoder import load_encoder
from gr2.model.vector_storage import FullVectors, Int8Vectors, ProductVectors
from gr2.model.word_weights import WordWeights
from gr2.systems.config import LookAheadOptions
from gr2.systems.dense import Dense
from gr2.systems.look_ahead import LookAheadSystem


def test_without_judgements_it_is_the_hybrid(bert, encoder):
    data = replace(tiny.collection(20), qrels={})
    options = LookAheadOptions(
        backbone=str(bert), vectors=VectorConfig(pieces=0), look_ahead=LookAheadConfig(scale=5.0, words=0.5)
    )
    system = LookAheadSystem.build(data, options)
    run = system.search(data.queries, 20)
    vectors = encode_documents(data.documents, encoder, VectorConfig(pieces=0))
    words = BM25.index(data.documents).search(data.queries, 20).to_dict()
    for qid, text in data.queries.items():
        query = encoder.encode([text])[0]
        dense = dict(zip(vectors.docnos, 5 * vectors.means @ query, strict=True))
        expected = {docno: dense[docno] + 0.5 * words[qid].get(docno, 0.0) for docno in dense}
        total = np.log(np.exp(list(expected.values())).sum())
        expected = {docno: score - total for docno, score in expected.items()}  # log P
        found = dict(run.rankings[qid])
        np.testing.assert_allclose(
            [found[d] for d in expected], list(expected.values()), rtol=1e-3, atol=1e-3
        )
    assert "learned: nothing" in str(system)


def test_ties_are_broken_as_in_every_run(bert):
    data = tiny.collection(6)
    data = replace(data, documents=tuple(d._replace(title="", text="baka") for d in data.documents))
    run = LookAheadSystem.build(data, LookAheadOptions(backbone=str(bert))).search({"q": "baka"}, 3)
    assert run.docnos("q") == ("d05", "d04", "d03")


def test_the_command_learns_and_keeps_vectors(bert, gr2, tmp_path):
    write_folder(tiny.with_dev(20), tmp_path / "shop")
    words = ("run", "look-ahead", tmp_path / "shop", "--backbone", bert, "--work", tmp_path / "work")
    out = gr2(*words, "--output", tmp_path / "a.run", "--k", "5")
    assert "10 of 10 queries answered" in out and "learned:" in out
    assert list((tmp_path / "work").glob("vectors.*"))
    gr2(*words, "--output", tmp_path / "b.run", "--k", "5")
    assert Run.read(tmp_path / "a.run").rankings == Run.read(tmp_path / "b.run").rankings
    plain = gr2(*words, "--output", tmp_path / "c.run", "--k", "5", "--no-learn")
    assert "learned: nothing" in plain


@pytest.mark.parametrize(("storage", "kind"), [("int8", Int8Vectors), ("pq", ProductVectors)])
def test_vectors_are_stored_as_asked_once_all_is_learned(storage, kind, bert, monkeypatch):
    data, options = tiny.collection(256), LookAheadOptions(backbone=str(bert), vectors=VectorConfig(pieces=0))
    full = LookAheadSystem.build(data, options)
    small = LookAheadSystem.build(data, replace(options, storage=storage))
    assert isinstance(small.look_ahead.vectors, kind) and isinstance(full.look_ahead.vectors, FullVectors)
    assert small.selection.rows == full.selection.rows
    with pytest.raises(ValueError, match="found 20: choose the storage int8"):
        monkeypatch.setattr("gr2.systems.look_ahead.load_encoder", None)  # before anything is loaded
        LookAheadSystem.build(tiny.collection(20), replace(options, storage="pq"))


def test_codes_and_few_words_take_the_place_of_vectors(bert):
    data = tiny.collection(60)
    few = LookAheadConfig(kept_words=2)
    options = LookAheadOptions(backbone=str(bert), look_ahead=few, codes=3)
    found = LookAheadSystem.build(data, options)
    assert found.look_ahead.bytes_per_document["codes"] == 3 and found.look_ahead.config.kept_words == 2
    assert isinstance(found.look_ahead.bm25, WordWeights)
    learned = [row.candidate.regression.shared for row in found.selection.rows if row.candidate.regression]
    assert set(learned) == {"codes"}
    with pytest.raises(ValueError, match="leave storage out"):
        replace(options, storage="int8")
    with pytest.raises(ValueError, match="codes are at least 0"):
        replace(options, codes=-1)


def test_commands_take_a_static_encoder(gr2, tmp_path):
    static = tiny.save_static_encoder(tmp_path / "words")
    data = tiny.with_dev(20)
    write_folder(data, tmp_path / "shop")
    words = ("run", "dense", tmp_path / "shop", "--backbone", static, "--output", tmp_path / "dense.run")
    assert "dense words" in gr2(*words)
    queries = {qid: data.queries[qid] for qid in data.split("test")}
    wanted = Dense.index(data.documents, load_encoder(static)).search(queries, 20)
    assert Run.read(tmp_path / "dense.run").docnos("q03") == wanted.docnos("q03")
    words = ("run", "look-ahead", tmp_path / "shop", "--backbone", static, "--storage", "int8")
    assert "look-ahead words" in gr2(*words, "--output", tmp_path / "ours.run")
