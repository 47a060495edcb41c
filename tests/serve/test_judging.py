"""Judging and learning over HTTP: what is acknowledged is kept; no request fails while the model changes."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import judged, served

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
from fastapi.testclient import TestClient

from gr2.judge.judgements import Judgement
from gr2.judge.next_queries import disagreement
from gr2.judge.pool import pool
from gr2.judge.store import LOG, JudgeConfig, JudgementStore
from gr2.model.gr2 import GR2
from gr2.serve import JudgingConfig, ServiceConfig
from gr2.serve.app import build_app
from gr2.serve.judging import Judging
from gr2.serve.learning import Learning
from gr2.serve.service import Service
from gr2.store import verify, write_json, write_manifest
from gr2.workflows.versions import rollback, versions

QUERY = "baka beke"
PATIENCE = 240  # seconds: a busy machine must not fail a test


def app_of(folder, judgements, **options):
    service = Service(folder, ServiceConfig())
    return build_app(service, judging=Judging(service, JudgingConfig(judge=judgements, **options)))


@pytest.fixture
def queries(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("duku\t2\nbaka beke\t5\n")
    return path


@pytest.fixture
def client(untaught, tmp_path, queries):
    """A service that is judged, in grades up to 3."""
    words = ("no", "related", "good", "perfect")
    with TestClient(app_of(untaught, tmp_path / "judged", queries=queries, words=words)) as client:
        yield client


def given(docno="d01", grade=2, judge="ann", query=QUERY, **more):
    return {"query": query, "docno": docno, "grade": grade, "judge": judge, **more}


def kept(tmp_path):
    found = JudgementStore(tmp_path / "judged").current().values()
    return {(each.query, each.docno, each.judge): each.grade for each in found}


# Judgements


def test_a_judgement_is_on_disk_when_it_is_acknowledged(client, tmp_path):
    reply = client.post("/judgements", json=[given(), given("d02", 0), given("d01", 3, "bob", qid="")])
    assert reply.status_code == 201
    rows = reply.json()["judgements"]
    assert [(row["docno"], row["grade"], row["judge"]) for row in rows] == [
        ("d01", 2, "ann"),
        ("d02", 0, "ann"),
        ("d01", 3, "bob"),
    ]
    assert len({row["qid"] for row in rows}) == 1 and all(row["time"].endswith("Z") for row in rows)
    assert kept(tmp_path) == {(QUERY, "d01", "ann"): 2, (QUERY, "d02", "ann"): 0, (QUERY, "d01", "bob"): 3}


BAD = {
    "unknown document": ([given(), given("nobody")], r"[1]: the document 'nobody' is not in the collection"),
    "one unknown document": ([given("nobody")], "the document 'nobody' is not"),
    "grade too high": ([given(grade=4)], "expected a grade from 0 to 3, found 4"),
    "negative grade": ([given(grade=-1)], "[0].grade: "),
    "huge grade": ([given(grade=10**40)], "[0].grade: "),
    "half a grade": ([given(grade=1.5)], "[0].grade: "),
    "text grade": ([given(grade="2")], "[0].grade: "),
    "true grade": ([given(grade=True)], "[0].grade: "),
    "no grade": ([{key: value for key, value in given().items() if key != "grade"}], "grade: Field required"),
    "empty query": ([given(query=" ")], "[0].query: is empty"),
    "no judge": ([given(judge="")], "[0].judge: "),
    "blank judge": ([given(judge="  ")], "expected the name of a judge"),
    "docno with a space": ([given("d 01")], "expected a docno without white space"),
    "unknown field": ([given(time="2026-01-01")], "[0].time: "),
    "no list": (given(), "the body: "),
    "nothing": ([], "the body: "),
    "too many": ([given()] * 101, "the body: "),
    "too many, all of them wrong": ([1] * 101, "the body: expected at most 100 items, found 101"),
    "several wrong ones": ([1, 2], "[0]: "),
    "too many fields": (
        [given(**{f"more{number}": 1 for number in range(20)})],
        "[0]: expected at most 20 fields, found 24",
    ),
    "too many values": ([[1] * 4_000], "the body: expected at most 2,000 values"),
    "qid of another query": (
        [given(qid="7"), given(query="duku", qid="7")],
        "[1]: the qid '7' belongs to the query 'baka beke'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_judgements_are_refused_with_a_sentence_and_nothing_is_written(client, tmp_path, name):
    client.post("/judgements", json=[given("d05")])
    before = (tmp_path / "judged" / LOG).read_bytes()
    body, expected = BAD[name]
    reply = client.post("/judgements", json=body)
    assert reply.status_code == 422 and expected in reply.json()["detail"], reply.text
    assert set(reply.json()) == {"detail"} and len(reply.text) < 500
    assert (tmp_path / "judged" / LOG).read_bytes() == before


def test_a_disk_that_is_full_is_no_acknowledgement(untaught, tmp_path, monkeypatch):
    with TestClient(app_of(untaught, tmp_path / "judged"), raise_server_exceptions=False) as client:
        client.post("/judgements", json=[given("d05")])

        def full(*_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            assert client.post("/judgements", json=[given()]).status_code == 500
        assert kept(tmp_path) == {(QUERY, "d05", "ann"): 2}
        assert client.post("/judgements", json=[given()]).status_code == 201


def test_judgements_are_listed_by_page_and_filter_and_those_of_other_processes_too(client, tmp_path):
    client.post("/judgements", json=[given(f"d{i:02}", i % 4) for i in range(5)])
    client.post("/judgements", json=[given("d03", 1, "bob", "duku")])
    JudgementStore(tmp_path / "judged").append([Judgement("duku", "d09", 2, "cy", source="clicks")])
    everything = client.get("/judgements").json()
    assert everything["total"] == 7 and everything["judges"] == {"ann": 5, "bob": 1, "cy": 1}

    def docnos(**filters):
        return [row["docno"] for row in client.get("/judgements", params=filters).json()["judgements"]]

    assert docnos(judge="ann", offset=1, limit=2) == ["d01", "d02"]
    assert docnos(query="duku") == ["d03", "d09"] and docnos(source="clicks") == ["d09"]
    assert docnos(query="duku", judge="ann") == []
    for wrong in ({"limit": 1001}, {"offset": -1}, {"source": "guess"}):
        assert client.get("/judgements", params=wrong).status_code == 422


def test_undo_takes_back_the_latest_grade_of_one_judge(client, tmp_path):
    for grade, judge in ((1, "ann"), (3, "ann"), (0, "bob")):
        client.post("/judgements", json=[given(grade=grade, judge=judge)])
    reply = client.post("/judgements/undo", json={"judge": "ann"}).json()
    assert reply["undone"]["grade"] == 3 and reply["grade"] == 1
    reply = client.post("/judgements/undo", json={"judge": "ann"}).json()
    assert reply["undone"]["grade"] == 1 and reply["grade"] is None
    reply = client.post("/judgements/undo", json={"judge": "ann"})
    assert reply.status_code == 409 and "'ann' has no judgement to undo" in reply.json()["detail"]
    assert kept(tmp_path) == {(QUERY, "d01", "bob"): 0}


# What there is to judge


def test_queries_come_in_the_order_of_the_log_with_the_progress_of_each_judge(client):
    client.post("/judgements", json=[given("d01"), given("d02"), given("d02", judge="bob")])
    client.post("/judgements", json=[given("d02", query="typed  by ann")])
    found = client.get("/judging/queries", params={"judge": "ann"}).json()
    rows = [(row["query"], row["count"], row["judged"], row["judged_by_all"]) for row in found.pop("queries")]
    assert rows == [(QUERY, 5, 2, 2), ("duku", 2, 0, 0), ("typed by ann", 1, 1, 1)]
    words = ["no", "related", "good", "perfect"]
    assert found == {"grades": 3, "words": words, "judge": "", "judged": 3, "total": 3}
    found = client.get("/judging/queries", params={"judge": "bob"}).json()
    assert [row["judged"] for row in found["queries"]] == [1, 0, 0] and found["judged"] == 1


def test_a_pool_mixes_what_the_systems_find_and_does_not_say_who_found_what(learned_model, tmp_path):
    model, query = GR2.from_pretrained(learned_model), judged.judged().queries["q0"]
    with TestClient(app_of(learned_model, tmp_path / "judged", depth=5)) as client:
        found = client.get("/judging/pool", params={"query": query}).json()["documents"]
        beside = client.post("/search", json={"query": query, "bm25": True, "k": 5}).json()["answers"][0]
    ours = [result.docno for result in model.search(query, 5)]
    cosines = model.look_ahead.cosines(model.query_encoder.encode([query]))[0]
    nearest = [model.look_ahead.docnos[place] for place in (-cosines).argsort(kind="stable")[:5]]
    assert ours != nearest, "the model has learned"
    rankings = [ours, nearest, [row["docno"] for row in beside["bm25"]]]
    assert [row["docno"] for row in found] == pool(query, rankings, 5)
    assert all(set(row) == {"docno", "title", "url", "snippet", "grade"} for row in found)
    texts = {document.docno: document for document in judged.documents()}
    assert all(row["title"] == texts[row["docno"]].title and row["snippet"] for row in found)


def test_a_judge_sees_only_grades_of_their_own(client):
    first = client.get("/judging/pool", params={"query": QUERY}).json()["documents"][0]["docno"]
    client.post("/judgements", json=[given(first, 3, "ann"), given(first, 0, "bob")])
    for judge, grade in (("ann", 3), ("bob", 0), ("cy", None), ("", None)):
        found = client.get("/judging/pool", params={"query": f" {QUERY}", "judge": judge}).json()
        assert found["documents"][0]["grade"] == grade
        assert {row["grade"] for row in found["documents"][1:]} == {None}


def test_queries_on_which_the_systems_disagree_can_come_first(learned_model, tmp_path):
    texts = [*judged.judged().queries.values()][:8]
    (tmp_path / "log.tsv").write_text("".join(f"{text}\n" for text in texts))
    options = {"queries": tmp_path / "log.tsv", "order": "disagreement", "depth": 5}
    judging = Judging(
        Service(learned_model, ServiceConfig()), JudgingConfig(judge=tmp_path / "judged", **options)
    )
    lists = {text: [run[text] for run in judging._all_rankings()] for text in texts}
    assert all(len(each) == 3 for each in lists.values())
    order = [query.text for query in judging.queries]
    assert order == sorted(texts, key=lambda text: -disagreement(lists[text])) != texts


@pytest.mark.parametrize("query", ["", "  ", "a" * 2001, "a\x00b"])
def test_a_pool_of_no_query_is_refused(client, query):
    assert client.get("/judging/pool", params={"query": query}).status_code == 422


def test_documents_that_the_model_does_not_cover_are_not_judged(served_folder, tmp_path):
    with TestClient(app_of(served_folder, tmp_path / "judged")) as client:
        beside = client.post("/search", json={"query": "model", "bm25": True}).json()["answers"][0]["bm25"]
        found = client.get("/judging/pool", params={"query": "model"}).json()["documents"]
        assert [row["docno"] for row in beside] == [served.ODD]
        assert len(found) == 10 and served.ODD not in [row["docno"] for row in found]
        reply = client.post("/judgements", json=[given(served.ODD)])
        assert reply.status_code == 422


def test_what_cannot_be_pooled_is_left_out_or_refused_if_it_was_asked_for(served_folder, untaught, tmp_path):
    service = Service(served_folder, ServiceConfig())
    assert Judging(service, JudgingConfig(judge=tmp_path / "one")).systems == ("model", "bm25")
    for name, config in (("dense", ServiceConfig()), ("bm25", ServiceConfig(bm25=False))):
        with pytest.raises(ValueError, match=f"{name} cannot be pooled: "):
            Judging(Service(served_folder, config), JudgingConfig(judge=tmp_path / "two", pool=(name,)))
    assert not (tmp_path / "two").exists()
    one = Judging(Service(untaught, ServiceConfig()), JudgingConfig(judge=tmp_path / "one", pool=("bm25",)))
    assert one.systems == ("bm25",)


# Who may, and where


def test_without_a_folder_nothing_can_be_judged(untaught, gr2, queries):
    with TestClient(build_app(Service(untaught, ServiceConfig()))) as client:
        assert not client.get("/health").json()["judging"]
        assert client.get("/judge").status_code == client.get("/judgements").status_code == 404
        assert client.post("/learn", json={}).status_code == 404
    with pytest.raises(SystemExit, match="go with --judge"):
        gr2("serve", untaught, "--queries", queries)


def test_all_of_it_needs_the_api_key_but_the_page(untaught, tmp_path):
    service = Service(untaught, ServiceConfig())
    judging = Judging(service, JudgingConfig(judge=tmp_path / "judged"))
    with TestClient(build_app(service, api_key="secret", judging=judging)) as client:
        schema = client.get("/openapi.json").json()["paths"]
        routes = [(path, method) for path in schema for method in schema[path] if path != "/health"]
        assert {("/judgements", "post"), ("/learn", "post"), ("/judging/pool", "get")} < set(routes)
        for path, method in routes:
            assert client.request(method, path).status_code == 401, path
        page = client.get("/judge")
        assert page.status_code == 200
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and policy.count("sha256-") == 2
        headers = {"X-API-Key": "secret"}
        assert client.post("/judgements", json=[given()], headers=headers).status_code == 201


def test_a_service_that_others_can_reach_is_not_judged_without_a_key(gr2, untaught, tmp_path):
    with pytest.raises(SystemExit, match="needs --api-key-file"):
        gr2("serve", untaught, "--port", 0, "--host", "0.0.0.0", "--judge", tmp_path / "judged")
    assert not (tmp_path / "judged").exists()


@pytest.mark.parametrize("path", ["/judgements", "/judgements/undo", "/learn", "/rollback"])
def test_a_page_of_another_site_changes_nothing(client, tmp_path, path):
    """A form of another site can send plain text unasked, but not JSON."""
    body = json.dumps([given()] if path == "/judgements" else {"judge": "ann"})
    for headers in ({"content-type": "text/plain"}, {}):
        reply = client.post(path, content=body.encode(), headers=headers)
        assert reply.status_code == 422 and "content-type: application/json" in reply.json()["detail"]
    reply = client.post(path)
    assert reply.status_code == 422 and "content-type: application/json" in reply.json()["detail"]
    assert kept(tmp_path) == {} and client.get("/learn").json()["state"] == "idle"


# Learning and going back


def ranking(client, query):
    answer = client.post("/search", json={"query": query, "k": 36}).json()["answers"][0]
    return [(hit["docno"], round(hit["score"], 3)) for hit in answer["results"]]


def offline(folder, query):
    return [(each.docno, round(each.score, 3)) for each in GR2.from_pretrained(folder).search(query, 36)]


def wait_for_learning(client):
    until = time.monotonic() + PATIENCE
    while (now := client.get("/learn").json())["state"] == "running":
        assert time.monotonic() < until, now
        time.sleep(0.2)
    return now


def judge_thirty(client):
    found = judged.judged()
    for qid, row in found.qrels.items():
        rows = [given(docno, grade, query=found.queries[qid]) for docno, grade in row.items()]
        assert client.post("/judgements", json=rows).status_code == 201


def test_learning_replaces_the_model_and_rolling_back_brings_the_old_one_back(model, tmp_path):
    query = judged.judged().queries["q0"]
    with TestClient(app_of(model, tmp_path / "judged")) as client:
        before = ranking(client, query)
        judge_thirty(client)
        reply = client.post("/learn", json={})
        assert reply.status_code == 202 and reply.json()["state"] == "running"
        for path in ("/learn", "/rollback"):
            reply = client.post(path, json={})
            assert reply.status_code == 409 and "already" in reply.json()["detail"]
        done = wait_for_learning(client)
        assert done["state"] == "done" and done["result"].startswith("Learned from 30 judged queries in ")
        after = ranking(client, query)
        assert after != before and after == offline(model, query)
        found = client.get("/versions").json()["versions"]
        assert [(each["number"], each["current"], each["queries"]) for each in found] == [
            (1, False, 0),
            (2, True, 30),
        ]
        assert found[1]["gain"] > 0.1
        reply = client.post("/rollback", json={})
        assert [each["number"] for each in reply.json()["versions"]] == [1, 2, 3]
        assert ranking(client, query) == before == offline(model, query)


def test_too_few_judgements_leave_the_model_as_it_is_and_say_so(model, tmp_path):
    with TestClient(app_of(model, tmp_path / "judged")) as client:
        before = (model / "manifest.json").read_bytes()
        client.post("/judgements", json=[given()])
        assert client.post("/learn", json={}).status_code == 202
        done = wait_for_learning(client)
        assert done["state"] == "done" and done["result"].startswith("No gain yet: ")
        assert (model / "manifest.json").read_bytes() == before
        reply = client.post("/rollback", json={})
        assert reply.status_code == 409 and "no earlier version is kept" in reply.json()["detail"]
        assert client.post("/rollback", json={"number": 7}).status_code == 409
        assert client.post("/learn", json={}).status_code == 202, "after a failed rollback the way is free"
        wait_for_learning(client)


def test_a_killed_learning_is_reported_and_the_old_model_serves(model, tmp_path):
    query = judged.judged().queries["q0"]
    service = Service(model, ServiceConfig())
    learning = Learning(service, tmp_path / "judged")

    async def script():
        await service.start()
        await learning.start()
        while learning._process is None:
            await asyncio.sleep(0.01)
        learning._process.kill()
        await learning._task
        answers = await service.search([query], 36, None)
        await service.stop()
        return answers[0]

    JudgementStore(tmp_path / "judged", JudgeConfig()).append([Judgement("baka", "d01", 1, "ann")])
    answer = asyncio.run(script())
    assert learning.reply.state == "failed" and "ended with code -9" in learning.reply.result
    assert [(hit.docno, round(hit.score, 3)) for hit in answer.results] == offline(model, query)
    verify(model)


def test_stopping_the_service_ends_learning(model, tmp_path):
    with TestClient(app_of(model, tmp_path / "judged")) as client:
        judge_thirty(client)
        client.post("/learn", json={})
        began = client.get("/learn").json()
    assert began["state"] == "running"
    verify(model)
    assert len(versions(model)) == 1


def test_a_model_that_cannot_learn_says_why(served_folder, tmp_path):
    with TestClient(app_of(served_folder, tmp_path / "judged")) as client:
        client.post("/judgements", json=[given()])
        client.post("/learn", json={})
        done = wait_for_learning(client)
    assert done["state"] == "failed" and "no look-ahead, so it cannot learn" in done["result"]
    assert not done["result"].startswith("gr2:")


def test_requests_in_flight_end_on_the_model_they_began_with(learned_model, untaught):
    """The worker is held while the model is replaced: the old question gets the old answer."""
    service, gate, query = Service(learned_model, ServiceConfig()), threading.Event(), "baka"
    old, new = offline(learned_model, query), offline(untaught, query)
    real = service.batcher._work
    service.batcher._work = lambda asked: gate.wait(PATIENCE) and real(asked)

    async def script():
        await service.start()
        first = asyncio.create_task(service.search([query], 36, None))
        await asyncio.sleep(0.1)  # it is in the queue
        await asyncio.to_thread(rollback, learned_model)
        await service.reload()
        second = asyncio.create_task(service.search([query], 36, None))
        await asyncio.sleep(0.1)
        gate.set()
        answers = [(await each)[0] for each in (first, second)]
        await service.stop()
        return [[(hit.docno, round(hit.score, 3)) for hit in answer.results] for answer in answers]

    assert old != new
    assert asyncio.run(script()) == [old, new]


def test_replacing_the_model_under_load_fails_or_mixes_no_request(learned_model, untaught, tmp_path):
    queries = list(judged.judged().queries.values())[:6]
    known = [{query: offline(folder, query) for query in queries} for folder in (untaught, learned_model)]
    assert all(known[0][query] != known[1][query] for query in queries)
    stop = threading.Event()

    def search(client):
        seen = []
        while not stop.is_set():
            reply = client.post("/search", json={"query": queries, "k": 36, "bm25": True})
            seen.append((reply.status_code, reply.json()))
        return seen

    with (
        TestClient(app_of(learned_model, tmp_path / "judged")) as client,
        ThreadPoolExecutor(4) as threads,
    ):
        asked = [threads.submit(search, client) for _ in range(4)]
        try:
            for _ in range(4):
                assert client.post("/rollback", json={}).status_code == 200
        finally:
            stop.set()
        replies = [reply for each in asked for reply in each.result()]
    models = set()
    for status, content in replies:
        assert status == 200, content
        found = [
            [(hit["docno"], round(hit["score"], 3)) for hit in answer["results"]]
            for answer in content["answers"]
        ]
        models.add(known.index({query: rows for query, rows in zip(queries, found, strict=True)}))
    assert models == {0, 1}, "both models answered, and no answer was made from two"


def test_a_folder_with_other_documents_or_a_damaged_one_does_not_replace_the_model(model, served_folder):
    service = Service(model, ServiceConfig())
    present = service.model
    shutil.rmtree(model)
    shutil.copytree(served_folder, model)
    with pytest.raises(ValueError, match="other documents"):
        asyncio.run(service.reload())
    write_json(model / "config.json", {"format": 99})
    with pytest.raises(ValueError, match="changed since it was written"):
        asyncio.run(service.reload())
    write_manifest(model)
    with pytest.raises(ValueError, match="has format 99"):
        asyncio.run(service.reload())
    assert service.model is present


# Real processes


def send(address, path, content=None):
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(f"{address}{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return json.load(reply)


def test_after_kill_9_everything_acknowledged_is_there(untaught, tmp_path):
    acknowledged, enough = [], threading.Event()
    docnos = [document.docno for document in judged.documents()]

    def judge(address, name):
        for number in range(10_000):
            row = given(docnos[number % 36], number % 5, name, f"query {number // 36}")
            try:
                send(address, "/judgements", [row])
            except (urllib.error.URLError, ConnectionError, OSError):
                return
            acknowledged.append(row)
            if len(acknowledged) > 150:
                enough.set()

    with served.servers(untaught) as start, ThreadPoolExecutor(2) as threads:
        process, address = start("--judge", tmp_path / "judged")
        both = [threads.submit(judge, address, name) for name in ("ann", "bob")]
        assert enough.wait(PATIENCE)
        process.kill()
        for each in both:
            each.result()
    found = kept(tmp_path)
    for row in acknowledged:
        assert found[row["query"], row["docno"], row["judge"]] == row["grade"]
    assert len(found) <= len(acknowledged) + 2 and {row["judge"] for row in acknowledged} == {"ann", "bob"}
    with served.servers(untaught) as start:
        _, address = start("--judge", tmp_path / "judged")
        assert send(address, "/judgements")["total"] == len(found)


def test_after_kill_9_while_learning_the_old_model_still_serves(model, tmp_path):
    query = judged.judged().queries["q0"]
    before = offline(model, query)
    with served.servers(model) as start:
        process, address = start("--judge", tmp_path / "judged")
        rows = judged.judged()
        for qid, row in rows.qrels.items():
            send(address, "/judgements", [given(d, g, query=rows.queries[qid]) for d, g in row.items()])
        send(address, "/learn", {})
        until = time.monotonic() + PATIENCE
        while "fold" not in send(address, "/learn")["line"]:
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        verify(model)
        _, address = start("--judge", tmp_path / "judged")
        answer = send(address, "/search", {"query": query, "k": 36})["answers"][0]
        assert [(hit["docno"], round(hit["score"], 3)) for hit in answer["results"]] == before
        assert send(address, "/judgements")["total"] == sum(map(len, rows.qrels.values()))


def test_the_terminal_and_the_page_share_a_folder(client, tmp_path):
    other = "from pathlib import Path; import sys; from gr2.judge.store import JudgementStore; "
    other += "from gr2.judge.judgements import Judgement; "
    other += "JudgementStore(Path(sys.argv[1])).append([Judgement('baka beke', 'd02', 1, 'bob')])"
    client.post("/judgements", json=[given("d01")])
    subprocess.run([sys.executable, "-c", other, str(tmp_path / "judged")], check=True)
    client.post("/judgements", json=[given("d03")])
    assert len(kept(tmp_path)) == 3 and client.get("/judgements").json()["total"] == 3


ROUTES = [
    *(("/judgements", "POST"), ("/judgements", "GET"), ("/judgements/undo", "POST")),
    *(("/judging/queries", "GET"), ("/judging/pool", "GET"), ("/versions", "GET")),
]


def test_generated_requests_follow_the_schema_and_never_get_a_500(untaught, tmp_path):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings

    seen = set()
    with served.servers(untaught) as start:
        _, address = start("--judge", tmp_path / "judged")
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
        for path, method in ROUTES:

            @given(case=schema[path][method].as_strategy())
            @settings(
                max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
            )
            def run(case):
                seen.add((case.path, case.method, case.call().status_code))

            run()
    assert {("/judgements", "GET", 200), ("/judging/pool", "GET", 200), ("/versions", "GET", 200)} <= seen
    assert all(status < 500 for _, _, status in seen), seen
