"""What the service says of a result besides its rank: rivals, matching words, similar documents, examples."""

import re

import numpy as np
import pytest
from helpers import judged

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
from fastapi.testclient import TestClient

from gr2.bm25 import query_terms
from gr2.judge.judged_queries import JudgedQueries
from gr2.model.gr2 import GR2
from gr2.model.similar import similar
from gr2.model.vector_storage import widened
from gr2.serve import ServiceConfig
from gr2.serve.app import build_app
from gr2.serve.config import RESULTS
from gr2.serve.matched_words import matched_words
from gr2.serve.served_model import EXAMPLES, SHORT, example_queries
from gr2.serve.service import Service

QUERY = f"{judged.WRITTEN[0]} {judged.OTHERS[3]} {judged.WRITTEN[0]} nothing"


@pytest.fixture(scope="module")
def client(taught):
    with TestClient(build_app(Service(taught, ServiceConfig()))) as client:
        yield client


@pytest.fixture(scope="module")
def taught_model(taught):
    return GR2.from_pretrained(taught)


def answer(client, **options):
    reply = client.post("/search", json={"query": QUERY, "k": 36, **options})
    assert reply.status_code == 200, reply.text
    return reply.json()["answers"][0]


@pytest.mark.parametrize("storage", ["fp32", "int8"])
def test_similar_documents_are_those_with_the_highest_cosines(taught_model, storage):
    look_ahead = taught_model.look_ahead.stored(storage)
    vectors = widened(look_ahead.vectors)
    cosines = vectors @ vectors[5] / np.linalg.norm(vectors[5])
    expected = [place for place in np.argsort(-cosines, kind="stable").tolist() if place != 5]
    found = similar(look_ahead, 5, 7)
    assert [score for _, score in found] == pytest.approx([cosines[p] for p in expected[:7]], abs=1e-4)
    assert 5 not in dict(found) and len(similar(look_ahead, 5, 100)) == len(vectors) - 1


def test_a_document_without_a_vector_is_like_no_other(taught_model):
    from dataclasses import replace

    from gr2.model.vector_storage import FullVectors

    rows = widened(taught_model.look_ahead.vectors).copy()
    rows[3] = 0
    assert similar(replace(taught_model.look_ahead, vectors=FullVectors(rows)), 3, 5) == []


def test_the_route_of_similar_documents(client, taught_model):
    reply = client.get("/similar/d05?k=4").json()
    place = taught_model.docids.index["d05"]
    expected = similar(taught_model.look_ahead, place, 4)
    assert [hit["docno"] for hit in reply["results"]] == [taught_model.docids.docnos[p] for p, _ in expected]
    assert [hit["rank"] for hit in reply["results"]] == [1, 2, 3, 4] and reply["milliseconds"] > 0
    assert all(hit["title"] and hit["snippet"] for hit in reply["results"])
    assert client.get("/similar/nobody").status_code == 404
    for k in (0, RESULTS + 1):
        assert client.get(f"/similar/d05?k={k}").status_code == 422
    assert 'route="/similar/{docno}"' in client.get("/metrics").text


def test_a_model_without_vectors_has_no_similar_documents(served_folder):
    with TestClient(build_app(Service(served_folder, ServiceConfig()))) as client:
        reply = client.get("/similar/d07")
        assert reply.status_code == 404 and "no vectors" in reply.json()["detail"]
        health = client.get("/health").json()
        assert not health["dense"] and not health["hybrid"]
        found = answer(client, dense=True, hybrid=True, explain=True)
        assert found["dense"] is found["hybrid"] is None and found["results"]
        assert client.get("/examples").json() == {"queries": []}


def test_rivals_know_nothing_of_judgements(client, untaught, taught_model):
    """The hybrid of a taught model is the model before it was taught; dense has its vectors alone."""
    found = answer(client, dense=True, hybrid=True, bm25=True)
    expected = GR2.from_pretrained(untaught).search(QUERY, 36)
    assert [hit["docno"] for hit in found["hybrid"]] == [result.docno for result in expected]
    queries = taught_model.query_encoder.encode([QUERY])
    cosines = taught_model.look_ahead.cosines(queries)[0]
    places = [taught_model.docids.index[hit["docno"]] for hit in found["dense"]]
    assert len(places) == 36 and np.all(np.diff(cosines[places]) <= 1e-4)
    assert [hit["docno"] for hit in found["results"]] != [hit["docno"] for hit in found["hybrid"]]
    assert found["bm25"] and found["hybrid"] != found["dense"]
    assert answer(client)["dense"] is answer(client)["hybrid"] is None


def test_rivals_obey_the_filter_and_the_limit_of_the_queue(taught):
    with TestClient(build_app(Service(taught, ServiceConfig(queue=4)))) as client:
        found = answer(client, hybrid=True, filter={"docnos": ["d01", "d02"]})
        assert {hit["docno"] for hit in found["hybrid"]} == {"d01", "d02"}
        body = {"query": ["a word"] * 3, "hybrid": True}
        reply = client.post("/search", json=body)
        assert reply.status_code == 422 and "at most 2 queries" in reply.json()["detail"]


def test_matching_words_add_up_to_the_view_of_words(client, taught_model):
    found = answer(client, explain=True)["results"]
    some = [hit for hit in found if hit["words"]]
    assert len(some) > 3
    for hit in found:
        assert sum(hit["words"].values()) == pytest.approx(hit["views"]["words"], abs=0.01)
        assert set(hit["words"]) <= set(QUERY.split()) - {"nothing"}
        assert list(hit["words"].values()) == sorted(hit["words"].values(), reverse=True)
    assert not any(hit["words"] for hit in answer(client)["results"])
    assert query_terms([QUERY], taught_model.look_ahead.config.bm25)[0].count(judged.WRITTEN[0]) == 2


def test_without_an_index_no_word_matches(taught_model):
    from dataclasses import replace

    assert matched_words(replace(taught_model.look_ahead, bm25=None), QUERY, [1, 2]) == [{}, {}]


def test_examples_are_short_judged_queries(client):
    found, known = client.get("/examples").json()["queries"], judged.judged().queries
    assert len(found) == EXAMPLES == len(set(found)) and set(found) <= set(known.values())
    texts = {"a": "x" * (SHORT + 1), "b": "fine", "c": "not judged relevant"}
    assert example_queries(JudgedQueries(texts, {"a": {"d": 1}, "b": {"d": 1}, "c": {"d": 0}})) == ("fine",)
    assert example_queries(None) == ()


def test_the_schema_describes_all_of_it(client):
    schema = client.get("/openapi.json").json()
    assert "most like one" in schema["paths"]["/similar/{docno}"]["get"]["description"]
    body = schema["components"]["schemas"]["SearchBody"]["properties"]
    for name in ("bm25", "dense", "hybrid", "explain"):
        assert re.match("Also return", body[name]["description"]), name
