"""Requests made to do harm: each is refused with a 4xx, cheaply, and the next client does not notice."""

import time

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
from fastapi.testclient import TestClient

from gr2.serve import ServiceConfig
from gr2.serve.app import build_app
from gr2.serve.config import BODY_BYTES, DOCNOS, QUERIES
from gr2.serve.service import Service


@pytest.fixture(scope="module")
def client(served_folder):
    with TestClient(build_app(Service(served_folder, ServiceConfig(bm25=False)))) as client:
        yield client


def listed(item: bytes, count: int) -> bytes:
    return b"[" + b",".join([item] * count) + b"]"


FIELDS = b",".join(b'"k%d":1' % number for number in range(80_000))
LIMIT_MS = 50
MEGABYTE = {
    "empty strings": b'{"query": %s}' % listed(b'""', 345_000),
    "numbers": b'{"query": %s}' % listed(b"1", 500_000),
    "decimal numbers": b'{"query": %s}' % listed(b"1.1", 260_000),
    "objects": b'{"query": %s}' % listed(b"{}", 340_000),
    "nested lists": b'{"query": %s}' % listed(b"[[[[[[[[[[]]]]]]]]]]", 47_000),
    "unknown fields": b'{"query": "a", %s}' % FIELDS,
    "numbers as docnos": b'{"query": "a", "filter": {"docnos": %s}}' % listed(b"1", 500_000),
    "unknown fields of a filter": b'{"query": "a", "filter": {"docnos": ["a"], %s}}' % FIELDS,
    "long numbers": b'{"query": %s}' % listed(b"9" * 4300, 240),
    "escapes": b'{"query": "%s"}' % (rb"\u00e4" * 170_000),
    "an open string": b'{"query": "' + b'\\"' * 500_000,
    "as many wrong docnos as allowed": b'{"query": "a", "filter": {"docnos": %s}}' % listed(b"1", DOCNOS),
    "as many empty queries as allowed": b'{"query": %s}' % listed(b'""', QUERIES),
}


@pytest.mark.parametrize("name", MEGABYTE)
def test_a_hostile_body_is_refused_with_little_work(client, name):
    """CPU time of the whole process, best of three: the time of a busy machine does not count."""
    assert len(MEGABYTE[name]) <= BODY_BYTES
    took = []
    for _ in range(3):
        began = time.process_time()
        reply = client.post("/search", content=MEGABYTE[name], headers={"content-type": "application/json"})
        took.append(1000 * (time.process_time() - began))
        assert reply.status_code in (400, 422), reply.text[:300]
        assert len(reply.text) < 500, "the input was echoed"
    assert min(took) < LIMIT_MS


def test_at_most_three_errors_are_reported(client):
    reply = client.post("/search", json={"query": "a", "a": 1, "b": 2, "c": 3, "d": 4, "e": 5})
    assert reply.json()["detail"].count("Extra inputs") == 3
    assert reply.json()["detail"].endswith("; and 2 more")
    reply = client.post("/search", json={"query": "a"} | {f"k{number}": 1 for number in range(25)})
    assert "at most 20 fields, found 26" in reply.json()["detail"]


def test_the_largest_valid_request_is_answered(client):
    body = {"query": ["baka, [beke]: {a}"] * QUERIES, "k": 1, "filter": {"docnos": ["d07,[{:"] * DOCNOS}}
    assert client.post("/search", json=body).status_code == 200
