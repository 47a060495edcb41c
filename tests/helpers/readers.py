"""Every reader of files from elsewhere, with small valid files; each refuses a broken one by `FormatError`.

Their results are thrown away. What must be read back the same is in `tests/faults/test_fuzz.py`.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from gr2.data.formats.cranfield import _records as cranfield_records
from gr2.data.formats.cranfield import source_documents
from gr2.data.formats.esci import _from_bulk, _rated
from gr2.data.formats.folder import _read_folds
from gr2.data.formats.lines import FormatError, refuse
from gr2.data.formats.medquad import _answers, _judgements
from gr2.data.formats.movies import _judged, _movie
from gr2.data.formats.natural_questions import read_natural_questions
from gr2.data.formats.records import (
    DocumentFile,
    read_grouped,
    read_pairs_of_texts,
    read_queries,
    read_texts,
    records,
)
from gr2.data.formats.trec import numbered_qrels, read_pairs, read_qrels, read_run, read_topics
from gr2.data.wikipedia import Dump, WikipediaConfig, read_article
from gr2.judge.click_log import read_tsv, read_ubi
from gr2.judge.imports import quepid_rows
from gr2.judge.judged_queries import JudgedQueries
from gr2.judge.judgements import Judgement
from gr2.judge.query_list import read_query_list
from gr2.judge.store import CONFIG, LOG, JudgeConfig, JudgementStore, read_config
from gr2.model.config import GR2Config
from gr2.store import MANIFEST, read_json, verify, write_manifest

NAMES = (
    "corpus.csv",
    "queries.csv",
    "qrels.csv",
    "columns.tsv",
    "run.csv",
    "pairs.txt",
    "pairs.csv",
    "texts.tsv",
    "questions.tsv",
    "grouped.tsv",
    "folds.json",
    "nq.jsonl",
    "cran.all",
    "cranqrel",
    "medquad.xml",
    "liveqa.txt",
    "esci.json",
    "products.jsonl",
    "movies.jsonl",
    "movies.csv",
    "dump.xml",
    "wikitext.txt",
    "clicks.tsv",
    "ubi.jsonl",
    "quepid.csv",
    "list.tsv",
    "list.csv",
    "topics.txt",
    "test.qrels",
    "judgements.jsonl",
    "config.json",
    "judged.jsonl",
    "manifest.json",
    "gr2.json",
)


@dataclass(frozen=True)
class Reader:
    """A format: the name of a file of it, valid ones, how one is read, and the error of a broken one."""

    name: str
    samples: tuple[bytes, ...]
    read: Callable[[Path], Any]
    error: type[Exception] = FormatError

    def __str__(self) -> str:
        return self.name


CSV = b'docno,title,text,url\r\nd1,"Cats, big",purr,http://x/1\r\nd2,"two\nlines",bark,\r\n'
QRELS_CSV = b"qid,docno,grade\nq1,d1,3\nq1,d2,0\nq2,d2,1\n"
PAIRS = b"q1 d1\nq2 d2\n"
TEXTS = b"d1\tcats purr\nd2\tdogs bark\n"
CLICKS = b"query\tdocno\tshown_at\tclicked\nsour fruit\td1\t1\t0\nsour fruit\td2\t2\t1\n"
UBI = (
    b'{"query_id": "a", "user_query": "sour", "query_response_hit_ids": ["d1", "d2"]}\n'
    b'{"index": {"_id": "1"}}\n'
    b'{"_source": {"action_name": "click", "query_id": "a", "event_attributes": '
    b'{"object": {"object_id": "d2"}, "position": {"ordinal": 2}}}}\n'
    b'{"action_name": "impression", "query_id": "a", "event_attributes": {"object": {"object_id": 7}, '
    b'"position": {"ordinal": 9}}}\n'
)
QUEPID = b"query,docid,rating\nsour fruit,d1,3\nsour fruit,d2,\nhot,d3,1.0\n"
BOOK = b"query,docid,ann,bob\nsour fruit,d1,3,2\n"
QUERY_LIST = b"query\tcount\nsour fruit\t12\nhot\t3\n"
FOLDS = b'{\n "0": ["q1"],\n "1": ["q2"]\n}\n'
NQ = (
    b'{"example_id": 1, "question_text": "what purrs", "document_url": "u", "document_text": '
    b'"Cats - Wikipedia <H1> Cats </H1> <P> A cat purrs . </P>"}\n'
)
CRANFIELD = b".I 1\n.T\nflow of air\n.A\nann\n.B\nj\n.W\nflow of air over wings\n.I 2\n.W\nheat\n"
CRANQREL = b"1 1 2\n1 2 -1\n2 1 4\n"
MEDQUAD = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Document id="0000001" source="NIH" url="http://x">'
    b'<Focus>Flu</Focus><QAPairs><QAPair pid="1"><Question qid="1-1">What is flu?</Question>'
    b"<Answer>A virus.</Answer></QAPair></QAPairs></Document>\n"
)
LIVEQA = b"1 2-Related NIH_0000001_Sec1.txt\n2 4-Excellent NIH_0000002_Sec2.txt\n"
RATED = (
    b'{"judgmentRatings": [{"query": "red shoes", "ratings": [{"docId": "B1", "rating": 100.0}, '
    b'{"docId": "B2", "rating": "0"}]}]}\n'
)
PRODUCTS = (
    b'{"index": {}}\n{"asin": "B1", "title": "Shoe <b>red</b>", "bullets": ["light"], "description": null, '
    b'"attrs": {"Brand": "X"}, "info": {"Colour": "red"}, "category": ["a", "b"]}\n'
)
MOVIES = b'{"id": 7, "title": "Up", "overview": "A house", "genres": ["a"], "cast": [{"name": "x"}]}\n'
MOVIE_QRELS = b"query_id,query,doc_id,grade\nqid:1,a house,7,1\nqid:2,cars,8,0\n"
DUMP = (
    b"<mediawiki><siteinfo><sitename>W</sitename><case>first-letter</case><namespaces>"
    b'<namespace key="0" /><namespace key="14">Category</namespace></namespaces></siteinfo>'
    b'<page><title>Apple</title><ns>0</ns><id>1</id><redirect title="Pear" /><revision><id>9</id>'
    b"<model>wikitext</model><text>An '''apple''' of [[Pear]].</text></revision></page>"
    b"<page><title>Talk:Apple</title><id>2</id><revision><text>Hm</text></revision></page></mediawiki>"
)
WIKITEXT = (
    b"An '''apple''' {{cite|a=[[b]]}} is a [[fruit|good fruit]] of the [[tree#uses]].<ref>x</ref>\n"
    b"== Uses ==\n{| class=x\n| a || b\n|}\n* [[Pear]]\n[[File:x.png|thumb|a [[plum]]]]\n"
    b"== See also ==\n* [[Pear]] <!-- no --> <nowiki>[[x]]</nowiki>\n"
)


def _cranfield(path: Path) -> Any:
    return list(cranfield_records(path))


def _article(path: Path) -> Any:
    page = list(Dump(_as_dump(path)))
    return [read_article(each, Dump(path).site, WikipediaConfig()) for each in page]


def _as_dump(path: Path) -> Path:
    """A dump with one page of any text, so that only the wikitext is broken."""
    text = path.read_bytes().decode("utf-8", "replace")
    text = "".join(sign for sign in text if sign.isprintable() or sign == "\n")
    target = path.with_suffix(".xml")
    page = f"<page><title>A</title><id>1</id><revision><text>{escape(text)}</text></revision></page>"
    target.write_text(f"<mediawiki>{page}</mediawiki>", encoding="utf-8")
    return target


def _log(path: Path) -> Any:
    """A folder of judgements with this log."""
    folder = path.parent / "judged"
    if not (folder / CONFIG).exists():
        JudgementStore(folder, JudgeConfig(grades=3))
    (folder / LOG).write_bytes(path.read_bytes())
    return JudgementStore(folder)


def _log_sample(place: Path) -> bytes:
    store = JudgementStore(place / "sample", JudgeConfig(grades=3))
    store.append([Judgement("sour fruit", f"d{number}", number % 3, "ann") for number in range(4)])
    store.undo("ann")
    return (store.folder / LOG).read_bytes()


def _config(path: Path) -> Any:
    folder = path.parent / "configured"
    folder.mkdir(exist_ok=True)
    (folder / LOG).touch()
    (folder / CONFIG).write_bytes(path.read_bytes())
    return read_config(folder)


def _verified(path: Path) -> None:
    folder = path.parent / "sealed"
    if not folder.exists():
        folder.mkdir()
        (folder / "a.txt").write_bytes(b"alpha")
    (folder / MANIFEST).write_bytes(path.read_bytes())
    verify(folder, "a.txt")


def _manifest_sample(place: Path) -> bytes:
    (place / "whole").mkdir()
    (place / "whole" / "a.txt").write_bytes(b"alpha")
    write_manifest(place / "whole")
    return (place / "whole" / MANIFEST).read_bytes()


def all_readers(place: Path) -> list[Reader]:
    """All of `NAMES`; `place` is a folder for making samples."""
    queries = {"q1": "", "q2": ""}
    judged = b'{"qid": "q1", "text": "sour", "grades": {"d1": 2}}\n'
    settings = b'{"kind": "judgements", "grades": 2, "words": ["no", "partly", "yes"]}\n'
    return [
        Reader("corpus.csv", (CSV,), lambda path: list(DocumentFile(path).numbered())),
        Reader("queries.csv", (b"qid,query\nq1,a cat\nq2,a dog\n",), lambda path: read_queries(path)),
        Reader("qrels.csv", (QRELS_CSV,), lambda path: list(numbered_qrels(path))),
        Reader("columns.tsv", (QRELS_CSV.replace(b",", b"\t"),), _named_qrels),
        Reader("run.csv", (b"qid,docno,score\nq1,d1,2.5\nq1,d2,1e-3\n",), read_run),
        Reader("pairs.txt", (PAIRS,), read_pairs),
        Reader("pairs.csv", (b"query-id,corpus-id\nq1,d1\n",), read_pairs),
        Reader("texts.tsv", (TEXTS,), read_texts),
        Reader("questions.tsv", (TEXTS, b"text\tquestion\na\tb\n"), read_pairs_of_texts),
        Reader("grouped.tsv", (TEXTS,), read_grouped),
        Reader("folds.json", (FOLDS,), lambda path: _read_folds(path, queries, refuse)),
        Reader("nq.jsonl", (NQ,), lambda path: read_natural_questions({"train": path})),
        Reader("cran.all", (CRANFIELD,), _cranfield),
        Reader("cranqrel", (CRANQREL,), source_documents),
        Reader("medquad.xml", (MEDQUAD,), lambda path: list(_answers(path))),
        Reader("liveqa.txt", (LIVEQA,), _judgements),
        Reader("esci.json", (RATED,), lambda path: list(_rated(path))),
        Reader("products.jsonl", (PRODUCTS,), lambda path: list(_from_bulk(path))),
        Reader(
            "movies.jsonl", (MOVIES,), lambda path: [_movie(path, line, row) for line, row in records(path)]
        ),
        Reader("movies.csv", (MOVIE_QRELS,), lambda path: _judged(path, {"7", "8"})),
        Reader("dump.xml", (DUMP,), lambda path: list(Dump(path))),
        Reader("wikitext.txt", (WIKITEXT,), _article),
        Reader("clicks.tsv", (CLICKS,), lambda path: read_tsv([path])),
        Reader("ubi.jsonl", (UBI,), lambda path: read_ubi([path])),
        Reader("quepid.csv", (QUEPID, BOOK), lambda path: list(quepid_rows(path, "ann"))),
        Reader("list.tsv", (QUERY_LIST, b"sour fruit\nhot\n"), read_query_list),
        Reader("list.csv", (QUERY_LIST.replace(b"\t", b","),), read_query_list),
        Reader("topics.txt", (b"<top>\n<num> 1\n<title> cats\n<desc> d\n</top>\n",), read_topics),
        Reader("test.qrels", (b"q1 0 d1 3\nq1 0 d2 0\n",), read_qrels),
        Reader("judgements.jsonl", (_log_sample(place),), _log, ValueError),
        Reader("config.json", (settings,), _config, ValueError),
        Reader("judged.jsonl", (judged * 2,), JudgedQueries.load, ValueError),
        Reader("manifest.json", (_manifest_sample(place),), _verified, ValueError),
        Reader("gr2.json", (_settings(),), lambda path: read_json(path, GR2Config), ValueError),
    ]


def _named_qrels(path: Path) -> Any:
    return list(numbered_qrels(path, columns={"qid": "qid", "docno": "docno", "grade": "grade"}))


def _settings() -> bytes:
    return json.dumps(asdict(GR2Config(normaliser="trie", max_tokens=64)), indent=1).encode()
