"""A model inside PyTerrier: a transformer, its operators, and experiments."""

import pytest

from gr2.bm25 import BM25
from gr2.model.gr2 import GR2

pt = pytest.importorskip("pyterrier", reason="not installed: pip install 'gr2[terrier]'")
pd = pytest.importorskip("pandas")

from gr2.integrations.terrier import GR2Retriever  # noqa: E402

TOPICS = pd.DataFrame([["1", "baka beke"], ["2", "duku"]], columns=["qid", "query"])


def test_a_terrier_transformer_ranks_as_the_model_does(folder):
    model = GR2.from_pretrained(folder)
    found = GR2Retriever(model, k=5)(TOPICS)
    assert list(found.columns) == ["qid", "query", "docno", "score", "rank"]
    for qid, query in TOPICS.itertuples(index=False):
        rows = found[found.qid == qid]
        assert list(rows.docno) == [result.docno for result in model.search(query, k=5)]
        assert list(rows["rank"]) == list(range(5)) and set(rows["query"]) == {query}


def test_it_takes_part_in_terrier_s_operators_and_experiments(folder):
    retriever = GR2Retriever(GR2.from_pretrained(folder), k=5)
    assert len((retriever % 2)(TOPICS)) == 4
    assert "12 documents" in repr(retriever)
    best = retriever(TOPICS).docno.iloc[0]
    qrels = pd.DataFrame([["1", best, 1]], columns=["qid", "docno", "label"])
    table = pt.Experiment([retriever], TOPICS, qrels, ["recip_rank"])
    assert table["recip_rank"].iloc[0] == 1.0


def test_what_a_topic_carries_is_carried_on(folder):
    found = GR2Retriever(GR2.from_pretrained(folder), k=2)(TOPICS.assign(query_0=["one", "two"]))
    assert found.query_0.tolist() == ["one", "one", "two", "two"]


def test_a_frame_without_queries_is_refused(folder):
    with pytest.raises(Exception, match="query"):
        GR2Retriever(GR2.from_pretrained(folder))(TOPICS[["qid"]])


def test_it_is_a_stage_of_a_pipeline(folder):
    retriever = GR2Retriever(GR2.from_pretrained(folder), k=5)
    upside_down = retriever >> pt.apply.doc_score(lambda row: -row["score"])
    before, after = retriever(TOPICS), upside_down(TOPICS)
    for qid in TOPICS.qid:
        found = after[after.qid == qid].sort_values("rank").docno.tolist()
        assert found == before[before.qid == qid].docno.tolist()[::-1]


def test_an_experiment_compares_it_with_any_other_system(folder, data):
    ours = GR2Retriever(GR2.from_pretrained(folder), k=12)
    words = GR2Retriever(BM25.index(data.documents), k=12)
    best = words(TOPICS).groupby("qid").docno.first().to_dict()
    qrels = pd.DataFrame([[qid, docno, 1] for qid, docno in best.items()], columns=["qid", "docno", "label"])
    table = pt.Experiment([ours, words % 3], TOPICS, qrels, ["recip_rank"], names=["ours", "words"])
    ranks = ours(TOPICS).set_index(["qid", "docno"])["rank"]
    mean = sum(1 / (ranks[pair] + 1) for pair in best.items()) / len(best)
    assert dict(zip(table["name"], table["recip_rank"], strict=True)) == {
        "ours": pytest.approx(mean),
        "words": 1.0,
    }


def test_numbers_as_qids_and_no_topics_at_all(folder):
    retriever = GR2Retriever(GR2.from_pretrained(folder), k=2)
    assert retriever(TOPICS.assign(qid=[1, 2])).qid.tolist() == ["1", "1", "2", "2"]
    assert list(retriever(TOPICS[:0]).columns) == list(retriever(TOPICS).columns)
