"""More than a service can do: many requests, slow clients, no file descriptors, a model replaced meanwhile.

`benchmarks/overload.py` does all of it at once for minutes.
"""

import asyncio
import json
import os
import resource
import shutil
import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
from helpers import served

from gr2.model.gr2 import GR2
from gr2.store import atomic_folder, write_text

QUERIES = [f"baka beke {word}" for word in ("biki", "boko", "buku", "dake", "deki", "diko")]
PATIENCE = 240  # seconds: a busy machine must not fail a test
linux = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


async def ask(port: int, path: str = "/search", **body: object) -> tuple[int, bytes, dict]:
    """Post a request on a connection of its own: status, headers, and the reply."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content)
    answer = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    headers, _, reply = answer.partition(b"\r\n\r\n")
    return int(headers[9:12]), headers.lower(), json.loads(reply)


async def flood(port: int, count: int, pace: float) -> list[tuple[str, int, bytes, dict]]:
    """Requests at a steady pace, answered or not."""

    async def one(number: int) -> tuple[str, int, bytes, dict]:
        await asyncio.sleep(number * pace)
        query = QUERIES[number % len(QUERIES)]
        return query, *await ask(port, query=query, k=3)

    return await asyncio.gather(*map(one, range(count)))


def ranking(reply: dict) -> list[str]:
    return [result["docno"] for result in reply["answers"][0]["results"]]


def rankings(model: GR2) -> dict[str, list[str]]:
    """What offline search answers."""
    return {query: [result.docno for result in model.search(query, 3)] for query in QUERIES}


def descriptors(process) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


@linux
def test_a_flood_is_answered_as_offline_or_turned_away_and_leaves_nothing(server, served_model):
    """All requests at once, with slow clients among them; the queue takes four."""
    process, address = server("--queue", 4, "--batch", 2, "--no-bm25")
    port, expected = port_of(address), rankings(served_model)
    before = descriptors(process)
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for client in slow:
        client.sendall(b"POST /search HTT")
    found = asyncio.run(flood(port, 300, pace=0))
    codes = [status for _, status, _, _ in found]
    assert set(codes) == {200, 503}
    for query, status, headers, reply in found:
        if status == 200:
            assert ranking(reply) == expected[query]
        else:
            assert b"retry-after: " in headers and reply.keys() == {"detail"}
    status, _, reply = asyncio.run(ask(port, query=QUERIES[0], k=3))
    assert status == 200 and ranking(reply) == expected[QUERIES[0]]
    for client in slow:
        client.close()
    settled(lambda: descriptors(process) <= before)


def settled(condition) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


@linux
def test_a_service_without_file_descriptors_serves_who_is_connected_and_then_everybody(server, served_model):
    """asyncio wrote two thousand tracebacks a second, answered nobody, and never stopped."""
    process, address = server("--no-bm25", "--timeout", 60)
    port, expected = port_of(address), rankings(served_model)
    known = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    assert answered(known) == 200
    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (descriptors(process) + 10, limits[1]))
    idle = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(60)]
    time.sleep(2.5)  # asyncio tries again every second
    assert [answered(known) for _ in range(3)] == [200, 200, 200]
    for client in idle:
        client.close()
    status, _, reply = asyncio.run(ask(port, query=QUERIES[1], k=3))
    assert status == 200 and ranking(reply) == expected[QUERIES[1]]
    known.close()
    process.terminate()
    said = process.communicate(timeout=PATIENCE)[1].splitlines()
    assert set(said) == {"no file descriptor is left: new clients wait until others leave"}
    assert len(said) < 10, "it is said once a minute"


def answered(connection: socket.socket) -> int:
    """The status of a request on a connection that stays open."""
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    reply = b""
    while not reply.endswith(b"}"):
        part = connection.recv(1 << 16)
        assert part, "the connection was closed"
        reply += part
    return int(reply[9:12])


def test_a_service_whose_folder_is_replaced_answers_as_before(served_folder, served_model, tmp_path):
    """By a model without anything in it; `tests/serve/test_judging.py` replaces the model that answers."""
    folder, expected = shutil.copytree(served_folder, tmp_path / "model"), rankings(served_model)
    with served.servers(folder) as start:
        port = port_of(start("--no-bm25")[1])
        before = asyncio.run(flood(port, 12, pace=0))
        with atomic_folder(folder) as temporary:
            write_text(temporary / "README.md", "nothing else")
        after = asyncio.run(flood(port, 12, pace=0))
    assert [path.name for path in folder.glob("*.md")] == ["README.md"]
    for (query, status, _, reply), (_, later_status, _, later) in zip(before, after, strict=True):
        assert status == later_status == 200
        assert ranking(reply) == ranking(later) == expected[query]
        assert all(result["title"] for result in later["answers"][0]["results"])
