"""Public collections from small files in their publishers' forms; the real files are not needed."""

import gzip
import json
import re
from pathlib import Path

import pytest

from gr2.data.collection import Document
from gr2.data.formats import FormatError, read_folder
from gr2.data.prepare import DataMissing, prepare, recipes

PUBLIC = ("nfcorpus", "cranfield", "scifact", "medquad", "antique", "esci", "movies")


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def made(name: str, *source: Path, **changed: object):
    return prepare(name, recipes()[name] | changed, source=source)


def jsonl(*records: dict) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


# --- the recipes


def test_every_public_collection_has_files_an_address_and_a_fingerprint_to_compare_with():
    for name in PUBLIC:
        recipe = recipes()[name]
        assert re.search(r"https?://", recipe["obtain"])
        assert re.fullmatch("[0-9a-f]{32}", recipe["fingerprint"])
        assert re.fullmatch(r"[0-9,]+ documents, [0-9,]+ queries", recipe["counts"])
        assert all(re.fullmatch("[0-9a-f]{32}", found) for found in recipe.get("md5", {}).values())


def test_without_a_source_the_files_and_their_address_are_told():
    with pytest.raises(DataMissing) as caught:
        made("cranfield")
    message = str(caught.value)
    assert message.startswith("cranfield: name with --source the files")
    assert all(word in message for word in ("cran.all.1400", "cran.qry", "cranqrel", "cran.tar.gz"))
    assert message.endswith("MD5: cran.tar.gz 1730f7be572d95a5a4b56c59a7b900a5")


def test_files_are_found_in_folders_or_by_name_and_what_is_missing_is_named(tmp_path):
    lay(tmp_path, {f"in/deep/{name}": text for name, text in CRANFIELD.items() if name != "cran.qry"})
    with pytest.raises(DataMissing, match=rf"^cranfield: missing in {tmp_path}/in: cran.qry\n.*cran.tar.gz"):
        made("cranfield", tmp_path / "in", folds=2)
    lay(tmp_path, {"elsewhere/cran.qry": CRANFIELD["cran.qry"]})
    assert len(made("cranfield", tmp_path / "in", tmp_path / "elsewhere/cran.qry", folds=2).queries) == 3
    lay(tmp_path, {"in/cran.qry.gz": CRANFIELD["cran.qry"]})
    assert len(made("cranfield", tmp_path / "in", folds=2).queries) == 3
    with pytest.raises(ValueError, match="expected one file cran.qry, found .*elsewhere.*cran.qry.gz"):
        made("cranfield", tmp_path, folds=2)


# --- Cranfield

CRANFIELD = {
    "cran.all.1400": """.I 1
.T
wings in
a wind .
.A
smith,j.
.B
j. wings 3, 1958, 4.
.W
wings in
a wind .
  wings bend .
.5 of them break .
.I 2
.T
.A
.B
.W
.I 3
.T
flat plates .
.W
plates that are flat .
""",
    "cran.qry": ".I 001\n.W\nwhy do wings\nbend .\n.I 004\n.W\nwhat is flat .\n.I 9\n.W\nplates .\n",
    "cranqrel": "1 1 1 \n1 3  4\n1 2 -1\n2 3 2\n3 3 3\n3 1 5\n",
}


def test_cranfield(tmp_path):
    found = made("cranfield", lay(tmp_path, CRANFIELD), folds=2)
    assert list(found.documents) == [
        Document("1", "wings in a wind .", "wings bend . .5 of them break ."),
        Document("2", "", ""),
        Document("3", "flat plates .", "plates that are flat ."),
    ]
    assert found.queries == {"1": "why do wings bend .", "2": "what is flat .", "3": "plates ."}
    assert found.split("test") == {"1": {"1": 4, "3": 1, "2": 0}, "2": {"3": 3}, "3": {"3": 2, "1": 0}}
    assert found.folds == (("1", "3"), ("2",)), "in the order of the MD5 of their names: c4, c8, ec"


@pytest.mark.parametrize(
    ("name", "content", "line", "words"),
    [
        ("cranqrel", "1 1 1\n1 2 7\n", 2, "a code of 1 to 5"),
        ("cranqrel", "1 0 1 1\n", 1, "question document code"),
        ("cran.qry", "why\n.I 1\n", 1, "expected .I or one of"),
        ("cran.qry", ".I\n.W\nx\n", 1, "a number after .I"),
        ("cran.qry", "", 0, "records that begin with .I"),
    ],
)
def test_broken_cranfield_files_are_refused_with_their_line(tmp_path, name, content, line, words):
    lay(tmp_path, CRANFIELD | {name: content})
    place = f"{tmp_path / name}:{line}: " if line else f"{tmp_path / name}: "
    with pytest.raises(FormatError, match=f"^{re.escape(place)}.*{words}"):
        made("cranfield", tmp_path, folds=2)


def test_cranfields_source_documents_go_into_the_folder(gr2, tmp_path):
    lay(tmp_path / "in", CRANFIELD | {"cran.qry": CRANFIELD["cran.qry"] + ".I 10\n.W\na\n.I 11\n.W\nb\n"})
    with (tmp_path / "in" / "cranqrel").open("a") as qrels:
        qrels.write("4 1 1\n5 3 1\n")
    out = gr2("collection", "prepare", "cranfield", "--source", tmp_path / "in", "--out", tmp_path / "cran")
    assert (tmp_path / "cran" / "source_docs.tsv").read_text() == "query-id\tcorpus-id\n1\t2\n"
    assert len(read_folder(tmp_path / "cran").folds) == 5
    assert "note: the documentation's tables were measured on another version (1,400 documents" in out


def test_the_collection_of_the_tables_is_recognised(gr2, tmp_path, monkeypatch):
    lay(tmp_path, CRANFIELD)
    found = made("cranfield", tmp_path, folds=2)
    mine = {"cranfield": recipes()["cranfield"] | {"folds": 2, "fingerprint": found.fingerprint}}
    monkeypatch.setattr("gr2.data.prepare.recipes", lambda: mine)
    out = gr2("collection", "prepare", "cranfield", "--source", tmp_path, "--out", tmp_path / "out")
    assert "the fingerprints are equal" in out


# --- NFCorpus and SciFact


def test_nfcorpus(tmp_path):
    files = {
        "nf/dev.docs": "M1\tmilk  bone\nM2\tegg\n",
        "nf/test.docs": "M2\tegg\nM3\ttea\n",
        "nf/train.titles.queries": "P1\tmilk ?\nP9\tgone\n",
        "nf/dev.titles.queries": "P2\teggs\n",
        "nf/test.titles.queries": "P3\tis tea good\nP4\ttea\n",
        "nf/train.3-2-1.qrel": "P1 0 M1 3\nP9 0 unknown 2\n",
        "nf/dev.3-2-1.qrel": "P2 0 M2 2\n",
        "nf/test.3-2-1.qrel": "P3\t0\tM3\t1\nP3 0 unknown 3\nP4 0 M3 3\n",
        "beir/queries.jsonl": jsonl({"_id": "P3", "text": "Is tea good?"}, {"_id": "P1", "text": "Milk?"}),
        "beir/qrels/test.tsv": "query-id\tcorpus-id\tscore\nP3\tM3\t2\n",
        "beir/qrels/train.tsv": "query-id\tcorpus-id\tscore\nP1\tM1\t1\n",
    }
    found = made("nfcorpus", lay(tmp_path, files))
    texts = {"M1": "milk bone", "M2": "egg", "M3": "tea"}
    assert list(found.documents) == [Document(docno, "", text) for docno, text in texts.items()]
    assert found.queries == {"P1": "milk ?", "P2": "eggs", "P3": "Is tea good?", "P4": "tea"}
    assert found.qrels == {
        "train": {"P1": {"M1": 3}},
        "dev": {"P2": {"M2": 2}},
        "test": {"P3": {"M3": 1}, "P4": {"M3": 3}},
        "test_beir": {"P3": {"M3": 2}},
    }


def test_a_text_without_a_key_is_refused(tmp_path):
    from gr2.data.formats.records import read_texts

    path = lay(tmp_path, {"dev.docs": "M1\tmilk\nno tab here\n"}) / "dev.docs"
    with pytest.raises(FormatError, match=r"dev.docs:2: expected a key, a tab and a text"):
        read_texts(path)
    lay(tmp_path, {"dev.docs": "M1\tmilk\nM1\tmilk\n"})
    with pytest.raises(FormatError, match=r"dev.docs:2: 'M1' occurs twice"):
        read_texts(path)


def test_scifact(tmp_path):
    files = {
        "corpus.jsonl": jsonl({"_id": "1", "title": "Cells", "text": "divide"}),
        "queries.jsonl": jsonl({"_id": "7", "text": "Cells divide."}, {"_id": "8", "text": "Cells rest."}),
        "qrels/train.tsv": "query-id\tcorpus-id\tscore\n7\t1\t1\n",
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\n8\t1\t1\n",
    }
    found = made("scifact", lay(tmp_path, files))
    assert found.name == "scifact"
    assert found.qrels == {"train": {"7": {"1": 1}}, "test": {"8": {"1": 1}}}


# --- MedQuAD


def page(source: str, number: str, focus: str, answers: dict[str, str]) -> str:
    pairs = "".join(
        f'<QAPair pid="{pid}"><Question qid="{number}-{pid}" qtype="x">What about {pid} ?</Question>'
        f"<Answer>{text}</Answer></QAPair>"
        for pid, text in answers.items()
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return (
        f'{head}<Document id="{number}" source="{source}" url="http://x/{number}">'
        f"<Focus>{focus}</Focus><QAPairs>{pairs}</QAPairs></Document>\n"
    )


MEDQUAD = {
    "1_CancerGov_QA/0000001_1.xml": page(
        "CancerGov", "0000001_1", "Lung &amp; rib", {"1": "a\n  - b", "2": "c"}
    ),
    "2_GARD_QA/0000005.xml": page("GARD", "0000005", "Rare", {"1": "rare one", "3": "rare three", "4": ""}),
    "2_GARD_QA/0000006.xml": page("GARD", "0000006", "Rarer", {"1": "not judged"}),
    "All-qrels_LiveQAMed2017-TestQuestions_2479_Judged-Answers.txt": "1 4-Excellent GARD_0000005_Sec3.txt\n"
    "1 1-Incorrect CancerGov_0000001_1_Sec2.txt\n1 3-Incomplete ADAM_0000001_Sec1.txt\n"
    "2 1-Incorrect CancerGov_0000001_1_Sec2.txt\n10 2-Related CancerGov_0000001_1_Sec1.txt\n",
    "TREC-2017-LiveQA-Medical-Test-Questions-w-summaries.xml": "<Set>"
    + "".join(
        f'<NLM-QUESTION qid="TQ{n}"><NIST-PARAPHRASE>no</NIST-PARAPHRASE>'
        f"<NLM-Summary>Is it  {n}?</NLM-Summary></NLM-QUESTION>"
        for n in (1, 2, 10)
    )
    + "</Set>",
}
LUNG, RARE = "CancerGov_0000001_1_Sec", "GARD_0000005_Sec"


def test_medquad(tmp_path):
    found = made("medquad", lay(tmp_path, MEDQUAD))
    assert list(found.documents) == [
        Document(f"{LUNG}1", "Lung & rib", "a - b", "http://x/0000001_1"),
        Document(f"{LUNG}2", "Lung & rib", "c", "http://x/0000001_1"),
        Document(f"{RARE}1", "Rare", "rare one", "http://x/0000005"),
        Document(f"{RARE}3", "Rare", "rare three", "http://x/0000005"),
    ]
    assert found.split("test") == {"LQ1": {f"{RARE}3": 3, f"{LUNG}2": 0}, "LQ10": {f"{LUNG}1": 1}}
    assert found.split("train")[f"T{LUNG}2"] == {f"{LUNG}2": 3, f"{LUNG}1": 1}
    assert len(found.split("train")) == 4
    assert found.queries["LQ10"] == "Is it 10?"
    assert found.queries[f"T{RARE}3"] == "What about 3 ?"


def test_a_long_page_gives_each_question_twenty_other_answers(tmp_path):
    answers = {str(number): f"answer {number}" for number in range(1, 31)}
    name = "1_CancerGov_QA/0000001_1.xml"
    found = made("medquad", lay(tmp_path, MEDQUAD | {name: page("CancerGov", "0000001_1", "Long", answers)}))
    others = set(found.split("train")[f"T{LUNG}9"]) - {f"{LUNG}9"}
    assert others == {f"{LUNG}{number}" for number in sorted(answers)[:20]}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "1_CancerGov_QA/0000001_1.xml",
            "<Document>\n<Focus></Document>",
            ":2: expected XML: mismatched tag",
        ),
        (list(MEDQUAD)[3], "1 4-Excellent\n", ":1: expected question, judgement"),
        (list(MEDQUAD)[3], "1 9-Odd GARD_0000005_Sec3.txt\n", ":1: expected question, judgement"),
        (list(MEDQUAD)[4], "<Set></Set>", ": has no question 1, which is judged"),
    ],
)
def test_broken_medquad_files_are_refused(tmp_path, name, content, words):
    lay(tmp_path, MEDQUAD | {name: content})
    with pytest.raises(FormatError, match=f"^{re.escape(str(tmp_path / name) + words)}"):
        made("medquad", tmp_path)


# --- ANTIQUE

ANTIQUE = {
    "antique-collection.txt": "5_0\tyes\n5_1\tno   way\n6_0\tmaybe\n9_0\tof another question\n",
    "antique-train-queries.txt": "5\tdoes it rain ?\n9\tnot among ours\n",
    "antique-test-queries.txt": "6\twhy ?\n",
    "antique-train.qrel": "5 U0 5_0 4\n5 Q0 5_1 1\n9 U0 9_0 3\n",
    "antique-test.qrel": "6 Q0 6_0 2\n6 Q0 5_1 1\n",
}


def test_antique(tmp_path):
    found = made("antique", lay(tmp_path, ANTIQUE), train="5")
    assert [tuple(document[::2]) for document in found.documents] == [
        ("5_0", "yes"),
        ("5_1", "no way"),
        ("6_0", "maybe"),
    ]
    assert found.queries == {"5": "does it rain ?", "6": "why ?"}
    assert found.qrels == {"train": {"5": {"5_0": 3, "5_1": 0}}, "test": {"6": {"6_0": 1, "5_1": 0}}}
    with pytest.raises(FormatError, match="antique-train.qrel: expected judgements of the question '7'"):
        made("antique", tmp_path, train="5 7")


def test_antiques_training_questions_are_three_hundred():
    assert len(set(recipes()["antique"]["train"].split())) == 300


# --- ESCI

RATINGS = {
    "judgmentRatings": [
        {
            "query": "tea  pot",
            "ratings": [{"docId": "A", "rating": "100.000"}, {"docId": "B", "rating": "1.0"}],
        },
        {
            "query": "cup",
            "ratings": [{"docId": "B", "rating": "10.000"}, {"docId": "gone", "rating": "100.0"}],
        },
        {"query": "mug", "ratings": [{"docId": "A", "rating": "0.000"}]},
    ]
}
POT = {
    "asin": "A",
    "title": "Pot",
    "bullets": ["Holds tea.", "<b>Blue</b>"],
    "description": "A pot",
    "info": {},
}
POT |= {"attrs": {"Brand": "Acme", "Color": "Blue"}, "category": ["Kitchen", "Tea"]}
CUP = {"asin": "B", "title": " A cup ", "bullets": None, "description": None}
BULK = [
    {"index": {"_id": "A"}},
    POT,
    {"index": {"_id": "B"}},
    CUP,
    {"create": {}},
    {"asin": "C", "title": "x"},
]
PRODUCTS = "product_id,product_locale,product_title,product_bullet_point,product_description,"
PRODUCTS += "product_brand,product_color\n"
PRODUCTS += "C,us,not judged,,,,\n"
PRODUCTS += 'A,us,Pot,"Holds tea.\nBlue",A pot,Acme,Blue\nA,jp,another,,,,\nB,us,A cup,,,,\n'


@pytest.mark.parametrize("kind", ["bulk", "table"])
def test_esci(tmp_path, kind):
    files = {"esci_us_judgments.json": json.dumps(RATINGS)}
    if kind == "bulk":
        files["esci_us_ecommerce_shrunk.ndjson"] = jsonl(*BULK)
    else:
        files["shopping_queries_dataset_products.csv"] = PRODUCTS
    found = made("esci", lay(tmp_path, files), train=1)
    category = " Kitchen / Tea" if kind == "bulk" else ""
    assert list(found.documents) == [
        Document("A", "Pot", f"Holds tea. Blue A pot Acme Blue{category}"),
        Document("B", "A cup", ""),
        *([Document("C", "x", "")] if kind == "bulk" else []),
    ]
    assert found.queries == {"e1": "tea pot", "e2": "cup", "e3": "mug"}
    judged = {"e1": {"A": 3, "B": 1}, "e2": {"B": 2}, "e3": {"A": 0}}
    assert found.qrels == {"train": {"e1": judged["e1"]}, "test": {"e2": judged["e2"], "e3": judged["e3"]}}


def test_broken_esci_files_are_refused(tmp_path):
    names = ("esci_us_judgments.json", "esci_us_ecommerce_shrunk.ndjson")
    odd = json.dumps({"judgmentRatings": [{"query": "x", "ratings": [{"docId": "A", "rating": "7"}]}]})
    lay(tmp_path, {names[0]: odd, names[1]: jsonl(*BULK)})
    with pytest.raises(FormatError, match="judgments.json: expected judgmentRatings"):
        made("esci", tmp_path)
    lay(tmp_path, {names[0]: json.dumps(RATINGS), names[1]: jsonl(POT, {"title": "no asin"})})
    with pytest.raises(FormatError, match=r"shrunk.ndjson:2: expected a product"):
        made("esci", tmp_path)


# --- movies


def test_movies(tmp_path):
    films = [
        {"id": 11, "title": "Rain", "overview": "It rains.", "genres": ["drama"], "tags": [], "year": 1990},
        {"id": "12", "title": "Sun", "overview": "", "actors": [f"a{n}" for n in range(12)], "director": "D"},
    ]
    rows = "".join(
        f"qid:{qid}\tquery {qid}\t{docno}\t{grade}\n"
        for qid, docno, grade in [
            *[(qid, "11", 1) for qid in range(4)],
            *[(qid, "12", qid // 3) for qid in range(4)],
            (4, "12", 1),
            (5, "12", 0),
            (6, "unknown", 1),
        ]
    )
    files = {
        "movies-corpus.jsonl.gz": jsonl(*films),
        "movies-judgments.tsv.gz": f"query_id\tquery\tdoc_id\tgrade\n{rows}",
    }
    found = made("movies", lay(tmp_path, files), held_out=1)
    assert list(found.documents) == [
        Document("11", "Rain", "It rains. Genres: drama. Year: 1990."),
        Document("12", "Sun", "Director: D. Cast: a0, a1, a2, a3, a4, a5, a6, a7, a8, a9."),
    ]
    assert found.queries == {str(n): f"query {n}" for n in range(5)}
    (test,), (dev,) = found.split("test"), found.split("dev")
    assert (test, dev) == ("4", "0"), "the first by the hash of their names"
    assert found.split("test")[test] == {"12": 1}
    assert found.split("dev")[dev] == {"11": 1, "12": 0}
    assert found.split("train") == {"1": {"11": 1}, "2": {"11": 1}, "3": {"11": 1, "12": 1}}
    assert found.split("train_disjoint") == {"1": {"11": 1}, "2": {"11": 1}}
    lay(tmp_path, {"movies-judgments.tsv.gz": "query_id\tquery\tdoc_id\tgrade\nqid:1\tq\t11\t2\n"})
    with pytest.raises(FormatError, match=r"judgments.tsv.gz:2: expected a grade of 0 or 1, found '2'"):
        made("movies", tmp_path)
