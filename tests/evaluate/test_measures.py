"""Measures against the evaluators that the field trusts: trec_eval (pytrec_eval) and gdeval."""

import shutil

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from gr2.data.runs import Run
from gr2.evaluate.config import EvaluateConfig
from gr2.evaluate.measures import PAPER, Convention, evaluate, expected_reciprocal_rank

DOCNOS = [f"d{i}" for i in range(12)]
QIDS = ["1", "2", "3"]
GRADES = st.integers(0, 4)
JUDGED = st.dictionaries(st.sampled_from(DOCNOS), GRADES, min_size=1, max_size=12)
QRELS = st.dictionaries(st.sampled_from(QIDS), JUDGED, min_size=1)
SCORED = st.dictionaries(st.sampled_from(DOCNOS), st.sampled_from([0.0, 0.25, 1.0, 2.0, 3.5]), max_size=12)
RUNS = st.dictionaries(st.sampled_from(QIDS), SCORED)
TREC_NAMES = {
    "nDCG@5": "ndcg_cut_5",
    "nDCG@20": "ndcg_cut_20",
    "P@20": "P_20",
    "MRR@20": "recip_rank",  # of at most 12 documents, so the cutoff changes nothing
    "Hits@1": "success_1",
    "Hits@10": "success_10",
    "R@5": "recall_5",
}


@settings(max_examples=300, deadline=None)
@given(QRELS, RUNS)
def test_equal_to_trec_eval_with_ties_missing_queries_and_unjudged_documents(qrels, scores):
    evaluation = evaluate(Run.from_dict(scores), qrels, list(TREC_NAMES), Convention(gain="linear"))
    parts = (name.rsplit("_", 1) for name in TREC_NAMES.values())
    asked = {f"{stem}.{cutoff}" if cutoff.isdigit() else f"{stem}_{cutoff}" for stem, cutoff in parts if stem}
    oracle = pytrec_eval.RelevanceEvaluator(qrels, asked)
    expected = oracle.evaluate({qid: row for qid, row in scores.items() if row})
    for name, trec_name in TREC_NAMES.items():
        for qid in qrels:
            wanted = expected.get(qid, {}).get(trec_name, 0.0)
            assert evaluation.values[name][qid] == pytest.approx(wanted, abs=1e-6), (name, qid)


def random_graded_run(seed: int) -> tuple[dict, dict]:
    generator = np.random.default_rng(seed)
    qrels, run = {}, {}
    for qid in range(1, 201):
        docs = [f"doc-{i}" for i in range(60)]
        judged = generator.choice(docs, size=generator.integers(2, 40), replace=False)
        qrels[str(qid)] = {
            d: int(g) for d, g in zip(judged, generator.integers(0, 5, len(judged)), strict=True)
        }
        qrels[str(qid)][str(judged[0])] = 4  # gdeval leaves out topics with nothing relevant
        found = generator.choice(docs, size=generator.integers(1, 50), replace=False)
        run[str(qid)] = {
            d: round(float(s), 1) for d, s in zip(found, generator.random(len(found)), strict=True)
        }
    return qrels, run


@pytest.mark.skipif(not shutil.which("perl"), reason="gdeval is a Perl script and there is no perl")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_err_and_exponential_ndcg_equal_gdeval(seed):
    qrels, scores = random_graded_run(seed)
    run = Run.from_dict(scores)
    ours = evaluate(run, qrels, ["ERR@20", "ERR@5", "nDCG@20", "nDCG@5"], Convention(gain="exponential"))
    written = {qid: {d: -float(r) for r, d in enumerate(run.docnos(qid))} for qid in qrels}
    wanted = {
        "ERR@20": ir_measures.ERR @ 20,
        "ERR@5": ir_measures.ERR @ 5,
        "nDCG@20": ir_measures.nDCG(dcg="exp-log2") @ 20,
        "nDCG@5": ir_measures.nDCG(dcg="exp-log2") @ 5,
    }
    for name, measure in wanted.items():
        rows = {m.query_id: m.value for m in ir_measures.gdeval.iter_calc([measure], qrels, written)}
        assert len(rows) == 200
        for qid, value in rows.items():
            assert ours.values[name][qid] == pytest.approx(value, abs=6e-6), (name, qid)


def brute_force_err(grades: list[int], cutoff: int, max_grade: int) -> float:
    """ERR as an expectation: over every way the user can stop, 1/rank times its probability."""
    total = 0.0
    for stop in range(min(cutoff, len(grades))):
        probability = (2 ** grades[stop] - 1) / 2**max_grade
        for earlier in grades[:stop]:
            probability *= 1 - (2**earlier - 1) / 2**max_grade
        total += probability / (stop + 1)
    return total


@given(st.lists(GRADES, max_size=30), st.integers(1, 25), st.integers(4, 7))
def test_err_is_the_expected_reciprocal_of_the_stopping_rank(grades, cutoff, max_grade):
    assert expected_reciprocal_rank(grades, cutoff, max_grade) == pytest.approx(
        brute_force_err(grades, cutoff, max_grade)
    )


def test_err_takes_any_query_id_and_refuses_grades_above_its_maximum():
    run, qrels = Run.from_dict({"PLAIN-1": {"d": 1.0}}), {"PLAIN-1": {"d": 5}}
    with pytest.raises(ValueError, match="grade 5"):
        evaluate(run, qrels, ["ERR@20"])
    assert evaluate(run, qrels, ["ERR@20"], Convention(max_grade=5)).means["ERR@20"] == 31 / 32


def test_missing_queries_count_as_zero_and_extra_ones_do_not_count():
    run = Run.from_dict({"a": {"d": 1.0}, "not judged": {"d": 1.0}})
    qrels = {"a": {"d": 1}, "b": {"d": 1}, "c": {"d": 1}, "e": {"d": 1}}
    assert set(evaluate(run, qrels).means.values()) <= {0.25, 0.25 / 20, 0.25 / 16}
    assert evaluate(run, qrels, ["Hits@1"]).values["Hits@1"] == {"a": 1.0, "b": 0.0, "c": 0.0, "e": 0.0}


def test_the_papers_names_are_all_there_and_unknown_ones_are_refused():
    evaluation = evaluate(Run.from_dict({}), {"q": {"d": 1}})
    assert list(evaluation.means) == list(PAPER)
    for name in ("nonsense", "nDCG@", "nDCG@x", "ERR@0", "", "Hits@-1"):
        with pytest.raises(ValueError, match="measure"):
            evaluate(Run.from_dict({}), {"q": {"d": 1}}, [name])


def test_nothing_judged_is_an_error_not_a_nan():
    with pytest.raises(ValueError, match="no judged queries"):
        evaluate(Run.from_dict({}), {})


def test_gains_differ_where_grades_do():
    run, qrels = Run.from_dict({"q": {"low": 2.0, "high": 1.0}}), {"q": {"low": 1, "high": 3}}
    linear = evaluate(run, qrels, ["nDCG@5"], Convention(gain="linear")).means["nDCG@5"]
    exponential = evaluate(run, qrels, ["nDCG@5"], Convention(gain="exponential")).means["nDCG@5"]
    discount = 1 / np.log2(3)
    assert linear == pytest.approx((1 + 3 * discount) / (3 + discount))
    assert exponential == pytest.approx((1 + 7 * discount) / (7 + discount))


def test_the_gain_is_the_same_wherever_none_is_chosen():
    run, qrels = Run.from_dict({"q": {"low": 2.0, "high": 1.0}}), {"q": {"low": 1, "high": 3}}
    discount = 1 / np.log2(3)
    assert evaluate(run, qrels, ["nDCG@5"]).means["nDCG@5"] == pytest.approx(
        (1 + 7 * discount) / (7 + discount)
    )
    assert EvaluateConfig().gain == Convention().gain == Convention.for_grades(3).gain == "exponential"


def test_scores_that_differ_beyond_32_bits_keep_their_order():
    run = Run.from_dict({"q": {"a": 1.0 + 1e-12, "z": 1.0}})
    assert evaluate(run, {"q": {"a": 1}}, ["Hits@1"]).means["Hits@1"] == 1.0
