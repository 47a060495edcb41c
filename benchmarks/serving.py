"""The service under twice the load that it can handle: wrong answers, status codes, latency and memory.

    python benchmarks/serving.py MODEL [--clients 200] [--seconds 60] [--topics FILE]

`gr2 serve` runs as a separate process on loopback. First, its capacity: clients send the next request as soon
as they have an answer. Then, overload: each client sends requests at a steady pace, answered or not, and all
of them together twice the capacity. Every answer is compared with offline search for the same query, and the
server's memory is read every half second. Clients and server share the machine's cores.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from machine import facts

from gr2.data.documents import NAME, DocumentStore
from gr2.data.formats.folder import read_query_file
from gr2.model.gr2 import GR2
from gr2.store import write_json

K = 10
CLOSE = 1e-4  # documents with scores this close may swap places: padding changes scores by about 1e-6
Ranking = list[tuple[str, float]]
Expected = dict[str, list[Ranking]]
"""Query → the rankings that are right: one for each model that may answer."""


@dataclass
class Tally:
    """The responses of a phase."""

    codes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """Of answered requests."""
    wrong: int = 0
    swapped: int = 0
    """Answers in another order, with scores that differ by less than `CLOSE`."""

    def note(self, code: str, seconds: float, content: bytes, query: str, expected: Expected) -> None:
        """Count a response."""
        self.codes[code] += 1
        if code != "200":
            return
        self.seconds.append(seconds)
        found = [(hit["docno"], hit["score"]) for hit in json.loads(content)["answers"][0]["results"]]
        docnos = [docno for docno, _ in found]
        if any(docnos == [docno for docno, _ in ranking] for ranking in expected[query]):
            return
        near = any(_is_near(found, ranking) for ranking in expected[query])
        self.swapped += near
        self.wrong += not near

    def summary(self, seconds: float) -> dict[str, Any]:
        """The figures of a phase of some seconds."""
        p50, p99 = np.percentile(self.seconds, [50, 99]).tolist() if self.seconds else (0.0, 0.0)
        return {
            "asked": sum(self.codes.values()),
            "answered_per_second": self.codes["200"] / seconds,
            "codes": dict(sorted(self.codes.items())),
            "wrong": self.wrong,
            "swapped": self.swapped,
            "p50_ms": 1000 * p50,
            "p99_ms": 1000 * p99,
            "longest_ms": 1000 * max(self.seconds, default=0.0),
        }


def _is_near(one: Ranking, two: Ranking) -> bool:
    """Whether two rankings have the same scores, but for what padding changes."""
    return len(one) == len(two) and all(abs(a - b) < CLOSE for (_, a), (_, b) in zip(one, two, strict=True))


class Client:
    """A minimal HTTP client that reuses its connections."""

    def __init__(self, port: int, tally: Tally, expected: Expected) -> None:
        """Send requests to this port."""
        self.port, self.tally, self.expected = port, tally, expected
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, query: str) -> None:
        """Send a query and count the response."""
        body = json.dumps({"query": query, "k": K}).encode()
        head = "POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        began = time.perf_counter()
        try:
            while self._idle and self._idle[-1][0].at_eof():  # closed by the server
                self._idle.pop()[1].close()
            pair = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self.port)
            pair[1].write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await pair[0].readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", answer.lower())
            content = await pair[0].readexactly(int(length[1]) if length else 0)
        except (OSError, asyncio.IncompleteReadError) as error:
            self.tally.codes[type(error).__name__] += 1
            return
        self._idle.append(pair)
        self.tally.note(answer[9:12].decode(), time.perf_counter() - began, content, query, self.expected)

    def close(self) -> None:
        """Close all connections."""
        for _, writer in self._idle:
            writer.close()


async def saturate(clients: list[Client], queries: list[str], seconds: float) -> None:
    """Every client sends the next request as soon as it has an answer."""
    end = time.perf_counter() + seconds

    async def go(number: int, client: Client) -> None:
        while time.perf_counter() < end:
            await client.ask(queries[number % len(queries)])
            number += len(clients)

    await asyncio.gather(*(go(number, client) for number, client in enumerate(clients)))


async def overload(clients: list[Client], queries: list[str], seconds: float, rate: float) -> None:
    """Clients send requests at a steady pace, answered or not: `rate` per second in total."""
    start, each = time.perf_counter(), len(clients) / rate

    async def go(number: int, client: Client) -> None:
        asked, due = set[asyncio.Task[None]](), start + each * number / len(clients)
        while due < start + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            asked.add(task := asyncio.create_task(client.ask(queries[number % len(queries)])))
            task.add_done_callback(asked.discard)
            number, due = number + len(clients), due + each
        await asyncio.gather(*asked)

    await asyncio.gather(*(go(number, client) for number, client in enumerate(clients)))


def resident_mb(process: int) -> float:
    """The resident memory of a process in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def watch(process: int, found: list[float]) -> None:
    """Read the resident memory of a process every half second, in MB."""
    while True:
        found.append(resident_mb(process))
        await asyncio.sleep(0.5)


@contextmanager
def served(folder: Path, queue: int, *options: str) -> Iterator[tuple[int, int]]:
    """`gr2 serve` as a process: its id and port."""
    command = [sys.executable, "-m", "gr2", "serve", str(folder), "--port", "0", "--queue", str(queue)]
    command += options
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        port = re.search(r":(\d+)/$", line.strip())
        if port is None:
            sys.exit(f"the server did not start: {line}")
        yield process.pid, int(port[1])
    finally:
        process.terminate()
        process.wait()


async def measure(port: int, process: int, expected: Expected, options: argparse.Namespace) -> dict[str, Any]:
    """Measure capacity, then overload."""
    queries, results = list(expected), {}
    rate = 0.0
    for phase, seconds in (("capacity", options.capacity_seconds), ("overload", options.seconds)):
        tally, memory = Tally(), list[float]()
        count = options.clients if phase == "overload" else 32
        clients = [Client(port, tally, expected) for _ in range(count)]
        watching, began = asyncio.create_task(watch(process, memory)), time.perf_counter()
        if phase == "capacity":
            await saturate(clients, queries, seconds)
        else:
            await overload(clients, queries, seconds, 2 * rate)
        figures = tally.summary(time.perf_counter() - began) | {"offered_per_second": 2 * rate or None}
        watching.cancel()
        for client in clients:
            client.close()
        rate = figures["answered_per_second"]
        middle = len(memory) // 2
        figures["memory_mb"] = {"first": memory[0], "middle": memory[middle], "last": memory[-1]}
        results[phase] = figures | {"clients": count}
    return results


def queries_of(folder: Path, topics: Path | None, most: int) -> list[str]:
    """Different queries: from a file, or titles of documents."""
    if topics is not None:
        queries = list(read_query_file(topics).values())[:most]
    else:
        queries = [document.title for document in islice(DocumentStore(folder / NAME), most)]
    return list(dict.fromkeys(query for query in queries if query.strip()))


def offline(model: GR2, queries: Sequence[str]) -> Expected:
    """Queries and their offline results, one at a time."""
    return {query: [[(r.docno, r.score) for r in model.search(query, K)]] for query in queries}


def main() -> None:
    """Measure, print, save; exit code 1 if an answer was wrong or a status was neither 200 nor 503."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="model folder")
    parser.add_argument("--topics", type=Path, help="a file of queries (default: titles of the documents)")
    parser.add_argument("--queries", type=int, default=200, help="number of different queries (default: 200)")
    parser.add_argument("--queue", type=int, default=256, help="queue of the server (default: 256)")
    parser.add_argument("--clients", type=int, default=200, help="clients of the overload (default: 200)")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of the overload (default: 60)")
    parser.add_argument(
        "--capacity-seconds", type=float, default=15.0, help="seconds of the first phase (default: 15)"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "serving.json")
    options = parser.parse_args()
    queries = queries_of(options.model, options.topics, options.queries)
    expected = offline(GR2.from_pretrained(options.model), queries)
    with served(options.model, options.queue) as (process, port):
        results = asyncio.run(measure(port, process, expected, options))
    for phase, row in results.items():
        print(f"{phase}: {json.dumps(row)}")
    about = {"model": options.model.name, "queries": len(expected), "k": K, "queue": options.queue}
    versions = facts("gr2", "torch", "fastapi", "uvicorn")
    write_json(options.out, {"about": about | versions, **results})
    failed = {code for row in results.values() for code in row["codes"]} - {"200", "503"}
    if failed or any(row["wrong"] for row in results.values()):
        sys.exit(f"failed: {sorted(failed) or 'wrong answers'}")


if __name__ == "__main__":
    main()
