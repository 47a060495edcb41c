"""Known figures on real collections; skipped where these are not at hand.

They are looked for in $GR2_DATA, else in `../shared/data` beside the checkout: BEIR folders of nfcorpus,
cranfield, medquad-nih, scifact, antique, esci and movies.
"""

import json
from collections import Counter
from html import escape
from pathlib import Path

import pytest
from helpers.paths import DATA

from gr2.bm25 import BM25, BM25Config
from gr2.data.formats import read_folder
from gr2.data.formats.trec import read_pairs
from gr2.data.prepare import left_out, prepare, recipes
from gr2.evaluate.leaks import Leaks
from gr2.evaluate.measures import Convention, evaluate

LINEAR = Convention(gain="linear")

# nDCG@10 and nDCG@20, linear gain, of BM25 (lucene, k1 .9, b .4, English stemmer)
FIGURES = {
    ("nfcorpus", "test_beir"): (0.327, 0.300),
    ("cranfield", "test"): (0.343, 0.378),
    ("medquad-nih", "test"): (0.345, 0.395),
    ("scifact", "test"): (0.676, 0.688),
}


def real(name: str) -> Path:
    if not (DATA / name).is_dir():
        pytest.skip(f"the collection {name} is not at hand (looked in {DATA})")
    return DATA / name


@pytest.mark.parametrize(("name", "split"), FIGURES)
def test_bm25_gives_the_known_figures(name, split):
    collection = read_folder(real(name))
    index = BM25.index(collection.documents, BM25Config(k1=0.9, b=0.4))
    run = index.search({qid: collection.queries[qid] for qid in collection.split(split)}, k=100)
    means = evaluate(run, collection.split(split), ["nDCG@10", "nDCG@20"], LINEAR).means
    assert tuple(means.values()) == pytest.approx(FIGURES[name, split], abs=0.0006)


def test_scifacts_leaks():
    leaks = Leaks(read_folder(real("scifact")))
    assert len(leaks.near_twins) / 300 == pytest.approx(0.39, abs=0.01)
    assert Counter(leaks.train_overlap.values())["none"] == 104


def test_nfcorpus_popularity():
    popular, _ = Leaks(read_folder(real("nfcorpus"))).controls(("P@20",))
    assert popular.means["P@20"] == pytest.approx(0.37, abs=0.005)


def test_cranfields_published_folds_cover_its_queries():
    collection = read_folder(real("cranfield"))
    assert sorted(qid for fold in collection.folds for qid in fold) == sorted(collection.split("test"))
    assert len(collection.fold(0).split("train")) == 180


# The real collections, written in their publishers' forms and prepared again: splits, folds, grades and the
# choice of documents are those of the recipes. The publishers' own files may still differ in their texts.


def cranfield_files(found, out):
    def records(rows):
        return "".join(f".I {key}\n.T\n{title}\n.W\n{title}\n{text}\n" for key, title, text in rows)

    (out / "cran.all.1400").write_text(records(document[:3] for document in found.documents))
    (out / "cran.qry").write_text("".join(f".I 0\n.W\n{text}\n" for text in found.queries.values()))
    codes = {qid: {docno: 5 - g for docno, g in row.items()} for qid, row in found.split("test").items()}
    rows = [
        f"{qid} {docno} {-1 if code == 5 else code}"
        for qid, row in codes.items()
        for docno, code in row.items()
    ]
    (out / "cranqrel").write_text("\n".join(rows))


def medquad_files(found, out):
    (out / "1_QA").mkdir()
    pages: dict[str, list] = {}
    for document in found.documents:
        pages.setdefault(document.docno.rsplit("_Sec", 1)[0], []).append(document)
    for page, documents in pages.items():
        source, number = page.split("_", 1)
        pairs = "".join(
            f"<QAPair pid='{d.docno.rsplit('_Sec', 1)[1]}'><Question>{escape(found.queries['T' + d.docno])}"
            f"</Question><Answer>{escape(d.text)}</Answer></QAPair>"
            for d in documents
        )
        (out / "1_QA" / f"{page}.xml").write_text(
            f'<Document id="{number}" source="{source}" url="{escape(documents[0].url)}">'
            f"<Focus>{escape(documents[0].title)}</Focus>{pairs}</Document>"
        )
    wanted = recipes()["medquad"]["files"]
    rows = [
        f"{qid[2:]} {grade + 1}-x {docno}.txt"
        for qid, row in found.split("test").items()
        for docno, grade in row.items()
    ]
    (out / wanted["judged"]).write_text("\n".join(rows))
    summaries = "".join(
        f"<NLM-QUESTION qid='TQ{qid[2:]}'><NLM-Summary>{escape(found.queries[qid])}</NLM-Summary>"
        "</NLM-QUESTION>"
        for qid in found.split("test")
    )
    (out / wanted["questions"]).write_text(f"<Set>{summaries}</Set>")


def antique_files(found, out):
    texts = "".join(f"{document.docno}\t{document.text}\n" for document in found.documents)
    (out / "antique-collection.txt").write_text(texts)
    for split, qrels in found.qrels.items():
        rows = [f"{qid} U0 {docno} {g + 1}\n" for qid, row in qrels.items() for docno, g in row.items()]
        (out / f"antique-{split}.qrel").write_text("".join(rows))
        rows = [f"{qid}\t{found.queries[qid]}\n" for qid in qrels]
        (out / f"antique-{split}-queries.txt").write_text("".join(rows))


def esci_files(found, out):
    codes = {3: "100.000", 2: "10.000", 1: "1.000", 0: "0.000"}
    judged = {qid: row for qrels in found.qrels.values() for qid, row in qrels.items()}
    ratings = [
        {"query": text, "ratings": [{"docId": d, "rating": codes[g]} for d, g in judged[qid].items()]}
        for qid, text in found.queries.items()
    ]
    (out / "esci_us_judgments.json").write_text(json.dumps({"judgmentRatings": ratings}))
    lines = [json.dumps({"asin": d.docno, "title": d.title, "bullets": [d.text]}) for d in found.documents]
    (out / "esci_us_ecommerce_shrunk.ndjson").write_text("\n".join(lines))


def movies_files(found, out):
    lines = [json.dumps({"id": d.docno, "title": d.title, "overview": d.text}) for d in found.documents]
    (out / "movies-corpus.jsonl").write_text("\n".join(lines))
    rows = [
        f"qid:{qid}\t{found.queries[qid]}\t{docno}\t{grade}"
        for split in ("train", "dev", "test")
        for qid, row in found.split(split).items()
        for docno, grade in row.items()
    ]
    (out / "movies-judgments.tsv").write_text("\n".join(["query_id\tquery\tdoc_id\tgrade", *rows]))


def nfcorpus_files(found, out):
    texts = [f"{document.docno}\t{document.text}\n" for document in found.documents]
    (out / "dev.docs").write_text("".join(texts[:2000]))
    (out / "test.docs").write_text("".join(texts[1000:]))
    plain = found.split("test_beir")
    for split in ("train", "dev", "test"):
        qrels = found.split(split)
        rows = [f"{qid} 0 {docno} {grade}\n" for qid, row in qrels.items() for docno, grade in row.items()]
        (out / f"{split}.3-2-1.qrel").write_text("".join(rows))
        rows = [f"{qid}\t{'-' if qid in plain else found.queries[qid]}\n" for qid in qrels]
        (out / f"{split}.titles.queries").write_text("".join(rows))
    lines = [json.dumps({"_id": qid, "text": found.queries[qid]}) for qid in plain]
    (out / "queries.jsonl").write_text("\n".join(lines))
    (out / "qrels").mkdir()
    rows = [f"{qid}\t{docno}\t{g}" for qid, row in plain.items() for docno, g in row.items()]
    (out / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))


WRITERS = {
    "nfcorpus": nfcorpus_files,
    "cranfield": cranfield_files,
    "medquad": medquad_files,
    "antique": antique_files,
}
WRITERS |= {"esci": esci_files, "movies": movies_files}


@pytest.mark.parametrize("name", WRITERS)
def test_the_recipe_makes_the_same_collection_again(name, tmp_path):
    found = read_folder(real("medquad-nih" if name == "medquad" else name))
    recipe = recipes()[name]
    assert found.fingerprint == recipe["fingerprint"]
    assert f"{len(found.docnos):,} documents, {len(found.queries):,} queries" == recipe["counts"]
    WRITERS[name](found, tmp_path)
    again = prepare(name, recipe, source=[tmp_path])
    assert again.fingerprint == found.fingerprint
    assert {frozenset(fold) for fold in again.folds} == {frozenset(fold) for fold in found.folds}


def test_the_recipe_of_scifact_reads_beirs_folder():
    folder = real("scifact")
    assert (
        prepare("scifact", recipes()["scifact"], source=[folder]).fingerprint
        == (recipes()["scifact"]["fingerprint"])
    )


def test_cranfields_source_documents_are_those_of_its_judgements(tmp_path):
    folder = real("cranfield")
    cranfield_files(read_folder(folder), tmp_path)
    pairs = left_out("cranfield", recipes()["cranfield"], [tmp_path])
    assert pairs == read_pairs(folder / "source_docs.tsv")
