"""Requests made to do harm: each is refused with a 4xx, cheaply, and the next client does not notice."""

import socket
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
from fastapi.testclient import TestClient
from helpers import served

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


# Names


def status(address: str, host: str, path: str = "/documents/d07") -> int:
    request = urllib.request.Request(f"{address}{path}", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_page_of_another_site_cannot_read_from_the_loopback_service(server):
    """DNS rebinding: the browser connects to 127.0.0.1 and names the site that it believes to be there."""
    _, address = server()
    port = address.rsplit(":", 1)[1]
    for name in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
    ):
        for path in ("/documents/d07", "/", "/health", "/metrics"):
            assert status(address, name, path) == 421, name
    for name in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}", "[::1]:8000"):
        assert status(address, name) == 200, name


def test_other_names_are_allowed_by_an_option(server):
    _, address = server("--allowed-hosts", "shop.example", "search.shop.example")
    assert status(address, "shop.example:8000") == status(address, "Search.Shop.Example") == 200
    assert status(address, "127.0.0.1") == status(address, "evil.example") == 421


# Slow clients


@pytest.fixture(scope="module")
def impatient(served_folder):
    """The address of a server that waits for a second."""
    with served.servers(served_folder) as start:
        yield start("--timeout", 1, "--no-bm25")[1]


def connected(address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1])), timeout=30)


def closed_after(connection: socket.socket, most: float) -> None:
    """Wait until the server closes a connection; an AssertionError if it does not."""
    connection.settimeout(most)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        pytest.fail(f"still open after {most} s")


@pytest.mark.parametrize("sent", [b"", b"GET /health HTT", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
def test_a_client_that_never_completes_its_headers_is_disconnected(impatient, sent):
    with connected(impatient) as slow:
        slow.sendall(sent)
        closed_after(slow, most=30)


def test_headers_in_drops_do_not_extend_the_time(impatient):
    with connected(impatient) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        with pytest.raises(ConnectionError):  # the server has closed it
            for number in range(300):
                slow.sendall(b"X-%d: y\r\n" % number)
                time.sleep(0.1)


def test_a_second_request_on_a_connection_has_the_same_limit_and_an_idle_one_stays_open(impatient):
    request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connected(impatient) as client:
        for _ in range(2):
            client.sendall(request)
            answer = b""
            while not answer.endswith(b"}"):
                answer += client.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(1.5)  # longer than the limit: keeping a connection is no offence
        client.sendall(request[:20])
        closed_after(client, most=30)


def test_a_client_that_does_not_read_its_answers_is_disconnected(impatient):
    """Its answers would fill the memory: pipelined requests, no byte of an answer read."""
    request = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", int(impatient.rsplit(":", 1)[1])))
        lazy.settimeout(30)
        with pytest.raises(ConnectionError):
            for _ in range(100_000):
                lazy.sendall(request)
                time.sleep(0.0001)
    assert status(impatient, "127.0.0.1") == 200


# Filters


@pytest.mark.parametrize("character", ["x", "ä", "\N{CAT}"])
def test_a_filter_of_a_thousand_long_docnos_is_quick(client, character):
    """CPU time of the whole process beyond that of the same search without a filter, best of three."""
    length = BODY_BYTES // DOCNOS // 12
    docnos = [character * length + str(number) for number in range(DOCNOS)]
    took = {True: [], False: []}
    for filtered in (True, False) * 3:
        body = {"query": "baka beke", "filter": {"docnos": docnos} if filtered else None}
        began = time.process_time()
        assert client.post("/search", json=body).status_code == 200
        took[filtered].append(1000 * (time.process_time() - began))
    assert min(took[True]) - min(took[False]) < 20
