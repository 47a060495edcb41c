"""The service: the same answers as offline search, invalid input, overload, and graceful shutdown."""

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from helpers import tiny
from helpers.served import ODD, documents

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
from fastapi.testclient import TestClient

from gr2.bm25 import BM25
from gr2.data.documents import NAME, DocumentStore
from gr2.experiments.geometry import score
from gr2.model.gr2 import GR2
from gr2.model.searcher import Searcher, SearchRequest
from gr2.serve import ServiceConfig, read_key
from gr2.serve.app import build_app
from gr2.serve.batching import AnswerTimeout, Batcher, QueueFull
from gr2.serve.config import BODY_BYTES, QUERIES, QUERY_CHARACTERS, RESULTS
from gr2.serve.docid_path import DocidPaths
from gr2.serve.service import Service
from gr2.store import write_json, write_manifest
from gr2.systems.config import GenerativeConfig
from gr2.systems.generative import train
from gr2.training.teacher_forcing import TeacherForcing


@pytest.fixture(scope="session")
def client(served_folder):
    with TestClient(build_app(Service(served_folder, ServiceConfig()))) as client:
        yield client


def copy_of(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def ask(client, query, **options) -> dict:
    reply = client.post("/search", json={"query": query, **options})
    assert reply.status_code == 200, reply.text
    return reply.json()


def ranking(answer: dict) -> list[str]:
    return [hit["docno"] for hit in answer["results"]]


def is_alive(client) -> None:
    assert ranking(ask(client, "baka beke", k=3)["answers"][0])


# The same answers


def test_answers_are_those_of_offline_search(client, served_model):
    queries = list(tiny.collection().queries.values())
    for answer, query in zip(ask(client, queries)["answers"], queries, strict=True):
        expected = served_model.search(query, 10)
        assert answer["query"] == query and ranking(answer) == [r.docno for r in expected]
        assert [h["docid"] for h in answer["results"]] == [r.docid for r in expected]
        assert [h["score"] for h in answer["results"]] == pytest.approx([r.score for r in expected], abs=1e-4)


@pytest.mark.parametrize("k", [1, 3, 20, 21, 50, RESULTS])
def test_any_k_is_answered_as_offline_up_to_the_whole_corpus(client, served_model, k):
    answer = ask(client, "baka beke", k=k)["answers"][0]
    assert ranking(answer) == [r.docno for r in served_model.search("baka beke", k)]
    assert len(answer["results"]) == min(k, 50)


def test_concurrent_clients_share_batches_and_get_their_own_answers(served_folder, served_model):
    service = Service(served_folder, ServiceConfig(batch=8, gather_ms=20))
    queries = list(tiny.collection().queries.values())
    expected = {query: [r.docno for r in served_model.search(query, 1 + len(query) % 5)] for query in queries}
    with TestClient(build_app(service)) as client, ThreadPoolExecutor(16) as pool:
        found = pool.map(lambda q: ranking(ask(client, q, k=1 + len(q) % 5)["answers"][0]), queries * 2)
        assert list(found) == [expected[query] for query in queries * 2]
        counts = re.findall(r'gr2_batch_queries_bucket\{le="(\S+)"\} (\S+)', client.get("/metrics").text)
    assert float(dict(counts)["+Inf"]) < 90, "hardly any batch had two queries"
    assert float(dict(counts)["8.0"]) == float(dict(counts)["+Inf"])


def test_results_show_titles_snippets_and_paths(client, served_model):
    answer = ask(client, "baka beke", k=50)["answers"][0]
    texts = {document.docno: document for document in documents()}
    marked = set()
    for hit in answer["results"]:
        document = texts[hit["docno"]]
        assert (hit["title"], hit["url"]) == (document.title, document.url)
        assert "".join(piece["text"] for piece in hit["snippet"]) == document.text
        marked |= {piece["text"] for piece in hit["snippet"] if piece["marked"]}
        assert "".join(step["text"] for step in hit["path"]).strip() == hit["docid"]
        node = 0
        tokens = served_model.tokens[served_model.docids.index[hit["docno"]]]
        for step, token in zip(hit["path"], tokens, strict=True):
            row, children, nodes = served_model.trie.children([node])
            assert step["choices"] == len(row)
            node = nodes[children.tolist().index(token)]
    assert marked == {"baka", "beke"}


def test_paths_of_code_docids_show_the_codes(served_folder):
    from dataclasses import replace

    model = GR2.from_pretrained(served_folder)
    texts = tuple(f"{i}-7-3" if len(model.tokens[i]) == 3 else f"{i} 2" for i in range(len(model.docids)))
    model.docids = replace(model.docids, texts=texts, about={**model.docids.about, "codes": 9})
    three = next(i for i in range(50) if len(model.tokens[i]) == 3)
    assert [step.text for step in DocidPaths(model).path(three)] == [f" {three}", " 7", " 3"]


def test_bm25_ranking_is_returned_on_request(client):
    query = "baka beke"
    assert ask(client, query)["answers"][0]["bm25"] is None
    beside = ask(client, query, bm25=True, k=5)["answers"][0]["bm25"]
    expected = BM25.index(sorted(documents())).search({"q": query}, 5).rankings["q"]
    assert [(hit["docno"], hit["score"]) for hit in beside] == list(expected)
    assert [hit["rank"] for hit in beside] == [1, 2, 3, 4, 5] and beside[0]["title"]


# Filters


def test_a_filter_does_not_change_scores(client, served_model):
    query, wanted = "baka beke", [f"d{i:02}" for i in range(0, 50, 3)]
    answer = ask(client, query, k=50, filter={"docnos": [*wanted, "nobody"]})["answers"][0]
    assert answer["allowed"] == len(wanted) and sorted(ranking(answer)) == wanted and answer["proven"]
    forced = TeacherForcing(served_model.tokens, served_model.trie, served_model.config.normaliser)
    _, likely = score(served_model, forced, query, ranking(answer))
    assert [hit["score"] for hit in answer["results"]] == pytest.approx(likely, abs=1e-4)
    assert likely == sorted(likely, reverse=True)
    last = [r.docno for r in served_model.search(query, 50)][-1]
    assert ranking(ask(client, query, k=1, filter={"docnos": [last]})["answers"][0]) == [last]


@pytest.mark.parametrize("normaliser", ["vocabulary", "trie"])
def test_a_filtered_ranking_is_the_full_ranking_without_the_other_documents(served_folder, normaliser):
    from dataclasses import replace

    model = GR2.from_pretrained(served_folder)
    model.config = replace(model.config, normaliser=normaliser)
    if normaliser == "vocabulary":
        model.network.prior = None
    searcher = Searcher(model)
    for query in list(tiny.collection().queries.values())[:8]:
        whole = searcher.answer([SearchRequest(query, 50)])[0]
        allowed = tuple(range(0, 50, 3))  # no more than beams, so all of them are found
        requests = [SearchRequest(query, 5, only) for only in (allowed, None, ())]
        part, other, none = searcher.answer(requests)
        assert list(part.docids) == [docid for docid in whole.docids if docid % 3 == 0][:5]
        offline = [model.docids.index[result.docno] for result in model.search(query, 5)]
        assert list(other.docids) == offline and none.docids == ()


def test_filters_by_field_and_filters_that_match_nothing(client):
    narrow = {"field": "url", "contains": "ORG/d1"}
    answer = ask(client, " ".join(tiny.WORDS), k=50, bm25=True, filter=narrow)["answers"][0]
    assert sorted(ranking(answer)) == [f"d{i}" for i in range(10, 20)] and answer["allowed"] == 10
    assert {hit["docno"] for hit in answer["bm25"]} == set(ranking(answer))
    for nothing in ({"docnos": ["nobody"]}, {"field": "title", "contains": "xyzzy"}):
        answer = ask(client, "baka", bm25=True, filter=nothing)["answers"][0]
        assert answer["results"] == answer["bm25"] == [] and answer["allowed"] == 0


# Invalid input

BAD = {
    "empty": ({"query": ""}, r"query\[0\]: is empty"),
    "blank": ({"query": " \n\t "}, "is empty"),
    "no query": ({}, "query: Field required"),
    "no queries": ({"query": []}, "at least 1 item"),
    "one of many empty": ({"query": ["a", ""]}, r"query\[1\]: is empty"),
    "long": ({"query": "a" * (QUERY_CHARACTERS + 1)}, r"2,001 characters, the maximum is 2,000"),
    "a megabyte": ({"query": "a" * 1_000_000}, r"1,000,000 characters"),
    "too many": ({"query": ["a"] * (QUERIES + 1)}, "at most 64 items"),
    "nul": ({"query": "a\x00b"}, r"invalid character, U\+0000 at position 1"),
    "escape": ({"query": "\x1b[31m"}, r"U\+001B"),
    "half a character": ({"query": "a\ud800"}, r"U\+D800 at position 1"),
    "number": ({"query": 7}, "query: "),
    "k = 0": ({"query": "a", "k": 0}, "k: .*greater than or equal to 1"),
    "k < 0": ({"query": "a", "k": -1}, "k: .*greater than or equal to 1"),
    "large k": ({"query": "a", "k": RESULTS + 1}, "k: .*less than or equal to 100"),
    "huge k": ({"query": "a", "k": 10**40}, "k: "),
    "half k": ({"query": "a", "k": 1.5}, "k: "),
    "text k": ({"query": "a", "k": "5"}, "k: expected an integer"),
    "true k": ({"query": "a", "k": True}, "k: expected an integer"),
    "unknown field": ({"query": "a", "K": 5}, "K: Extra inputs"),
    "list": (["a"], "the body: "),
    "empty filter": ({"query": "a", "filter": {}}, "filter"),
    "wrong filter": ({"query": "a", "filter": 3}, 'filter: expected {"docnos"'),
    "no docnos": ({"query": "a", "filter": {"docnos": []}}, "filter.docnos: .*at least 1"),
    "wrong field": ({"query": "a", "filter": {"field": "text", "contains": "a"}}, "filter.field: "),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_searches_are_rejected_with_one_sentence(client, name):
    content, expected = BAD[name]
    reply = client.post(
        "/search", content=json.dumps(content).encode(), headers={"content-type": "application/json"}
    )
    assert reply.status_code == 422, reply.text[:300]
    assert set(reply.json()) == {"detail"} and re.search(expected, reply.json()["detail"]), reply.text
    assert len(reply.text) < 500, "the input was echoed"
    is_alive(client)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"\xff\xfe",
        b"null",
        b'{"query": "a"',
        b"[" * 100_000,
        b'{"query": "a", "k": ' + b"9" * 5000 + b"}",
    ],
)
def test_invalid_json_is_rejected(client, body):
    reply = client.post("/search", content=body, headers={"content-type": "application/json"})
    assert reply.status_code in (400, 422) and isinstance(reply.json()["detail"], str)
    is_alive(client)


def test_a_body_with_the_wrong_content_type_is_rejected(client):
    reply = client.post("/search", content=b'{"query": "a"}', headers={"content-type": "text/plain"})
    assert reply.status_code == 422


def test_a_body_that_is_too_large_is_rejected_with_or_without_content_length(client):
    large = b'{"query": "' + b"a" * BODY_BYTES + b'"}'
    pieces = (large[i : i + 65536] for i in range(0, len(large), 65536))
    for content in (large, pieces):
        reply = client.post("/search", content=content, headers={"content-type": "application/json"})
        assert reply.status_code == 413 and "1,048,576 bytes" in reply.json()["detail"]
    is_alive(client)


def test_a_query_without_tokens_has_no_results_and_affects_no_other(served_folder):
    service = Service(served_folder, ServiceConfig())
    read = service.model.searcher.model.read
    service.model.searcher.model.read = lambda texts: [
        [] if text == "void" else read([text])[0] for text in texts
    ]
    with TestClient(build_app(service)) as client:
        void, real = ask(client, ["void", "baka"])["answers"]
    assert void["results"] == [] and len(real["results"]) == 10


def test_a_truncated_query_is_reported(client):
    assert ask(client, "baka " * 100)["answers"][0]["cut"] and not ask(client, "baka")["answers"][0]["cut"]


# Documents


@pytest.mark.parametrize("docno", ["d07", ODD])
def test_a_document_by_its_docno(client, docno):
    reply = client.get(f"/documents/{quote(docno, safe='')}")
    expected = next(document for document in documents() if document.docno == docno)
    assert reply.status_code == 200
    assert {key: reply.json()[key] for key in expected._fields} == expected._asdict()
    assert bool(reply.json()["docid"]) == bool(reply.json()["path"]) == (docno == "d07")


@pytest.mark.parametrize(
    "docno",
    [
        "nobody",
        "..%2F..%2Fetc%2Fpasswd",
        "../../etc/passwd",
        "%00",
        "d07%00",
        "%ff",
        "' OR 1=1 --",
        "%2e%2e",
        "a" * 5000,
    ],
)
def test_an_unknown_docno_is_not_found(client, docno):
    reply = client.get(f"/documents/{docno}")
    assert reply.status_code == 404 and "root:" not in reply.text and set(reply.json()) == {"detail"}


def test_without_documents_results_are_docids_and_scores(served_folder, served_model, tmp_path):
    bare = copy_of(served_folder, tmp_path / "bare")
    (bare / NAME).unlink()
    write_manifest(bare)
    with TestClient(build_app(Service(bare, ServiceConfig()))) as client:
        health = client.get("/health").json()
        assert (health["texts"], health["bm25"]) == (False, False) and NAME in health["bm25_note"]
        answer = ask(client, "baka beke", bm25=True)["answers"][0]
        assert (
            ranking(answer) == [r.docno for r in served_model.search("baka beke", 10)]
            and answer["bm25"] is None
        )
        assert all(hit["docid"] and hit["path"] and not hit["title"] for hit in answer["results"])
        reply = client.get("/documents/d07")
        assert reply.status_code == 404 and "contains no documents" in reply.json()["detail"]
        reply = client.post("/search", json={"query": "a", "filter": {"field": "title", "contains": "a"}})
        assert reply.status_code == 422 and "needs documents" in reply.json()["detail"]
        assert ranking(ask(client, "baka", filter={"docnos": ["d03"]})["answers"][0]) == ["d03"]


@pytest.mark.parametrize("config", [ServiceConfig(bm25=False), ServiceConfig(bm25_documents=10)])
def test_bm25_can_be_disabled(served_folder, config):
    with TestClient(build_app(Service(served_folder, config))) as client:
        health = client.get("/health").json()
        assert health["texts"] and not health["bm25"] and re.search("off|1 to 10", health["bm25_note"])
        assert ask(client, "baka", bm25=True)["answers"][0]["bm25"] is None


# Health, metrics, key, schema


def test_health_says_what_is_served(client):
    health = client.get("/health").json()
    assert health["status"] == "ok" and health["model"] == "model" and health["collection"] == "tiny"
    assert health["documents"] == 50 and health["texts"] and health["bm25"] and not health["bm25_note"]


def samples(text: str) -> dict[str, float]:
    """Parse Prometheus' text format; any other line fails."""
    found, typed = {}, set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        if not line.startswith("#"):
            match = re.fullmatch(r'([a-z0-9_]+)(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? ([0-9.e+-]+)', line)
            assert match, line
            assert match[1] in typed or re.sub("_(bucket|sum|count)$", "", match[1]) in typed
            found[line.rsplit(" ", 1)[0]] = float(match[4])
    return found


def test_metrics_count_what_happens(served_folder):
    with TestClient(build_app(Service(served_folder, ServiceConfig()))) as client:
        ask(client, ["baka", "beke"])
        client.post("/search", json={"query": ""})
        client.get("/documents/nobody"), client.get("/documents/somebody"), client.get("/nowhere/at/all")
        reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    found = samples(reply.text)
    assert found['gr2_requests_total{code="200",route="/search"}'] == 1
    assert found['gr2_requests_total{code="422",route="/search"}'] == 1
    assert found['gr2_requests_total{code="404",route="/documents/{docno}"}'] == 2
    assert found['gr2_requests_total{code="404",route="other"}'] == 1
    assert found["gr2_search_seconds_count"] == 1 and found["gr2_batch_queries_sum"] == 2
    assert found["gr2_queue_queries"] == 0
    buckets = [n for name, n in found.items() if name.startswith("gr2_search_seconds_bucket")]
    assert buckets == sorted(buckets) and buckets[-1] == 1


def test_routes_that_reveal_documents_need_the_api_key(served_folder, tmp_path):
    (tmp_path / "key").write_text("let-me-in\n")
    key = read_key(tmp_path / "key")
    with TestClient(build_app(Service(served_folder, ServiceConfig()), api_key=key)) as client:
        for path in ("/", "/health", "/openapi.json"):
            assert client.get(path).status_code == 200
        for headers in ({}, {"X-API-Key": "wrong"}, {"X-API-Key": ""}, {"Authorization": "Bearer let-me"}):
            assert client.post("/search", json={"query": "a"}, headers=headers).status_code == 401
            for path in ("/documents/d07", "/similar/d07", "/examples", "/metrics"):
                reply = client.get(path, headers=headers)
                assert reply.status_code == 401 and "X-API-Key" in reply.json()["detail"]
        for headers in ({"X-API-Key": "let-me-in"}, {"Authorization": "Bearer let-me-in"}):
            assert client.post("/search", json={"query": "a"}, headers=headers).status_code == 200
            assert client.get("/documents/d07", headers=headers).status_code == 200
        assert "APIKeyHeader" in client.get("/openapi.json").text
    (tmp_path / "key").write_text(" \n")
    with pytest.raises(ValueError, match="expected an API key"):
        read_key(tmp_path / "key")
    assert read_key(None) == ""


def test_every_example_of_the_schema_works(client):
    from gr2.serve.schema import SearchReply

    schema = client.get("/openapi.json").json()
    parts = schema["components"]["schemas"]
    examples = parts["SearchBody"]["examples"]
    lookups = {"/documents/{docno}", "/similar/{docno}", "/examples", "/health", "/metrics"}
    assert len(examples) == 5 and {"/search", *lookups} == set(schema["paths"])
    assert "BM25's ranking" in parts["SearchBody"]["properties"]["bm25"]["description"]
    for example in examples:
        assert client.post("/search", json=example).status_code == 200
    SearchReply.model_validate(parts["SearchReply"]["examples"][0])


def test_security_headers(client):
    for path in ("/", "/health", "/documents/d07"):
        assert client.get(path).headers["x-content-type-options"] == "nosniff"
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and policy.count("sha256-") == 2
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404


# Overload


def batcher(work, **options):
    settings = {"queue": 4, "batch": 2, "gather": 0.0, "timeout": 5.0} | options
    return Batcher(work, **settings)


def run_with(queue: Batcher, script):
    async def whole():
        await queue.start()
        try:
            return await script()
        finally:
            await queue.stop()

    return asyncio.run(whole())


def test_a_full_queue_rejects_new_questions_and_answers_the_others():
    gate = threading.Event()
    sizes = []

    def work(batch):
        gate.wait(10)
        sizes.append(len(batch))
        return [2 * x for x in batch]

    queue = batcher(work)

    async def script():
        first = asyncio.create_task(queue.ask([1]))
        await asyncio.sleep(0.05)  # the worker has taken it
        rest = [asyncio.create_task(queue.ask([x, x + 1])) for x in (10, 20)]
        await asyncio.sleep(0.05)
        assert queue.waiting == 4
        with pytest.raises(QueueFull) as full:
            await queue.ask([30])
        assert full.value.seconds >= 1
        gate.set()
        return await asyncio.gather(first, *rest)

    assert run_with(queue, script) == [[2], [20, 22], [40, 42]]
    assert sizes == [1, 2, 2]


def test_questions_that_would_wait_too_long_are_rejected_at_once():
    def work(batch):
        time.sleep(0.1 * len(batch))
        return batch

    queue = batcher(work, queue=100, timeout=0.5)

    async def script():
        await queue.ask([0])  # now the queue has measured the cost of a question
        asked = [asyncio.create_task(queue.ask([x])) for x in range(30)]
        done = await asyncio.gather(*asked, return_exceptions=True)
        return done

    done = run_with(queue, script)
    answered = [x for x in done if not isinstance(x, Exception)]
    assert 1 <= len(answered) <= 7 and sum(isinstance(x, QueueFull) for x in done) >= 20
    assert max(x.seconds for x in done if isinstance(x, QueueFull)) == 1


def test_questions_that_time_out_are_not_answered_later():
    gate, worked = threading.Event(), []

    def work(batch):
        gate.wait(10)
        worked.extend(batch)
        return batch

    queue = batcher(work, timeout=0.2)

    async def script():
        late = await asyncio.gather(*(queue.ask([x]) for x in (1, 2, 3)), return_exceptions=True)
        gate.set()
        return late, await queue.ask([4])

    late, answer = run_with(queue, script)
    assert [type(x) for x in late] == [AnswerTimeout] * 3 and answer == [4]
    assert worked in ([1, 2, 4], [1, 4]), "an abandoned question was answered"


def test_a_failing_question_affects_no_other_in_its_batch():
    def work(batch):
        if 13 in batch:
            raise KeyError("thirteen")
        return batch

    queue = batcher(work, queue=10, batch=10, gather=0.05)

    async def script():
        return await asyncio.gather(*(queue.ask([x]) for x in (12, 13, 14)), return_exceptions=True)

    one, two, three = run_with(queue, script)
    assert one == [12] and three == [14] and isinstance(two, KeyError)


def test_a_stopped_queue_answers_what_waits_and_rejects_the_rest():
    def work(batch):
        time.sleep(0.05)
        return batch

    queue = batcher(work, queue=10, batch=1)

    async def script():
        await queue.start()
        asked = [asyncio.create_task(queue.ask([x])) for x in range(5)]
        await asyncio.sleep(0.01)
        await queue.stop()
        with pytest.raises(QueueFull):
            await queue.ask([9])
        return await asyncio.gather(*asked)

    assert asyncio.run(script()) == [[x] for x in range(5)]


def test_an_overloaded_service_replies_503_with_retry_after(served_folder):
    service = Service(served_folder, ServiceConfig(queue=2, batch=1, timeout=1.5, gather_ms=0))
    gate, real = threading.Event(), service.batcher._work
    service.batcher._work = lambda asked: gate.wait(30) and real(asked)
    with TestClient(build_app(service)) as client, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda i: client.post("/search", json={"query": "baka"}), range(8)))
        assert [reply.status_code for reply in replies] == [503] * 8
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in replies)
        assert client.get("/health").status_code == 200, "an overloaded service must still report its health"
        gate.set()
        is_alive(client)
        found = samples(client.get("/metrics").text)
        late, full = (found[f'gr2_turned_away_total{{reason="{reason}"}}'] for reason in ("late", "full"))
        assert late + full == 8 and 1 <= late <= 3
        reply = client.post("/search", json={"query": ["a", "b", "c"]})
        assert reply.status_code == 422 and "at most 2 queries" in reply.json()["detail"]


def test_a_flood_of_filters_is_rejected_before_lookup(served_folder):
    service = Service(served_folder, ServiceConfig(queue=2, batch=1, timeout=30))
    gate, looked_up, real = threading.Event(), [], service.documents.matching

    def slow(field, text):
        looked_up.append(text)
        gate.wait(20)
        return real(field, text)

    service.documents.matching = slow
    content = {"query": "baka", "filter": {"field": "title", "contains": "a"}}
    with TestClient(build_app(service)) as client, ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(client.post, "/search", json=content) for _ in range(12)]
        while sum(one.done() for one in asked) < 8:
            time.sleep(0.01)
        gate.set()
        codes = [one.result().status_code for one in asked]
    assert codes.count(503) >= 8 and codes.count(200) >= 1 and len(looked_up) <= 4


def test_an_internal_error_is_a_500_without_details(served_folder, caplog):
    service = Service(served_folder, ServiceConfig())
    service.batcher._work = lambda asked: 1 / 0
    with TestClient(build_app(service), raise_server_exceptions=False) as client:
        reply = client.post("/search", json={"query": "baka"})
    assert reply.status_code == 500 and "see the log" in reply.json()["detail"]
    assert "ZeroDivisionError" in caplog.text and "Zero" not in reply.text


# From the command line


def flipped(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    "name", ["network.safetensors", NAME, "docids/docids.jsonl", "trie/token.npy", "config.json"]
)
def test_a_folder_with_one_bit_flipped_is_rejected(gr2, served_folder, tmp_path, name):
    broken = copy_of(served_folder, tmp_path / "model")
    flipped(broken / name, (broken / name).stat().st_size // 2)
    with pytest.raises(SystemExit, match=rf"{re.escape(name)}: changed since it was written"):
        gr2("serve", broken, "--port", 0)


def test_a_folder_of_another_format_is_rejected(gr2, served_folder, tmp_path):
    other = copy_of(served_folder, tmp_path / "model")
    content = json.loads((other / "config.json").read_text())
    write_json(other / "config.json", content | {"format": 99})
    write_manifest(other)
    with pytest.raises(SystemExit, match="has format 99, this version reads"):
        gr2("serve", other, "--port", 0)
    with pytest.raises(SystemExit, match=r"has no manifest\.json"):
        gr2("serve", tmp_path, "--port", 0)


def test_without_the_extra_the_error_says_what_to_install(gr2, served_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit, match=r"pip install 'gr2\[serve\]'"):
        gr2("serve", served_folder)


def test_invalid_settings_are_rejected(gr2, served_folder, tmp_path):
    for option, value in (("--queue", 0), ("--batch", 0), ("--timeout", 0), ("--port", 70000)):
        with pytest.raises(SystemExit, match=r"expected|cannot listen"):
            gr2("serve", served_folder, option, value)
    with pytest.raises(SystemExit, match="expected a device"):
        gr2("serve", served_folder, "--port", 0, "--device", "abacus")
    with pytest.raises(SystemExit):  # a key on the command line would show up in the list of processes
        gr2("serve", served_folder, "--api-key", "secret")
    with pytest.raises(SystemExit, match="No such file"):
        gr2("serve", served_folder, "--api-key-file", tmp_path / "nothing")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
            gr2("serve", served_folder, "--port", port)


def test_the_service_listens_on_loopback_by_default(gr2, served_folder, monkeypatch, tmp_path):
    import uvicorn

    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    said = gr2("serve", served_folder, "--port", 0, "--no-bm25")
    assert "50 documents at http://127.0.0.1:" in said and "no BM25: it is switched off" in said
    assert "anyone can search" not in said
    open_to_all = ("serve", served_folder, "--port", 0, "--host", "0.0.0.0")
    assert "anyone can search" in gr2(*open_to_all)
    (tmp_path / "key").write_text("secret")
    assert "anyone can search" not in gr2(*open_to_all, "--api-key-file", tmp_path / "key")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_printed_example_works_in_a_shell(server, tmp_path):
    (tmp_path / "the key").write_text("secret\n")
    process, _ = server("--api-key-file", tmp_path / "the key")
    line = process.stdout.readline()
    assert line.startswith("example: curl ") and "secret" not in line
    reply = subprocess.run(line.removeprefix("example: "), shell=True, capture_output=True, timeout=60)
    (answer,) = json.loads(reply.stdout)["answers"]
    assert len(answer["results"]) == 3


def post(address: str, content: dict) -> tuple[int, dict]:
    request = urllib.request.Request(
        f"{address}/search", json.dumps(content).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_sigterm_still_answers_accepted_requests(server, served_model):
    process, address = server("--batch", 1, "--timeout", 100)
    queries = list(tiny.collection().queries.values())[:40]
    with ThreadPoolExecutor(40) as pool:
        asked = [pool.submit(post, address, {"query": [query] * 4, "k": 5}) for query in queries]
        while not any(one.done() for one in asked):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        outcomes = []
        for one, query in zip(asked, queries, strict=True):
            try:
                outcomes.append((one.result(), query))
            except (ConnectionError, urllib.error.URLError):
                pass  # the server had not accepted it yet
    assert process.wait(60) in (0, -signal.SIGTERM)
    assert len(outcomes) > 10
    for (status, content), query in outcomes:
        assert status in (200, 503)
        if status == 200:
            expected = [r.docno for r in served_model.search(query, 5)]
            assert [ranking(answer) for answer in content["answers"]] == [expected] * 4
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}/health", timeout=5)


def test_an_incomplete_request_times_out(server):
    _, address = server("--timeout", 1)
    port = int(address.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
        head = (
            "POST /search HTTP/1.1",
            "Host: 127.0.0.1",
            "Content-Type: application/json",
            "Content-Length: 99",
        )
        slow.sendall("\r\n".join([*head, "", "{"]).encode())
        assert slow.recv(4096).startswith(b"HTTP/1.1 408")
    assert post(address, {"query": "baka"})[0] == 200


METHODS = [("/search", "POST"), ("/documents/{docno}", "GET"), ("/similar/{docno}", "GET")]
METHODS += [("/examples", "GET"), ("/health", "GET"), ("/metrics", "GET")]


@pytest.mark.parametrize("key", ["", "secret"])
def test_generated_requests_follow_the_schema_and_never_get_a_500(server, tmp_path, key):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings

    (tmp_path / "key").write_text(key)
    _, address = server(*(("--api-key-file", tmp_path / "key") if key else ()))
    schema, seen = schemathesis.openapi.from_url(f"{address}/openapi.json"), set()
    for path, method in METHODS:
        wrong = (
            [schemathesis.GenerationMode.NEGATIVE] if path == "/search" else []
        )  # the other routes accept any input
        for mode in [schemathesis.GenerationMode.POSITIVE, *wrong]:

            @given(case=schema[path][method].as_strategy(generation_mode=mode))
            @settings(
                max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
            )
            def run(case):
                reply = case.call_and_validate(headers={"X-API-Key": key} if key else None)
                seen.add((case.method, reply.status_code))

            run()
    assert {("POST", 200), ("POST", 422), ("GET", 200), ("GET", 404)} <= seen
    assert all(status < 500 or status == 503 for _, status in seen)


def test_the_document_store_is_intact_afterwards(served_folder):
    assert len(DocumentStore(served_folder / NAME)) == 51


def test_a_model_with_look_ahead_says_which_view_found_a_document(tmp_path):
    backbone = tiny.save_checkpoint(tmp_path / "backbone", "encoder")
    data = tiny.graded()
    model = train(data, tmp_path / "model", GenerativeConfig(backbone=str(backbone)))
    query = data.queries["q003"]
    with TestClient(build_app(Service(tmp_path / "model", ServiceConfig()))) as client:
        answer = client.post("/search", json={"query": query, "k": 4}).json()["answers"][0]
        only = client.post("/search", json={"query": query, "filter": {"docnos": ["001", "007"]}}).json()
    expected = model.search(query, 4)
    assert [hit["docno"] for hit in answer["results"]] == [result.docno for result in expected]
    assert answer["proven"]
    for hit, result in zip(answer["results"], expected, strict=True):
        assert hit["score"] == pytest.approx(result.score, abs=1e-4)
        assert hit["views"] == pytest.approx(dict(result.views), abs=1e-3)
        assert {"words", "vectors"} <= set(hit["views"])
    found = {hit["docno"]: hit["score"] for hit in only["answers"][0]["results"]}
    assert set(found) == {"001", "007"}
    everything = {result.docno: result.score for result in model.search(query, 30)}
    assert found == pytest.approx({docno: everything[docno] for docno in found}, abs=1e-3)
