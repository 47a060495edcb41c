"""Dense search against the definition written out, and kept vectors."""

import random

import numpy as np
import pytest
from helpers import tiny

from gr2.data.collection import Collection, Document
from gr2.data.formats import write_folder
from gr2.data.runs import Run
from gr2.model.config import VectorConfig
from gr2.model.document_vectors import document_vectors
from gr2.model.encoder import Encoder
from gr2.systems.dense import Dense
from gr2.text import pieces


def some_texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(tiny.WORDS, k=draw.randint(1, 30))) for _ in range(count)]


def some_documents(count: int, seed: int = 0) -> list[Document]:
    return [
        Document(f"d{i:03}", " ".join(text.split()[:3]), text)
        for i, text in enumerate(some_texts(count, seed))
    ]


def written_out(query: str, document: Document, encoder: Encoder, config: VectorConfig) -> float:
    """The score of one document by the definition, every text encoded by itself."""

    def vector(text: str) -> np.ndarray:
        return encoder.encode([text], max_tokens=config.max_tokens)[0]

    parts = [
        vector(f"{document.title} {part}")
        for part in (pieces(document.text, config.words, config.pieces) if config.pieces else ())
    ]
    mean = np.mean([vector(f"{document.title} {document.text}"), *parts], axis=0)
    if not parts:
        return float(vector(query) @ mean)
    best = max(float(vector(query) @ part) for part in parts)
    return config.mix * float(vector(query) @ mean) / float(np.linalg.norm(mean)) + (1 - config.mix) * best


@pytest.mark.parametrize(
    "config",
    [
        VectorConfig(words=4, pieces=3, mix=0.25, max_tokens=8),
        VectorConfig(words=7),
        VectorConfig(mix=1),
        VectorConfig(pieces=0, max_tokens=8),
    ],
)
def test_search_is_the_definition_written_out(encoder, config):
    documents = some_documents(12)
    queries = {f"q{i}": text for i, text in enumerate(some_texts(3, seed=1))}
    run = Dense.index(documents, encoder, config).search(queries, k=100, name="mine")
    assert run.name == "mine"
    for qid, query in queries.items():
        wanted = {d.docno: written_out(query, d, encoder, config) for d in documents}
        assert dict(run.rankings[qid]) == pytest.approx(wanted, abs=2e-6)
        assert run.rankings[qid] == Run.from_dict(run.to_dict()).rankings[qid]


def test_documents_are_scored_the_same_in_blocks_and_in_any_order(encoder):
    documents = some_documents(50)
    index = Dense.index(documents, encoder, VectorConfig(words=5, pieces=4))
    vectors = encoder.encode(some_texts(7, seed=2))
    whole = index.vectors.scores(vectors)
    for block in (1, 7, 49, 50):
        np.testing.assert_allclose(index.vectors.scores(vectors, block), whole, atol=2e-6)
    queries = {f"q{i}": text for i, text in enumerate(some_texts(200, seed=3))}
    mixed = Dense.index(random.Random(0).sample(documents, 50), encoder, index.vectors.config)
    assert mixed.search(queries) == index.search(queries)
    assert list(index.search(queries).rankings) == list(queries)


def test_ties_follow_the_tie_rule_and_fewer_results_are_a_prefix_of_more(encoder):
    same = [Document(f"{i:02}", "", "baka beke biki boko") for i in range(40)]
    index = Dense.index([*same, *some_documents(40)], encoder, VectorConfig(words=2))
    whole = index.search({"q": "baka beke"}, k=100)
    assert whole == Run.from_dict(whole.to_dict(), "dense")
    places = [docno for docno in whole.docnos("q") if docno.isdigit()]
    assert places == sorted(places, reverse=True)
    for k in (1, 3, 17, 40, 79, 80):
        assert index.search({"q": "baka beke"}, k=k).docnos("q") == whole.docnos("q")[:k]


def test_one_document_empty_ones_and_what_is_refused(encoder):
    index = Dense.index([Document("empty"), Document("blank", " ", "\n"), Document("title", "baka")], encoder)
    run = index.search({"q": "baka", "nothing": ""}, k=10)
    assert run.docnos("q") == run.docnos("nothing") == ("title",)
    assert dict(run.rankings["q"]) == pytest.approx({"title": 1.0}, abs=1e-6)
    assert index.search({}).rankings == {}
    assert index.vectors.nbytes == 2 * 32 * 4
    with pytest.raises(ValueError, match="at least 1"):
        index.search({"q": "baka"}, k=0)
    for documents in ([], [Document("empty")]):
        with pytest.raises(ValueError, match="at least one document with a word"):
            Dense.index(documents, encoder)
    for wrong in ({"words": 0}, {"pieces": -1}, {"max_tokens": 0}, {"mix": 1.5}, {"mix": -0.1}):
        with pytest.raises(ValueError, match="mix from 0 to 1"):
            VectorConfig(**wrong)


def test_kept_vectors_are_those_of_the_way_they_were_made(bert, tmp_path):
    documents = some_documents(20)
    data = Collection(name="tiny", documents=tuple(documents), queries={}, qrels={})
    docnos = [document.docno for document in documents]
    for config in (None, VectorConfig.leading(3), VectorConfig.leading(4)):
        wanted = Dense.index(documents, Encoder.load(bert), config).vectors.of(docnos)
        for _ in range(2):  # made, and read again
            assert np.array_equal(document_vectors(data, docnos, str(bert), tmp_path, config), wanted)
    document_vectors(data, docnos, str(bert), tmp_path, VectorConfig.leading(0))
    assert len(list(tmp_path.iterdir())) == 3, "no leading tokens are the usual way, and have its file"


def test_the_command_writes_a_run_that_can_be_evaluated(gr2, bert, tmp_path):
    documents = some_documents(20)
    queries = {f"q{i}": documents[i].text for i in range(5)}
    qrels = {"test": {f"q{i}": {documents[i].docno: 1} for i in range(5)}}
    data = Collection(name="tiny", documents=tuple(documents), queries=queries, qrels=qrels)
    write_folder(data, tmp_path / "tiny")
    out = gr2(
        "run", "dense", tmp_path / "tiny", "--backbone", bert, "--output", tmp_path / "dense.run", "--k", "7"
    )
    assert "mix=0.5" in out
    assert "MB): 5 of 5 queries answered" in out
    run = Run.read(tmp_path / "dense.run")
    assert all(len(run.docnos(qid)) == 7 for qid in queries)
    assert run.docnos("q0") == Dense.index(documents, Encoder.load(bert)).search(queries, 7).docnos("q0")
    assert "all queries (5)" in gr2("evaluate", tmp_path / "tiny", tmp_path / "dense.run")
    with pytest.raises(SystemExit, match="no split 'dev'"):
        gr2(
            "run",
            "dense",
            tmp_path / "tiny",
            "--backbone",
            bert,
            "--output",
            tmp_path / "x.run",
            "--split",
            "dev",
        )
    with pytest.raises(SystemExit, match="nowhere"):
        gr2(
            "run",
            "dense",
            tmp_path / "tiny",
            "--backbone",
            tmp_path / "nowhere",
            "--output",
            tmp_path / "x.run",
        )
