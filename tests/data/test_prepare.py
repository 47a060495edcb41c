"""The paper's collections by name: recipes as data, and what is made of them."""

import gzip
import json
import re
from pathlib import Path

import ir_datasets
import pytest
from ir_datasets.formats import GenericDoc, TrecQuery

from gr2.data.collection import Document
from gr2.data.formats import FormatError, read_folder, write_folder
from gr2.data.formats.natural_questions import page_of
from gr2.data.prepare import DataMissing, known_only, prepare, recipes

NQ = recipes()["nq320k"]
TRAIN, DEV = "simplified-nq-train.jsonl.gz", "simplified-nq-dev.jsonl.gz"


# --- the recipes


def test_the_papers_six_collections_are_there():
    papers = {"gov2-500k", "clueweb-500k", "robust04", "ms-500k", "ms-1m", "nq320k"}
    assert papers <= set(recipes())
    assert {name for name, recipe in recipes().items() if "fingerprint" not in recipe} == papers


def test_every_recipe_says_what_it_is_and_where_to_get_it():
    for name, recipe in recipes().items():
        assert recipe["about"], name
        if "fingerprint" in recipe:
            continue  # a public one: see test_public
        assert "http" in recipe["obtain"] or "downloads" in recipe["obtain"], name
        if name != "nq320k":
            assert {"documents", "splits", "size", "needs"} <= recipe.keys(), name
            assert recipe["splits"]["test"], name


@pytest.mark.parametrize(
    ("name", "size", "splits"),
    [
        ("gov2-500k", 500_000, {"test": [f"gov2/trec-tb-{year}" for year in (2004, 2005, 2006)]}),
        (
            "clueweb-500k",
            500_000,
            {"test": [f"clueweb09/catb/trec-web-{year}" for year in (2009, 2010, 2011)]},
        ),
        ("robust04", 500_000, {"test": ["disks45/nocr/trec-robust-2004"]}),
        ("ms-500k", 500_000, {"train": ["msmarco-document/train"], "test": ["msmarco-document/dev"]}),
        ("ms-1m", 1_000_000, {"train": ["msmarco-document/train"], "test": ["msmarco-document/dev"]}),
    ],
)
def test_sizes_and_topics_are_the_papers(name, size, splits):
    recipe = recipes()[name]
    assert recipe["size"] == size
    assert recipe["splits"] == splits


@pytest.mark.parametrize("name", ["gov2-500k", "clueweb-500k", "robust04", "ms-500k", "ms-1m"])
def test_the_sources_have_as_many_documents_and_topics_as_a_recipe_says(name):
    """By the counts that ir_datasets has of its data sets."""
    recipe = recipes()[name]
    assert ir_datasets.load(recipe["documents"]).metadata()["docs"]["count"] > recipe["size"]
    kept = recipe["size"] // 1000
    assert re.search(r"(\d+)([KM])", recipe["about"]).groups() == (
        (str(kept), "K") if kept < 1000 else (str(kept // 1000), "M")
    )
    if said := re.search(r"(\d+) topics", recipe["about"]):
        counts = [ir_datasets.load(id).metadata()["queries"]["count"] for id in recipe["splits"]["test"]]
        assert sum(counts) == int(said[1])
    else:
        assert name.startswith("ms-")


@pytest.mark.parametrize("name", ["gov2-500k", "clueweb-500k", "robust04"])
def test_trec_collections_have_five_folds_and_licensed_documents(name):
    recipe = recipes()[name]
    folds = recipe["folds"]
    assert (folds if isinstance(folds, int) else len(folds)) == 5
    assert len(recipe["needs"]) == 1


def test_every_id_of_a_recipe_is_registered_and_has_what_is_asked_of_it():
    for recipe in recipes().values():
        if "documents" not in recipe:
            continue
        assert ir_datasets.load(recipe["documents"]).has_docs()
        for ids in recipe["splits"].values():
            for id in ids:
                dataset = ir_datasets.load(id)
                assert dataset.has_queries()
                assert dataset.has_qrels()
                assert {"title", "query", "text"} & set(dataset.queries_cls()._fields)
        for id in recipe["folds"] if isinstance(recipe.get("folds"), list) else ():
            assert ir_datasets.load(id).has_queries()


# --- from ir_datasets

DOCS = [GenericDoc(f"d{number:02}", f"text of {number}") for number in range(40)]
TOPICS = [TrecQuery(str(n), f"title {n}", f"description {n}", f"narrative {n}") for n in range(1, 11)]
JUDGED = [(str(n), f"d{3 * n:02}", n % 4) for n in range(1, 11)]
UNKNOWN = [("1", "in-another-category", 2), ("2", "d06-elsewhere", 1)]
RECIPE = {
    "about": "a toy",
    "documents": "gr2-toy",
    "splits": {"test": ["gr2-toy/2004", "gr2-toy/2005"]},
    "size": 20,
    "folds": 5,
    "needs": [],
    "obtain": "Ask the shop (https://example.org/toys).",
}


@pytest.fixture
def toy(register):
    """A data set of two years, some of whose judgements are of documents that are elsewhere."""
    passes = []

    def docs():
        passes.append(1)
        return iter(DOCS)

    register("gr2-toy", docs=docs)
    register("gr2-toy/2004", docs=docs, queries=TOPICS[:6], qrels=JUDGED[:6] + UNKNOWN)
    register("gr2-toy/2005", docs=docs, queries=TOPICS[6:], qrels=JUDGED[6:])
    for number in range(5):
        register(f"gr2-toy/fold{number}", queries=TOPICS[number::5] + [TrecQuery("99", "x", "x", "x")])
    return passes


def test_titles_are_the_queries(toy):
    made = prepare("toy", RECIPE)
    assert made.queries == {str(n): f"title {n}" for n in range(1, 11)}
    assert made.name == "toy"


def test_judged_documents_come_first_and_the_size_is_exact(toy):
    judged = {docno for _, docno, _ in JUDGED}
    for size in (10, 11, 20, 40):
        made = prepare("toy", RECIPE | {"size": size})
        docnos = {document.docno for document in made.documents}
        assert len(docnos) == size
        assert judged <= docnos


def test_judgements_of_unknown_documents_are_dropped_and_the_others_kept(toy):
    made = prepare("toy", RECIPE)
    assert made.split("test") == {qid: {docno: grade} for qid, docno, grade in JUDGED}


def test_a_query_whose_judgements_all_fall_is_no_query_of_the_split(register):
    register("gr2-gone", docs=DOCS, queries=TOPICS[:3], qrels=[*JUDGED[:2], ("3", "nowhere", 1)])
    recipe = RECIPE | {"documents": "gr2-gone", "splits": {"test": ["gr2-gone"]}, "folds": 2}
    made = prepare("gone", recipe)
    assert set(made.split("test")) == {"1", "2"}
    assert {qid for fold in made.folds for qid in fold} == {"1", "2"}


def test_known_only_keeps_what_is_known(toy):
    made = prepare("toy", RECIPE)
    assert known_only(made).fingerprint == made.fingerprint


def test_folds_are_dealt_where_none_are_published(toy):
    made = prepare("toy", RECIPE)
    assert len(made.folds) == 5
    assert sorted(qid for fold in made.folds for qid in fold) == sorted(made.split("test"))


def test_published_folds_are_taken_as_they_are(toy):
    made = prepare("toy", RECIPE | {"folds": [f"gr2-toy/fold{number}" for number in range(5)]})
    assert made.folds == (("1", "6"), ("2", "7"), ("3", "8"), ("4", "9"), ("10", "5"))


def test_no_folds_where_none_are_asked_for(toy):
    assert prepare("toy", {key: value for key, value in RECIPE.items() if key != "folds"}).folds == ()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_fill(toy, tmp_path):
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        write_folder(prepare("toy", RECIPE, seed=seed), tmp_path / name)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*")]
    assert len(files) == 5
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    assert (tmp_path / "one" / "corpus.jsonl").read_bytes() != (
        tmp_path / "three" / "corpus.jsonl"
    ).read_bytes()


def test_what_is_prepared_reads_back_the_same(toy, tmp_path):
    made = prepare("toy", RECIPE)
    write_folder(made, tmp_path / "toy")
    again = read_folder(tmp_path / "toy")
    assert (again.fingerprint, again.folds, again.qrels) == (made.fingerprint, made.folds, made.qrels)


def test_a_large_corpus_is_not_read_more_often_than_needed(toy, tmp_path):
    write_folder(prepare("toy", RECIPE), tmp_path / "toy")
    assert len(toy) == 2, "once to choose the documents, once to write them"


def test_a_recipe_larger_than_the_corpus_is_refused(toy):
    with pytest.raises(ValueError, match="40"):
        prepare("toy", RECIPE | {"size": 41})


@pytest.mark.parametrize("name", ["gov2-500k", "clueweb-500k", "robust04"])
def test_the_commands_read_the_folds_that_prepare_writes(name, toy, gr2, tmp_path, monkeypatch):
    recipe = recipes()[name]
    folds = recipe["folds"] if isinstance(recipe["folds"], int) else [f"gr2-toy/fold{i}" for i in range(5)]
    monkeypatch.setattr("gr2.data.prepare.recipes", lambda: {name: RECIPE | {"folds": folds}})
    gr2("collection", "prepare", name, "--out", tmp_path / name)
    made = read_folder(tmp_path / name)
    assert len(made.folds) == 5 and "train" not in made.qrels
    for fold, qids in enumerate(made.folds):
        run = tmp_path / f"{fold}.run"
        gr2("run", "popularity", tmp_path / name, "--fold", fold, "--output", run, "--k", 5)
        assert f"all queries ({len(qids)})" in gr2("evaluate", tmp_path / name, run, "--fold", fold)
    said = gr2("cross-validate", tmp_path / name, "neighbours", "popularity", "--out", tmp_path / "cv")
    assert "all queries (10)" in said


# --- what is not there


def test_licensed_data_that_is_missing_is_asked_for_with_its_place(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    with pytest.raises(DataMissing) as caught:
        prepare("toy", RECIPE | {"needs": ["toy/corpus"]})
    message = str(caught.value)
    assert message.startswith("toy: ")
    assert RECIPE["obtain"] in message
    assert str(tmp_path / "home" / "toy" / "corpus") in message
    (tmp_path / "home" / "toy" / "corpus").mkdir(parents=True)
    assert len(prepare("toy", RECIPE | {"needs": ["toy/corpus"]}).docnos) == 20


@pytest.mark.parametrize(
    ("name", "what", "place"),
    [
        ("gov2-500k", "GOV2", "gov2/corpus"),
        ("clueweb-500k", "ClueWeb09", "clueweb09/corpus"),
        ("robust04", "TREC disks 4 and 5", "disks45/corpus"),
    ],
)
def test_the_papers_licensed_collections_say_what_to_obtain(tmp_path, monkeypatch, name, what, place):
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path))
    with pytest.raises(DataMissing, match=rf"(?s)^{name}: .*{what}.*https?://.*{tmp_path / place}$"):
        prepare(name, recipes()[name])


@pytest.mark.parametrize("part", ["docs", "queries", "qrels"])
def test_a_download_that_fails_says_what_to_obtain(register, part):
    def broken():
        raise OSError("connection refused")
        yield

    register("gr2-far", **{"docs": DOCS, "queries": TOPICS, "qrels": JUDGED} | {part: broken})
    recipe = RECIPE | {"documents": "gr2-far", "splits": {"test": ["gr2-far"]}}
    with pytest.raises(DataMissing, match=r"(?s)far.*connection refused.*Ask the shop"):
        prepare("far", recipe)


def test_published_folds_that_cannot_be_fetched_are_a_sentence(toy, register):
    def broken():
        raise OSError("connection refused")
        yield

    register("gr2-toy/far", queries=broken)
    with pytest.raises(DataMissing, match=r"(?s)far.*connection refused.*Ask the shop"):
        prepare("toy", RECIPE | {"folds": ["gr2-toy/fold0", "gr2-toy/far"]})


# --- Natural Questions


def example(id, question, page, url=""):
    return {"example_id": id, "question_text": question, "document_text": page, "document_url": url}


CATS = (
    "Cats - Wikipedia <H1> Cats </H1> <Table> <Tr> <Td> Family : Felidae </Td> </Tr> </Table> "
    "<P> The cat is a small animal . </P> <H2> Sound </H2> <P> It purrs . </P> <Ul> <Li> a < b </Li> </Ul>"
)
DOGS = "Dogs - Wikipedia <H1> Dogs </H1> <P> The dog barks . </P> <P> It runs . </P>"
COWS = "Old Cows - Wikipedia Moo <P> Cows moo . </P>"
TRAIN_ROWS = [
    example(11, "what purrs", CATS, "http://x/cats"),
    example(-12, "who is small", CATS.replace("purrs", "hisses"), "http://x/cats?old"),
    example("13", "what moos", COWS),
]
DEV_ROWS = [example(21, "what barks", DOGS), example(22, "is a cat small", CATS)]


def lay(folder, train=TRAIN_ROWS, dev=DEV_ROWS):
    for name, rows in ((TRAIN, train), (DEV, dev)):
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (folder / name).write_bytes(gzip.compress("\n".join(lines).encode()))
    return folder


def test_natural_questions(tmp_path):
    made = prepare("nq320k", NQ, source=[lay(tmp_path)])
    assert made.name == "nq320k"
    assert made.queries == {
        "11": "what purrs",
        "-12": "who is small",
        "13": "what moos",
        "21": "what barks",
        "22": "is a cat small",
    }
    cats, cows, dogs = made.documents
    assert (cats.title, cows.title, dogs.title) == ("Cats", "Old Cows", "Dogs")
    assert cats.text == "The cat is a small animal . Cats - Wikipedia Family : Felidae Sound It purrs . a < b"
    assert dogs.text == "The dog barks . Dogs - Wikipedia It runs ."
    assert cows.text.startswith("Cows moo .")
    assert (cats.url, dogs.url) == ("http://x/cats", "")
    assert made.qrels == {
        "train": {"11": {cats.docno: 1}, "-12": {cats.docno: 1}, "13": {cows.docno: 1}},
        "test": {"21": {dogs.docno: 1}, "22": {cats.docno: 1}},
    }
    assert made.grades == 1


def test_natural_questions_read_back_the_same_and_give_the_same_bytes(tmp_path):
    lay(tmp_path)
    for name in ("one", "two"):
        write_folder(prepare("nq320k", NQ, source=[tmp_path]), tmp_path / name)
    made = prepare("nq320k", NQ, source=[tmp_path])
    assert read_folder(tmp_path / "one").fingerprint == made.fingerprint
    assert (tmp_path / "one" / "manifest.json").read_bytes() == (
        tmp_path / "two" / "manifest.json"
    ).read_bytes()


@pytest.mark.parametrize(
    ("page", "title", "text"),
    [
        ("<H1> A B </H1> <P> one </P>", "A B", "one"),
        ("<H1>A <B> bold </B></H1>x", "A bold", "x"),
        ("Ducks - wikipedia <P> quack </P>", "Ducks", "quack Ducks - wikipedia"),
        ("Ducks - Wikipedia <P> quack </P>", "Ducks", "quack Ducks - Wikipedia"),
        ("Ducks - wikipedia <H1> </H1> <P> quack </P>", "Ducks", "quack Ducks - wikipedia"),
        ("<H1> A </H1> no paragraph <Table> cell </Table>", "A", "no paragraph cell"),
        ('<H1> A </H1> <Td colspan="2"> cell </Td> <P> p </P>', "A", "p cell"),
        ("<H1> A </H1> <P> 1 < 2 and 3 > 2 </P>", "A", "1 < 2 and 3 > 2"),
    ],
)
def test_pages_as_they_are_found(page, title, text):
    found = page_of({"document_text": page})
    assert (found.title, found.text) == (title, text)


def test_a_title_with_characters_that_no_format_holds_still_makes_a_docno(tmp_path):
    pages = ["<H1> 100 %\u200e </H1> x", "<H1> Soft\u00adly \u00a0 there </H1> y", "<H1> 日本 語 </H1> z"]
    rows = [example(number, "q", page) for number, page in enumerate(pages)]
    made = prepare("nq320k", NQ, source=[lay(tmp_path, rows, [])])
    assert len(made.docnos) == 3
    write_folder(made, tmp_path / "out")
    assert read_folder(tmp_path / "out").fingerprint == made.fingerprint


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"example_id": 1', "expected a JSON object"),
        ("[]", "expected a JSON object"),
        ('{"question_text": "q", "document_text": "d"}', "'example_id'"),
        ('{"example_id": 1, "document_text": "d"}', "'question_text'"),
        ('{"example_id": 1, "question_text": "q", "document_tokens": []}', "'document_text'"),
        ('{"example_id": "a b", "question_text": "q", "document_text": "d"}', "'example_id'"),
        ('{"example_id": "", "question_text": "q", "document_text": "d"}', "'example_id'"),
        ('{"example_id": 1, "question_text": "q", "document_text": " <P> </P> "}', "<H1>"),
        ('{"example_id": 11, "question_text": "q", "document_text": "d"}', "twice"),
    ],
)
def test_a_malformed_line_is_refused_with_file_and_line(tmp_path, row, words):
    lay(tmp_path, [*TRAIN_ROWS, row])
    with pytest.raises(FormatError, match=rf"^{re.escape(str(tmp_path / TRAIN))}:4: .*{words}"):
        prepare("nq320k", NQ, source=[tmp_path])


def test_a_truncated_file_is_refused(tmp_path):
    lay(tmp_path)
    (tmp_path / DEV).write_bytes((tmp_path / DEV).read_bytes()[:-9])
    with pytest.raises(FormatError, match=rf"{DEV}:\d: .*truncated"):
        prepare("nq320k", NQ, source=[tmp_path])


def test_natural_questions_without_a_source_asks_for_it():
    with pytest.raises(DataMissing, match=rf"(?s)^nq320k: .*--source.*{TRAIN}.*{DEV}.*https://"):
        prepare("nq320k", NQ)


@pytest.mark.parametrize("missing", [[TRAIN], [DEV], [TRAIN, DEV]])
def test_missing_files_are_named_with_their_place(tmp_path, missing):
    lay(tmp_path)
    for name in missing:
        (tmp_path / name).unlink()
    with pytest.raises(DataMissing, match="https://") as caught:
        prepare("nq320k", NQ, source=[tmp_path])
    for name in (TRAIN, DEV):
        assert (name in str(caught.value)) == (name in missing)
    assert f"missing in {tmp_path}: " in str(caught.value)


def test_a_source_that_is_no_folder_is_the_same_as_missing_files():
    with pytest.raises(DataMissing, match=TRAIN):
        prepare("nq320k", NQ, source=[Path("/nowhere/at/all")])


def test_pages_are_documents_of_their_title():
    assert page_of({"document_text": CATS, "document_url": "u"})[:2] == Document("Cats", "Cats")[:2]
