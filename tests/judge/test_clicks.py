"""Clicks to grades: a simulated log with known propensities and relevances, and both forms of logs."""

import gzip
import json
from itertools import combinations

import numpy as np
import pytest

from gr2.data.formats import FormatError
from gr2.judge.click_log import ClickLog, read_log
from gr2.judge.clicks import ClicksConfig, click_judgements, fit_positions, grade_pairs

PLACES = 8
THETA = {place: place**-0.9 for place in range(1, PLACES + 1)}


def simulated(searches=4000, queries=12, seed=0):
    """Relevances and a log of rankings that are wrong on average: the best document is often shown last."""
    generator = np.random.default_rng(seed)
    log, gamma = ClickLog(), {}
    for number in range(queries):
        drawn = np.sort(generator.uniform(0.02, 0.8, PLACES))  # the worst document first
        for index, value in enumerate(drawn):
            gamma[f"query {number}", f"d{index}"] = float(value)
        for _ in range(searches):
            ranking = np.argsort(np.arange(PLACES) + generator.normal(0, 3, PLACES))
            draws = generator.random(PLACES)
            for place, index in enumerate(ranking, start=1):
                clicked = bool(draws[place - 1] < THETA[place] * drawn[index])
                log.add(f"query {number}", f"d{index}", place, clicked)
    return gamma, log


@pytest.fixture(scope="module")
def simulation():
    return simulated()


def right_order(gamma, estimate):
    """The share of pairs of documents of a query, well apart in truth, that an estimate orders rightly."""
    pairs = [
        (one, two)
        for one, two in combinations(gamma, 2)
        if one[0] == two[0] and abs(gamma[one] - gamma[two]) > 0.1
    ]
    return np.mean([(gamma[a] > gamma[b]) == (estimate[a] > estimate[b]) for a, b in pairs])


def test_propensities_and_relevances_are_recovered_and_uncorrected_ctr_is_wrong(simulation):
    gamma, log = simulation
    model = fit_positions(log)
    assert model.compared == set(THETA)
    assert model.propensities == pytest.approx(THETA, abs=0.02)
    pairs = grade_pairs(log, model)
    found = {(pair.query, pair.docno): pair.relevance for pair in pairs}
    assert [(pair.query, pair.docno) for pair in pairs] == sorted(gamma)
    errors = np.array([pair.relevance - gamma[pair.query, pair.docno] for pair in pairs])
    noise = np.array([pair.relevance / np.sqrt(pair.clicked) for pair in pairs])  # clicks are nearly Poisson
    assert np.all(np.abs(errors) < 4 * noise)
    assert np.abs(errors).mean() < 0.02
    assert abs(errors.mean()) < 0.005
    ctr = {(pair.query, pair.docno): pair.clicked / pair.shown for pair in pairs}
    assert right_order(gamma, found) == 1
    assert right_order(gamma, ctr) < 0.9, "of pairs well apart, CTR orders more than a tenth wrongly"
    thresholds = ClicksConfig().thresholds
    for pair in pairs:
        assert pair.grade == sum(pair.relevance >= threshold for threshold in thresholds)
    assert {pair.grade for pair in pairs} == {0, 1, 2, 3, 4}


def test_the_same_log_gives_the_same_result(simulation):
    _, log = simulation
    turned = ClickLog(dict(reversed(log.shown.items())), dict(reversed(log.clicked.items())))
    assert fit_positions(log) == fit_positions(turned)
    assert grade_pairs(log, fit_positions(log)) == grade_pairs(turned, fit_positions(turned))


def counted(*rows):
    """A log from rows (docno, position, shown, clicked) of one query."""
    log = ClickLog()
    for docno, place, shown, clicked in rows:
        log.shown["q", docno, place], log.clicked["q", docno, place] = shown, clicked
    return log


def test_positions_that_the_log_cannot_compare_are_assumed():
    log = counted(("a", 1, 1000, 400), ("a", 2, 1000, 300), ("b", 2, 100, 9), ("c", 4, 100, 5))
    model = fit_positions(log, ClicksConfig(eta=0.5))
    assert model.compared == {1, 2}
    assert model.propensities == pytest.approx({1: 1, 2: 0.75, 4: 0.5}, abs=1e-3)


def test_relevance_by_hand():
    log = counted(("a", 1, 10, 4), ("a", 2, 10, 2), ("b", 1, 20, 0), ("c", 1, 9, 9))
    model = fit_positions(log)
    assert model.propensities == pytest.approx({1: 1, 2: 0.5}, abs=1e-4)
    a, b = grade_pairs(log, model, ClicksConfig(min_shown=10, prior=2))
    mean = 15 / (15 + 20 + 9)  # clicks per look; c is left out below but counts here
    assert a.relevance == pytest.approx((6 + 2 * mean) / (15 + 2), abs=1e-4)
    assert b.relevance == pytest.approx((0 + 2 * mean) / (20 + 2), abs=1e-4)
    assert (a.grade, b.grade) == (3, 0)
    [judgement, _] = click_judgements([a, b])
    assert (judgement.query, judgement.docno, judgement.grade, judgement.source) == ("q", "a", 3, "clicks")


def test_a_click_at_a_position_that_is_hardly_looked_at_is_clipped():
    log = counted(("a", 1, 1000, 500), ("a", 100, 100, 1))
    model = fit_positions(log)
    [found] = grade_pairs(counted(("b", 100, 100, 3)), model, ClicksConfig(prior=0, clip=0.2))
    assert model.propensities[100] == pytest.approx(0.02, abs=1e-3)
    assert found.relevance == pytest.approx(3 / 20)


@pytest.mark.parametrize(
    "wrong",
    [
        {"thresholds": ()},
        {"thresholds": (0.2, 0.1)},
        {"thresholds": (0.0, 0.1)},
        {"thresholds": (0.5, 1.5)},
        {"clip": 0},
        {"min_shown": 0},
        {"prior": -1},
    ],
)
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match="expected"):
        ClicksConfig(**wrong)


# --- logs


HEADER = "query\tdocno\tshown_at\tclicked\n"


def one(folder, name, content):
    path = folder / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return path


def test_a_tsv_log_in_two_files(tmp_path):
    first = one(tmp_path, "a.tsv.gz", HEADER + "sour  fruit\td1\t1\t1\nsour fruit\td1\t1\t0\n")
    second = one(tmp_path, "b.tsv", "time\tclicked\tdocno\tquery\tshown_at\n9\t0\td2\tsour fruit\t2\n")
    log = read_log([first, second], "tsv")
    assert log.shown == {("sour fruit", "d1", 1): 2, ("sour fruit", "d2", 2): 1}
    assert log.clicked == {("sour fruit", "d1", 1): 1, ("sour fruit", "d2", 2): 0}


def test_columns_of_a_log_may_be_called_anything(tmp_path):
    path = one(tmp_path, "log.csv", "search,sku,position,clicked\nsour fruit,d1,2,1\n")
    names = {"query": "search", "docno": "sku", "shown_at": "position"}
    assert read_log([path], "tsv", names).clicked == {("sour fruit", "d1", 2): 1}
    with pytest.raises(FormatError, match="a column query; found search, sku.*--columns query NAME"):
        read_log([path], "tsv")
    with pytest.raises(FormatError, match=r"a column for shown_at \(rank\)"):
        read_log([path], "tsv", names | {"shown_at": "rank"})
    with pytest.raises(ValueError, match="no column of a log is called 'grade'; they are query, docno"):
        read_log([path], "tsv", {"grade": "x"})
    with pytest.raises(ValueError, match="leave --columns out"):
        read_log([path], "ubi", names)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("query\tdocno\tclicked\n", 1, "expected a column shown_at; found query"),
        (HEADER + "q\td1\t1\n", 2, "expected 4 columns as in the header, found 3"),
        (HEADER + "q\td1\t1\t0\nq\td1\t0\t1\n", 3, "a position from 1, found '0'"),
        (HEADER + "q\td1\tfirst\t1\n", 2, "a position from 1, found 'first'"),
        (HEADER + "q\td1\t1\tyes\n", 2, "0 or 1, found 'yes'"),
        (HEADER + " \td1\t1\t1\n", 2, "a query and a docno"),
        (HEADER + "q\td 1\t1\t1\n", 2, "a query and a docno"),
        (HEADER, 0, "no document was shown"),
    ],
)
def test_a_wrong_tsv_log_names_the_line(tmp_path, content, line, words):
    path = one(tmp_path, "log.tsv", content)
    with pytest.raises(FormatError, match=words) as error:
        read_log([path], "tsv")
    assert (error.value.path, error.value.line) == (path, line)


def query(query_id, text, hits):
    return {"query_id": query_id, "user_query": text, "query_response_hit_ids": hits, "client_id": "c"}


def event(action, query_id, docno=None, ordinal=None):
    attributes = {} if ordinal is None else {"position": {"ordinal": ordinal}}
    attributes |= {} if docno is None else {"object": {"object_id": docno, "object_id_field": "sku"}}
    return {"action_name": action, "query_id": query_id, "event_attributes": attributes, "timestamp": "2026"}


def ubi(folder, name, *records):
    return one(folder, name, "".join(json.dumps(record) + "\n" for record in records))


def test_a_ubi_log(tmp_path):
    events = ubi(
        tmp_path,
        "events.ndjson",
        event("click", "s1", "d2", 2),
        event("click", "s1", "d2", 2),  # a second click on it
        event("click", "s1", "d9", 12),  # on a later page
        event("hover", "s1", "d1", 1),
        event("login", None),
        {"index": {"_index": "ubi_events"}},
        event("impression", "s2", "d1", 0),  # counted from 0: the list of hits says the position
        event("click", "s2", 7, 3),
        event("click", "lost", "d1", 1),
        event("click", "s1", "d8"),
        event("impression", "s2"),
    )
    queries = ubi(
        tmp_path,
        "queries.ndjson",
        query("s1", "sour fruit", ["d1", "d2", "d3"]),
        {"_id": "x", "_source": query("s2", "sour fruit", ["d1", "d2", 7])},
        query("s3", "", ["d1"]),
    )
    log = read_log([events, queries], "ubi")
    clicked = {("sour fruit", "d2", 2), ("sour fruit", "d9", 12), ("sour fruit", "7", 3)}
    shown = clicked | {("sour fruit", "d1", 1), ("sour fruit", "d3", 3)}
    assert set(log.shown) == shown
    assert log.shown["sour fruit", "d1", 1] == 2
    assert log.shown["sour fruit", "d2", 2] == 1, "s2 has impressions, and none of d2"
    assert {cell for cell, count in log.clicked.items() if count} == clicked
    assert max(log.clicked.values()) == 1
    assert log.skipped == 3


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ([], "a JSON object, not list"),
        ({"user_query": "q"}, "query_id and user_query"),
        ({"query_id": "s1", "user_query": 3}, "query_id and user_query"),
        (query("s1", "q", "d1"), "to be a list"),
        (query("s1", "q", ["d 1"]), "a docno without white space, found 'd 1'"),
        (event("click", "s0", "d7", "third"), "a position from 1 in ordinal, found 'third'"),
        (event("click", "s0", "d7", 0), "a position from 1 in ordinal, found 0"),
        (event("click", "s0", {"id": 1}, 1), "a docno without white space"),
        ({"action_name": "click", "query_id": "s0", "event_attributes": [1]}, "event_attributes to be"),
    ],
)
def test_a_wrong_ubi_log_names_the_line(tmp_path, record, words):
    path = ubi(tmp_path, "log.ndjson", query("s0", "fine", ["d1"]), record)
    with pytest.raises(FormatError, match=words) as error:
        read_log([path], "ubi")
    assert (error.value.path, error.value.line) == (path, 2)


def test_a_ubi_log_that_is_not_json(tmp_path):
    path = one(tmp_path, "log.ndjson", '{"query_id": \n')
    with pytest.raises(FormatError, match="log.ndjson:1: expected a JSON object"):
        read_log([path], "ubi")
