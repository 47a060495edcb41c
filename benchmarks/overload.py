"""The service at four times the load that it can handle, for minutes, with everything else that goes wrong.

    taskset -c 0 python benchmarks/overload.py MODEL [--minutes 10] [--topics FILE]

`gr2 serve` runs as a separate process on loopback, on a copy of the model. Its capacity is measured first
(each client asks again at once). Then requests come at four times that pace, answered or not, while

- slow clients send one byte of a request every half second, and connect again when they are disconnected;
- the model is replaced every minute, by going back to the version before;
- the server's memory and file descriptors are read every second.

Then its limit of file descriptors is lowered, and idle connections use up all of them; once they leave, it
must answer again. Every answer must be that of offline search by one of the two models. Clients and server
share the cores that this process may use.
"""

import argparse
import asyncio
import json
import os
import resource
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from machine import facts
from serving import Client, Expected, Tally, offline, overload, queries_of, resident_mb, saturate, served

from gr2.model.gr2 import GR2
from gr2.store import write_json
from gr2.workflows.versions import published

TIMES = 4
"""Offered load, in capacities."""
SPARE = 20
"""File descriptors that the server has left when its limit is lowered."""


@dataclass
class Watched:
    """What was read of the server while it ran."""

    memory: list[float] = field(default_factory=list)
    """Resident MB."""
    descriptors: list[int] = field(default_factory=list)
    reloads: int = 0
    cut_off: int = 0
    """Slow clients that were disconnected."""

    def summary(self) -> dict[str, Any]:
        """The figures; memory as medians of the first, middle and last tenth."""
        tenth = max(1, len(self.memory) // 10)
        middle = len(self.memory) // 2
        parts = {"first": self.memory[:tenth], "middle": self.memory[middle : middle + tenth]}
        parts["last"] = self.memory[-tenth:]
        return {
            "memory_mb": {name: float(np.median(part)) for name, part in parts.items()}
            | {"highest": max(self.memory)},
            "descriptors": {
                "first": self.descriptors[0],
                "last": self.descriptors[-1],
                "highest": max(self.descriptors),
            },
            "models_replaced": self.reloads,
            "slow_clients_disconnected": self.cut_off,
        }


def descriptors(process: int) -> int:
    """The open file descriptors of a process."""
    return len(os.listdir(f"/proc/{process}/fd"))


async def watch(process: int, found: Watched) -> None:
    """Read memory and file descriptors every second."""
    while True:
        found.memory.append(resident_mb(process))
        found.descriptors.append(descriptors(process))
        await asyncio.sleep(1)


async def dawdle(port: int, found: Watched) -> None:
    """A slow client: one byte every half second, and again when the server has had enough."""
    request = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n" + b" " * 1000
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for place in range(len(request)):
                writer.write(request[place : place + 1])
                await writer.drain()
                await asyncio.sleep(0.5)
                if reader.at_eof():
                    break
            writer.close()
        found.cut_off += 1
        await asyncio.sleep(0.5)


async def replace_model(port: int, found: Watched, every: float) -> None:
    """Go back to the version before, again and again: two models take turns."""
    while True:
        await asyncio.sleep(every)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST /rollback HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(head + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")
        answer = await reader.read()
        writer.close()
        if not answer.startswith(b"HTTP/1.1 200"):
            sys.exit(f"the model was not replaced: {answer[:300]!r}")
        found.reloads += 1


async def use_up_descriptors(
    port: int, process: int, expected: Expected, seconds: float = 10.0
) -> dict[str, Any]:
    """Lower the server's limit, connect more clients than fit, then leave."""
    before, query = descriptors(process), next(iter(expected))
    limits = resource.prlimit(process, resource.RLIMIT_NOFILE)
    tally = Tally()
    known = Client(port, tally, expected)
    await known.ask(query)  # its connection stays open
    resource.prlimit(process, resource.RLIMIT_NOFILE, (before + SPARE, limits[1]))
    idle = []
    for _ in range(5 * SPARE):
        idle.append(socket.create_connection(("127.0.0.1", port), timeout=10))
        idle[-1].sendall(b"GET /hea")
    await asyncio.sleep(1)
    highest, end = descriptors(process), time.perf_counter() + seconds
    while time.perf_counter() < end:
        await known.ask(query)
        await asyncio.sleep(0.2)
    known.close()
    for connection in idle:
        connection.close()
    left, again = time.perf_counter(), Tally()
    while not again.codes["200"] and time.perf_counter() < left + 60:
        newcomer = Client(port, again, expected)
        with suppress(TimeoutError):
            await asyncio.wait_for(newcomer.ask(query), 10)
        newcomer.close()
    took = time.perf_counter() - left
    resource.prlimit(process, resource.RLIMIT_NOFILE, limits)
    await asyncio.sleep(1)
    return {
        "limit": before + SPARE,
        "highest": highest,
        "connections_tried": len(idle),
        "connected_client": dict(tally.codes),
        "answered_a_newcomer": again.codes["200"] > 0,
        "seconds_until_then": took,
        "afterwards": descriptors(process),
        "wrong": tally.wrong + again.wrong,
    }


async def measure(port: int, process: int, expected: Expected, options: argparse.Namespace) -> dict[str, Any]:
    """Capacity, the overload minute by minute, the descriptors, and capacity once more."""
    queries, results, found = list(expected), dict[str, Any](), Watched()

    async def capacity(seconds: float) -> dict[str, Any]:
        tally = Tally()
        clients = [Client(port, tally, expected) for _ in range(32)]
        began = time.perf_counter()
        await saturate(clients, queries, seconds)
        for client in clients:
            client.close()
        return tally.summary(time.perf_counter() - began)

    results["capacity"] = await capacity(options.capacity_seconds)
    rate = TIMES * results["capacity"]["answered_per_second"]
    others = [asyncio.create_task(watch(process, found))]
    others += [asyncio.create_task(dawdle(port, found)) for _ in range(options.slow)]
    others.append(asyncio.create_task(replace_model(port, found, options.replace_seconds)))
    tally, minutes = Tally(), []
    clients = [Client(port, tally, expected) for _ in range(options.clients)]

    async def note_minutes() -> None:
        answered = 0
        while True:
            await asyncio.sleep(60)
            minutes.append(
                {
                    "answered": tally.codes["200"] - answered,
                    "memory_mb": found.memory[-1],
                    "descriptors": found.descriptors[-1],
                }
            )
            answered = tally.codes["200"]
            print(json.dumps(minutes[-1]), flush=True)

    others.append(asyncio.create_task(note_minutes()))
    began = time.perf_counter()
    await overload(clients, queries, 60 * options.minutes, rate)
    results["overload"] = tally.summary(time.perf_counter() - began) | found.summary()
    results["overload"] |= {"offered_per_second": rate, "clients": options.clients, "slow": options.slow}
    results["minutes"] = minutes
    for failed in [task for task in others if task.done()]:
        failed.result()
    for task in others:
        task.cancel()
    for client in clients:
        client.close()
    await asyncio.sleep(2)
    results["descriptors"] = await use_up_descriptors(port, process, expected)
    results["afterwards"] = await capacity(options.capacity_seconds)
    return results


def prepare(options: argparse.Namespace, folder: Path) -> Expected:
    """Publish the model without what it learned over a copy of it; the answers of both."""
    copytree(options.model, folder)
    queries = queries_of(folder, options.topics, options.queries)
    model = GR2.from_pretrained(folder)
    if model.look_ahead is None:
        sys.exit(f"{options.model}: expected a model with look-ahead")
    whole = offline(model, queries)
    plain = model.with_look_ahead(model.look_ahead.without_learned())
    with published(folder) as temporary:
        plain.save_learned(temporary)
    other = offline(plain, queries)
    return {query: whole[query] + other[query] for query in queries}


def main() -> None:
    """Measure, print, save; exit code 1 if an answer was wrong, or none came after the descriptors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="model folder with look-ahead")
    parser.add_argument("--topics", type=Path, help="a file of queries (default: titles of the documents)")
    parser.add_argument("--queries", type=int, default=200, help="number of different queries (default: 200)")
    parser.add_argument("--queue", type=int, default=256, help="queue of the server (default: 256)")
    parser.add_argument("--clients", type=int, default=200, help="clients of the overload (default: 200)")
    parser.add_argument("--slow", type=int, default=50, help="slow clients (default: 50)")
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of the overload (default: 10)")
    parser.add_argument(
        "--replace-seconds", type=float, default=60.0, help="seconds from model to model (default: 60)"
    )
    parser.add_argument(
        "--capacity-seconds", type=float, default=15.0, help="seconds of measuring capacity (default: 15)"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "overload.json")
    options = parser.parse_args()
    with TemporaryDirectory() as place:
        folder = Path(place) / options.model.name
        expected = prepare(options, folder)
        with served(folder, options.queue, "--judge", f"{place}/judged") as (process, port):
            results = asyncio.run(measure(port, process, expected, options))
    for phase, row in results.items():
        print(f"{phase}: {json.dumps(row)}")
    about = {"model": options.model.name, "queries": len(expected), "queue": options.queue}
    about["cores_used"] = len(os.sched_getaffinity(0))
    write_json(options.out, {"about": about | facts("gr2", "torch", "fastapi", "uvicorn"), **results})
    phases = [row for row in results.values() if isinstance(row, dict)]
    codes = {code for row in phases for code in row.get("codes", ())} - {"200", "503"}
    if codes or any(row.get("wrong") for row in phases) or not results["descriptors"]["answered_a_newcomer"]:
        sys.exit(f"failed: {sorted(codes) or 'wrong answers, or none after the descriptors'}")


if __name__ == "__main__":
    main()
