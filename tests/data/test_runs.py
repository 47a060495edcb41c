"""Runs: one tie rule, every form in and out, and scores that no evaluator can reorder."""

import numpy as np
import pandas as pd
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from gr2.data.runs import Run

KEYS = st.text("abcXYZ019-_.é", min_size=1, max_size=5)
SCORES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, 1.0 + 1e-12, 1.0 - 1e-12, 1e-45, 1e300, -1e300]),
)
RUNS = st.dictionaries(KEYS, st.dictionaries(KEYS, SCORES, min_size=1, max_size=8), max_size=4)


@given(RUNS)
def test_a_written_run_reads_back_in_the_same_order(tmp_path_factory, scores):
    path = tmp_path_factory.mktemp("runs") / "a.run"
    run = Run.from_dict(scores, name="a")
    run.write(path)
    again = Run.read(path)
    assert again.name == "a"
    assert {qid: again.docnos(qid) for qid in again.rankings} == {
        qid: run.docnos(qid) for qid in run.rankings
    }


@given(RUNS)
def test_written_scores_strictly_decrease_even_as_32_bit_floats(scores):
    lines = [line.split() for line in Run.from_dict(scores).to_trec().splitlines()]
    for before, after in zip(lines, lines[1:], strict=False):
        if before[0] == after[0]:
            assert np.float32(before[4]) > np.float32(after[4])
            assert float(before[4]) > float(after[4])
            assert int(after[3]) == int(before[3]) + 1
        else:
            assert after[3] == "1"


@given(st.dictionaries(KEYS, st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=8))
def test_ties_are_broken_as_trec_eval_does(scores):
    """Each document relevant alone: trec_eval's reciprocal rank tells where it stands."""
    ranking = Run.from_dict({"q": scores}).docnos("q")
    for rank, docno in enumerate(ranking, start=1):
        evaluator = pytrec_eval.RelevanceEvaluator({"q": {docno: 1}}, {"recip_rank"})
        assert evaluator.evaluate({"q": dict(scores)})["q"]["recip_rank"] == pytest.approx(1 / rank)


def test_frames_have_pyterriers_columns_and_come_back():
    run = Run.from_dict({"q1": {"d1": 0.5, "d2": 2.0}, "q2": {"d3": 1.0}}, name="x")
    frame = run.to_frame({"q1": "cats", "q2": "dogs"})
    assert list(frame.columns) == ["qid", "query", "docno", "score", "rank"]
    assert frame.iloc[0].to_dict() == {"qid": "q1", "query": "cats", "docno": "d2", "score": 2.0, "rank": 0}
    assert Run.from_frame(frame, name="x") == run


def test_a_frame_without_scores_is_refused_by_name():
    with pytest.raises(ValueError, match="score"):
        Run.from_frame(pd.DataFrame({"qid": ["q"], "docno": ["d"]}))


def test_excluded_documents_leave_only_their_own_query():
    run = Run.from_dict({"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d1": 1.0}})
    left = run.without({"q1": {"d1"}})
    assert left.docnos("q1") == ("d2",)
    assert left.docnos("q2") == ("d1",)
    assert left.docnos("unknown") == ()


def test_dictionaries_come_back():
    scores = {"q": {"a": 1.0, "b": 3.0}}
    assert Run.from_dict(scores).to_dict() == scores
