"""A folder of judgements: what is kept, what is refused, and what a crash or a damaged byte does to it."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gr2.data.formats import FormatError
from gr2.judge.judgements import Judgement, median, merge
from gr2.judge.log import decode, encode
from gr2.judge.store import CONFIG, LOG, InvalidJudgement, JudgeConfig, JudgementStore

APPEND = """
import sys
from pathlib import Path
from gr2.judge.judgements import Judgement
from gr2.judge.store import JudgementStore
folder, judge, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = JudgementStore(folder)
for number in range(count):
    store.append([Judgement(f"query {number % 7}", f"d{number}", number % 5, judge)])
    print(number, flush=True)
"""


@pytest.fixture
def store(tmp_path):
    return JudgementStore(tmp_path / "judged", JudgeConfig())


def fill(store, count=5):
    return [store.append([Judgement("sour fruit", f"d{i}", i % 5, "ann")])[0] for i in range(count)]


def appending(folder, judge, count):
    command = [sys.executable, "-c", APPEND, str(folder), judge, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# --- what is kept


def test_everything_said_is_there_after_reopening(store):
    given = Judgement(
        "sour fruit", "d1", 3, "ann", qid="7", time="2026-01-31T14:00:00+02:00", source="clicks"
    )
    store.append([given])
    [found] = JudgementStore(store.folder).current().values()
    assert found == Judgement("sour fruit", "d1", 3, "ann", "7", "2026-01-31T12:00:00.000Z", "clicks")


def test_time_and_qid_are_filled_in(tmp_path):
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    store = JudgementStore(tmp_path / "judged", JudgeConfig(), clock=lambda: moment)
    one, two, three = store.append(
        [
            Judgement("a fruit", "d1", 1, "ann"),
            Judgement("a  fruit ", "d2", 1, "bob"),
            Judgement("b", "d1", 1, "ann"),
        ]
    )
    assert one.time == "2026-01-31T12:00:00.000Z"
    assert one.qid == two.qid != three.qid


def test_a_text_that_has_a_qid_keeps_it(store):
    store.append([Judgement("a fruit", "d1", 1, "ann", qid="301")])
    [found] = store.append([Judgement("a fruit", "d2", 1, "bob")])
    assert found.qid == "301"


def test_judgements_without_a_qid_count_for_the_first_qid_that_the_text_gets(store):
    for qid, judge, grade in (("", "ann", 1), ("301", "bob", 2), ("302", "bob", 4), ("", "cyd", 3)):
        store.append([Judgement("a fruit", "d1", grade, judge, qid)])
    for opened in (store, JudgementStore(store.folder)):
        assert opened.qrels() == {"301": {"d1": 2}, "302": {"d1": 4}}
        assert opened.queries() == {"301": "a fruit", "302": "a fruit"}
    store.append([Judgement("a fruit", "d1", 0, "ann", "301")])
    assert store.qrels("ann") == {"301": {"d1": 0}}, "a later grade of the same query, document and judge"


def test_the_latest_grade_counts_and_undo_brings_the_one_before_back(store):
    for grade in (1, 4):
        store.append([Judgement("q", "d", grade, "ann", qid="1")])
    store.append([Judgement("q", "d", 2, "bob", qid="1")])
    assert store.qrels("ann") == {"1": {"d": 4}}
    assert store.undo("ann").grade == 4
    assert store.qrels("ann") == JudgementStore(store.folder).qrels("ann") == {"1": {"d": 1}}
    assert store.undo("ann").grade == 1
    with pytest.raises(ValueError, match="'ann' has no judgement to undo"):
        store.undo("ann")
    assert JudgementStore(store.folder).qrels() == {"1": {"d": 2}}
    assert len((store.folder / LOG).read_bytes().splitlines()) == 5, "nothing was deleted"


def test_merging_takes_the_lower_median_and_people_before_clicks():
    def rows(*grades, source="judged"):
        return [Judgement("q", "d", g, f"{source}{i}", "1", source=source) for i, g in enumerate(grades)]

    assert merge(rows(0, 4, 3)) == {"1": {"d": 3}}
    assert merge(rows(1, 3)) == {"1": {"d": 1}}
    assert merge(rows(0, 2) + rows(4, 4, 4, source="clicks")) == {"1": {"d": 0}}
    assert merge(rows(4, source="clicks")) == {"1": {"d": 4}}


@given(st.lists(st.integers(0, 4), min_size=1))
def test_the_median_has_at_most_half_of_the_grades_on_either_side(grades):
    middle = median(grades)
    assert middle in grades
    assert 2 * sum(grade < middle for grade in grades) < len(grades)
    assert 2 * sum(grade > middle for grade in grades) <= len(grades)


# --- what is refused, with nothing written


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Judgement("q", "d1", 5, "ann"), "a grade from 0 to 4, found 5"),
        (Judgement("q", "d1", -1, "ann"), "a grade from 0 to 4, found -1"),
        (Judgement("q", "d1", True, "ann"), "a grade from 0 to 4, found True"),
        (Judgement("q", "d1", 2.0, "ann"), "a grade from 0 to 4, found 2.0"),
        (Judgement("q", "d9", 1, "ann"), "the document 'd9' is not in the collection"),
        (Judgement("q", "d 1", 1, "ann"), "a docno without white space"),
        (Judgement(" \n", "d1", 1, "ann"), "a query with text"),
        (Judgement("\ud800", "d1", 1, "ann"), "a query with text"),
        (Judgement("q", "d1", 1, " "), "the name of a judge"),
        (Judgement("q", "d1", 1, "ann", qid="a b"), "a qid without white space"),
        (Judgement("q", "d1", 1, "ann", qid="first"), "'first' belongs to the query 'known', not to 'q'"),
        (Judgement("q", "d1", 1, "ann", time="yesterday"), "a time such as"),
        (Judgement("q", "d1", 1, "ann", time="2026-01-31T12:00:00"), "a time such as"),
        (Judgement("q", "d1", 1, "ann", source="guess"), "one of the sources"),
    ],
)
def test_an_invalid_judgement_is_refused_and_none_of_its_batch_is_written(tmp_path, wrong, words):
    store = JudgementStore(tmp_path / "judged", JudgeConfig(), docnos={"d1", "d2"})
    store.append([Judgement("known", "d1", 1, "ann", qid="first")])
    before = (store.folder / LOG).read_bytes()
    with pytest.raises(InvalidJudgement, match=words) as error:
        store.append([Judgement("fine", "d2", 1, "ann"), wrong])
    assert error.value.index == 1
    assert (store.folder / LOG).read_bytes() == before
    assert store.queries() == {"first": "known"}


def test_two_texts_with_one_qid_in_the_same_batch(store):
    with pytest.raises(InvalidJudgement, match="belongs to the query 'a'"):
        store.append([Judgement("a", "d", 1, "ann", qid="1"), Judgement("b", "d", 1, "ann", qid="1")])
    assert (store.folder / LOG).read_bytes() == b""


def test_the_settings_are_kept_and_checked(tmp_path):
    folder, config = tmp_path / "judged", JudgeConfig(grades=2, words=("no", "partly", "yes"))
    JudgementStore(folder, config)
    assert JudgementStore(folder).config == JudgementStore(folder, config).config == config
    assert [config.word(1), JudgeConfig().word(1)] == ["partly", "1"]
    with pytest.raises(ValueError, match="which differs from"):
        JudgementStore(folder, JudgeConfig())
    for content in ("{", "[]", '{"grades": 2}', '{"kind": "judgements", "grades": "2"}'):
        (folder / CONFIG).write_text(content)
        with pytest.raises(ValueError, match=r"config\.json: expected the settings"):
            JudgementStore(folder)


@pytest.mark.parametrize(
    "wrong", [{"grades": 0}, {"grades": 2, "words": ("no", "yes")}, {"grades": 1, "words": ("", "y")}]
)
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match="expected"):
        JudgeConfig(**wrong)


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    with pytest.raises(ValueError, match="expected a folder of judgements"):
        JudgementStore(tmp_path / "nowhere")
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="has other files"):
        JudgementStore(tmp_path, JudgeConfig())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


# --- crashes and damage


@given(st.dictionaries(st.text(), st.integers() | st.text(), max_size=4))
def test_a_line_of_the_log_is_json_and_comes_back(entry):
    try:
        line = encode(entry)
    except TypeError:  # half of a surrogate pair, or a number beyond 64 bits: refused before it is written
        return
    assert decode(line.removesuffix(b"\n")) == json.loads(line)["entry"] == entry


def test_the_log_cut_at_every_byte_of_its_last_line(store):
    kept, path = fill(store, 3), store.folder / LOG
    whole = path.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(whole)):
        path.write_bytes(whole[:cut])
        again = JudgementStore(store.folder)
        assert list(again.current().values()) == kept[:2]
        [new] = again.append([Judgement("next", "d", 1, "bob")])
        assert list(JudgementStore(store.folder).current().values()) == [*kept[:2], new]


def test_a_changed_byte_anywhere_is_an_error_that_names_the_line(store):
    fill(store, 3)
    path = store.folder / LOG
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in (1, 32):
            damaged = bytearray(whole)
            damaged[place] ^= bit
            path.write_bytes(damaged)
            line = whole[:place].count(b"\n") + 1
            with pytest.raises(FormatError, match=f"{LOG}:{line}: damaged"):
                JudgementStore(store.folder)


def test_a_writer_does_not_add_to_a_damaged_log(store):
    fill(store, 3)
    path = store.folder / LOG
    damaged = path.read_bytes().replace(b"d1", b"dx")
    path.write_bytes(damaged)
    with pytest.raises(FormatError, match=f"{LOG}:2: damaged"):
        JudgementStore(store.folder)
    path.write_bytes(b"")
    with pytest.raises(FormatError, match="became shorter"):
        store.append([Judgement("q", "d", 1, "ann")])
    assert path.read_bytes() == b""


def test_a_line_with_a_checksum_that_is_no_judgement(store):
    fill(store, 1)
    with (store.folder / LOG).open("ab") as stream:
        stream.write(encode({"grade": 2}))
    for _ in range(2):
        with pytest.raises(FormatError, match=f"{LOG}:2: expected a judgement or a retraction"):
            store.refresh()


def test_a_full_disk_leaves_the_log_as_it_was(store, monkeypatch):
    fill(store, 2)
    before = (store.folder / LOG).read_bytes()
    write = os.write

    def full(descriptor, data):
        write(descriptor, bytes(data)[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "write", full)
        store.append([Judgement("q", "d", 1, "ann")])
    assert (store.folder / LOG).read_bytes() == before
    store.append([Judgement("q", "d", 1, "ann")])
    assert len(JudgementStore(store.folder).current()) == 3


def test_what_did_not_reach_the_disk_is_not_acknowledged(store, monkeypatch):
    fill(store, 2)
    before = (store.folder / LOG).read_bytes()
    seen = []

    def broken(descriptor):
        seen.append((store.folder / LOG).stat().st_size > len(before))
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr(os, "fsync", broken)
        store.append([Judgement("q", "d", 1, "ann")])
    assert seen == [True], "flushed after it was written"
    assert (store.folder / LOG).read_bytes() == before


def test_threads_of_one_process_lose_nothing(store):
    def add(judge):
        for number in range(20):
            store.append([Judgement("q", f"d{number}", 1, judge)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, ["ann", "bob", "cyd", "dan"]))
    assert len(store.current()) == len(JudgementStore(store.folder).current()) == 80


@pytest.mark.parametrize("moment", [1, 2, 13, 60])
def test_what_was_acknowledged_survives_kill_9(store, moment):
    process = appending(store.folder, "ann", 10_000)
    said = [process.stdout.readline() for _ in range(moment)]
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().splitlines()
    process.wait()
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    found = JudgementStore(store.folder).current().values()
    acknowledged = max(int(line) for line in said if line.strip())
    assert [each.docno for each in found][: acknowledged + 1] == [f"d{i}" for i in range(acknowledged + 1)]
    assert len(found) <= acknowledged + 2, "at most one more than was said"
    [new] = JudgementStore(store.folder).append([Judgement("after", "d", 1, "bob")])
    assert new in JudgementStore(store.folder).current().values()


def test_processes_that_append_at_once_lose_nothing(store):
    processes = [appending(store.folder, judge, 60) for judge in ("ann", "bob", "cyd")]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    store.refresh()
    expected = {(f"d{number}", judge) for number in range(60) for judge in ("ann", "bob", "cyd")}
    assert {(docno, judge) for _, docno, judge in store.current()} == expected
