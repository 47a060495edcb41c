"""The embedded collection: what has which name, what is left out, and whether the judgements hold."""

import csv
import json
import logging
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import gr2.data.pydocs
from gr2.data.collection import Collection
from gr2.data.pydocs import SPLITS, judgements, missing_judgements, pydocs
from gr2.data.pydocs.sentences import CAP, LEAST_WORDS, Entry, first_sentence, sentences

FOLDER = Path(gr2.data.pydocs.__file__).parent

# Of every kind: pure Python, built in, extension, exported from a private module or a submodule, lazy, bound
# to an instance's method, hidden C types, C methods of Python classes, exceptions.
KNOWN = """
heapq.merge json.loads textwrap.dedent pathlib.Path.glob subprocess.run argparse.ArgumentParser.add_argument
len str.split dict.get list.sort int.to_bytes FileNotFoundError BaseException.add_note property open OSError
math.sqrt itertools.chain.from_iterable time.monotonic zlib.compress select.select unicodedata.normalize
collections.deque collections.deque.appendleft collections.abc.Mapping os.stat os.path.join os.path.splitext
asyncio.gather asyncio.TaskGroup asyncio.run unittest.TestCase.assertEqual sqlite3.connect
concurrent.futures.ThreadPoolExecutor hashlib.sha256 hashlib hashlib.pbkdf2_hmac sqlite3.Connection.execute
random.randint random.choice secrets.choice calendar.TextCalendar.formatmonth threading.Lock threading.local
re.Pattern.sub re.Match.group types.GeneratorType.send io.IOBase.readline io.BytesIO socket.socket.connect
datetime.datetime.strptime datetime.date.strftime datetime.datetime.astimezone decimal.Decimal.quantize
multiprocessing.Pool multiprocessing.Process.start signal.signal pickle.dumps struct struct.pack
gc.collect getpass.getpass functools.wraps typing.Optional enum.Enum xml.etree.ElementTree.Element.find
""".split()

NOT_NAMES = """
contextlib.wraps asyncio.tasks.gather builtins.len posixpath.join os.Mapping IOError socket.error
concurrent.futures.thread.ThreadPoolExecutor _collections.deque collections.Mapping random.Random.randint
""".split()


@pytest.fixture(scope="session")
def python() -> Collection:
    return pydocs()


def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


def test_objects_have_the_names_that_users_know(python: Collection) -> None:
    assert [name for name in KNOWN if name not in python.docnos] == []
    assert [name for name in NOT_NAMES if name in python.docnos] == []


def test_nothing_private_twice_or_without_a_text(python: Collection) -> None:
    documents = list(python.documents)
    assert 5_000 < len(documents) < 8_000
    assert len({document.docno for document in documents}) == len(documents)
    for document in documents:
        assert not any(part.startswith("_") for part in document.docno.split(".")), document.docno
        assert document.text.strip() and document.title.startswith(document.docno), document.docno
        assert document.title.isprintable(), document.docno
    tops = {document.docno.partition(".")[0] for document in documents}
    assert not tops & {
        "test",
        "idlelib",
        "lib2to3",
        "turtledemo",
        "antigravity",
        "this",
        "ensurepip",
        "encodings",
    }
    assert not any(".tests." in document.docno or ".test." in document.docno for document in documents)


def test_titles_are_signatures_as_users_write_them(python: Collection) -> None:
    documents = {document.docno: document for document in python.documents}
    assert documents["heapq.merge"].title == "heapq.merge(*iterables, key=None, reverse=False)"
    assert documents["str.split"].title == "str.split(sep=None, maxsplit=-1)"
    assert (
        documents["subprocess.Popen.communicate"].title
        == "subprocess.Popen.communicate(input=None, timeout=None)"
    )
    assert documents["collections.Counter.most_common"].title == "collections.Counter.most_common(n=None)"
    assert documents["json"].title == "json"
    assert documents["heapq.merge"].text.startswith(
        "Merge multiple sorted inputs into a single sorted output."
    )


PROBE = """
import hashlib, json, sys
import gr2.data.pydocs
list(gr2.data.pydocs.judgements())
before = set(sys.modules)
collection = gr2.data.pydocs.pydocs()
new = sorted(set(sys.modules) - before)
new = [name for name in new if str(getattr(sys.modules[name], "__file__", "")).endswith(".py")]
everything = repr([collection.documents, collection.queries, collection.qrels])
order = hashlib.sha256(everything.encode()).hexdigest()
print(json.dumps([collection.fingerprint, order, new]))
"""


def test_the_same_bytes_in_any_process_and_nothing_imported() -> None:
    seen = []
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(FOLDER.parents[2])}
        done = subprocess.run(
            [sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        seen.append(json.loads(done.stdout))
    assert seen[0] == seen[1]
    assert set(seen[0][2]) <= {"numbers", "_compat_pickle"}  # what _decimal and _pickle import by themselves


def test_tables_are_well_formed() -> None:
    for name, header in (
        ("queries.tsv", ["qid", "split", "query"]),
        ("qrels.tsv", ["qid", "docno", "grade"]),
        ("earlier.tsv", ["qid", "docno", "grade"]),
    ):
        rows = list(csv.reader((FOLDER / name).read_text(encoding="utf-8").splitlines(), delimiter="\t"))
        assert rows[0] == header
        assert all(len(row) == 3 and all(cell == cell.strip() != "" for cell in row) for row in rows)
        keys = [row[0] if name == "queries.tsv" else tuple(row[:2]) for row in rows]
        assert len(set(keys)) == len(keys)
    qids = [qid for qid, *_ in judgements()]
    judged = {line.split("\t")[0] for line in (FOLDER / "qrels.tsv").read_text().splitlines()[1:]}
    assert set(qids) == judged and all(re.fullmatch(r"py\d{3}", qid) for qid in qids)


def test_enough_judgements_in_every_split() -> None:
    rows = list(judgements())
    assert len(rows) >= 400
    assert sum(len(grades) for *_, grades in rows) / len(rows) >= 4.5
    assert all(max(grades.values()) >= 3 and set(grades.values()) <= {1, 2, 3, 4} for *_, grades in rows)
    splits = Counter(split for _, split, _, _ in rows)
    assert splits.keys() == {"train", "dev", "test"} and splits["train"] >= 200
    assert splits["dev"] == 80 and splits["test"] == 120
    queries = [query.lower() for _, _, query, _ in rows]
    assert len(set(queries)) == len(queries)


def test_no_question_is_a_near_copy_of_another() -> None:
    asked = [(qid, words(query)) for qid, _, query, _ in judgements()]
    for place, (qid, one) in enumerate(asked):
        for other, two in asked[:place]:
            assert len(one & two) < 0.8 * len(one | two), (qid, other)


def test_the_earlier_judgements_are_of_test_questions_and_kept_as_they_were(python: Collection) -> None:
    earlier, test = python.split("earlier"), python.split("test")
    assert len(earlier) == 107 and earlier.keys() <= test.keys()
    assert {grade for row in earlier.values() for grade in row.values()} == {1, 2, 3}
    assert earlier["py002"] != test["py002"] and earlier["py002"]["heapq.nlargest"] == 3


def test_judged_names_are_there_or_dropped(python: Collection) -> None:
    missing = missing_judgements(python)
    if sys.version_info[:2] == (3, 11) and sys.platform == "linux":
        assert missing == []
    kept = {
        (qid, docno)
        for split in ("train", "dev", "test")
        for qid, row in python.split(split).items()
        for docno in row
    }
    assert kept.isdisjoint(missing)
    assert all(docno in python.docnos for _, docno in kept)
    assert python.grades == 4 and set(python.qrels) == {*SPLITS, "sentences"}


def test_a_name_that_this_python_lacks_is_logged_and_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [("q1", "dev", "one", {"len": 3, "gone.name": 2}), ("q2", "test", "two", {"gone.too": 3})]
    monkeypatch.setattr(gr2.data.pydocs, "judgements", lambda: iter(rows))
    with caplog.at_level(logging.INFO, logger="gr2.data.pydocs"):
        queries, qrels = gr2.data.pydocs._judgements({"len"})
    assert queries == {"q1": "one"}
    assert qrels == {"train": {}, "dev": {"q1": {"len": 3}}, "test": {}, "earlier": {}}
    assert "gone.name" in caplog.text and "gone.too" in caplog.text


def test_no_query_is_a_near_copy_of_a_docstring(python: Collection) -> None:
    sentences = [(d.docno, words(first_sentence(d.text, ""))) for d in python.documents]
    for qid, _, query, _ in judgements():
        asked = words(query)
        for docno, sentence in sentences:
            assert len(asked & sentence) < 0.7 * len(asked | sentence), (qid, query, docno)


def test_half_of_the_queries_use_other_words_than_their_answers(python: Collection) -> None:
    texts = {document.docno: words(document.contents) for document in python.documents}
    shares = []
    for _, _, query, grades in judgements():
        asked = words(query)
        top = max(grades.values())
        best = [texts[docno] for docno, grade in grades.items() if grade == top and docno in texts]
        shares.append(max((len(asked & text) / len(asked) for text in best), default=0.0))
    assert sum(share < 0.5 for share in shares) >= 0.4 * len(shares)


def test_sentences_do_not_tell_their_own_name(python: Collection) -> None:
    found = python.split("sentences")
    assert len(found) > 4_000
    for qid, judged in found.items():
        docno, query = qid.removeprefix("sentence:"), python.queries[qid]
        assert judged[docno] == 4 and len(query.split()) >= LEAST_WORDS
        assert docno not in re.findall(r"[\w.]*\w", query)
        assert max(Counter(judged.values()).values()) <= CAP and judged.keys() <= python.docnos.keys()
    assert found["sentence:heapq.merge"]["itertools.chain"] == 3
    assert (
        python.queries["sentence:heapq.merge"] == "Merge multiple sorted inputs into a single sorted output"
    )


def test_grades_of_sentences_follow_the_rule_in_any_order() -> None:
    entries = [
        Entry("m", "All that is in here.", "m", ""),
        Entry("m.C", "A class that does many things.", "m", ""),
        Entry("m.C.go", "Go to the place that stop() names. See other.far too.", "m", "m.C"),
        Entry("m.C.stop", "Stop.", "m", "m.C"),
        Entry("m.C.wait", "Wait.", "m", "m.C"),
        Entry("m.f", "Too short.", "m", ""),
        Entry("other.far", "Something far away from here.", "other", ""),
    ]
    queries, qrels = sentences(entries)
    assert queries["sentence:m.C.go"] == "Go to the place that stop() names"
    assert qrels["sentence:m.C.go"] == {
        "m.C.go": 4,
        "m.C.stop": 3,
        "other.far": 3,
        "m.C.wait": 2,
        "m": 1,
        "m.C": 1,
        "m.f": 1,
    }
    assert qrels["sentence:m.C"] == {"m.C": 4, "m.C.go": 2, "m.C.stop": 2, "m.C.wait": 2, "m": 1, "m.f": 1}
    assert set(queries) == {"sentence:m", "sentence:m.C", "sentence:m.C.go", "sentence:other.far"}
    assert sentences(reversed(entries)) == (queries, qrels)


SAMPLE = {
    "__init__.py": '''
        """A sample."""
        from functools import wraps
        from ._core import alpha, beta
        from .shapes import Circle
        __all__ = ["alpha", "Lazy", "never_defined"] + ["Circle"]
        def __getattr__(name):
            from .later import Lazy
            return Lazy
        raise RuntimeError("this package must not be imported")
    ''',
    "_core.py": '''
        """Private."""
        def alpha(a: int, /, b: str = "x", *rest: int, key=None, **more) -> int:
            """Alpha does one thing."""
        def beta():
            """Beta is not in the list."""
        def never_exported():
            """Private by its module."""
        class _Base:
            def area(self):
                """How large it is."""
    ''',
    "shapes.py": '''
        from ._core import _Base
        class Circle(_Base):
            """A round shape."""
            def __init__(self, radius=1.0): ...
            @property
            def diameter(self):
                """Twice the radius."""
            @diameter.setter
            def diameter(self, value):
                """Not a document of its own."""
            @staticmethod
            def unit(scale):
                """The circle of radius one."""
            @classmethod
            def parse(cls, text):
                """Read it."""
            def undocumented(self): ...
            def _private(self):
                """Hidden."""
        class Square:
            def __init__(self, side):
                """Make a square of a side."""
    ''',
    "later.py": '''
        class Lazy:
            """Bound when it is asked for."""
    ''',
    "loose/__init__.py": """
        from functools import wraps
        from .._core import beta
        from .inner import gamma
    """,
    "loose/inner.py": '''
        def gamma():
            """Gamma(x) comes from a submodule."""
    ''',
    "broken.py": "def (",
    "latin.py": "name = '\xe9'  # no coding line\n",
    "tests/test_shapes.py": '"""Tests document nothing."""',
    "__main__.py": '"""Neither does this."""',
}


def test_names_that_a_package_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, text in SAMPLE.items():
        path = tmp_path / "gr2_sample" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = text.splitlines() if name != "latin.py" else [text]
        path.write_text("\n".join(line.removeprefix("        ") for line in lines), encoding="latin-1")
    monkeypatch.syspath_prepend(tmp_path)
    collection = pydocs("gr2_sample")
    titles = {document.docno: document.title for document in collection.documents}
    assert titles == {
        "gr2_sample": "gr2_sample",
        "gr2_sample.alpha": "gr2_sample.alpha(a, /, b='x', *rest, key=None, **more)",
        "gr2_sample.Circle": "gr2_sample.Circle(radius=1.0)",
        "gr2_sample.Circle.area": "gr2_sample.Circle.area()",
        "gr2_sample.Circle.diameter": "gr2_sample.Circle.diameter",
        "gr2_sample.Circle.parse": "gr2_sample.Circle.parse(text)",
        "gr2_sample.Circle.unit": "gr2_sample.Circle.unit(scale)",
        "gr2_sample.Lazy": "gr2_sample.Lazy",
        "gr2_sample.loose.beta": "gr2_sample.loose.beta()",
        "gr2_sample.loose.gamma": "gr2_sample.loose.gamma()",
        "gr2_sample.shapes.Square": "gr2_sample.shapes.Square(side)",
    }
    assert set(collection.qrels) == {"sentences"} and collection.name == "pydocs:gr2_sample"
    assert "gr2_sample" not in sys.modules
    assert "broken.py" in caplog.text and "latin.py" in caplog.text


def test_a_large_installed_package() -> None:
    collection = pydocs("numpy")
    assert {
        "numpy",
        "numpy.linalg.norm",
        "numpy.concatenate",
        "numpy.ma.MaskedArray",
    } <= collection.docnos.keys()
    assert all(docno.startswith("numpy") for docno in collection.docnos)
    assert len(collection.docnos) > 800 and len(collection.split("sentences")) > 800


@pytest.mark.parametrize("name", ["no_such_package_at_all", "math", "numpy.linalg", "../numpy", "__main__"])
def test_a_package_that_cannot_be_read_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"pydocs:{name}")):
        pydocs(name)


@pytest.mark.slow
def test_a_very_large_package_is_read_too() -> None:
    collection = pydocs("torch")
    assert {"torch.nn.Linear", "torch.nn.Linear.forward", "torch.optim.AdamW"} & collection.docnos.keys()
    assert len(collection.docnos) > 3_000
