"""Representations against grades, and as a second score beside the likelihood."""

import random
from pathlib import Path

import pytest
from helpers import tiny

from gr2.experiments.geometry import agreement
from gr2.model.config import SearchConfig
from gr2.training.teacher_forcing import TeacherForcing


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> Path:
    return tiny.save_checkpoint(tmp_path_factory.mktemp("encoder"), "encoder", width=36)


@pytest.mark.parametrize("mode", ["beam", "exact"])
def test_the_second_score_is_likelihood_plus_weighted_similarity(backbone, mode):
    from gr2.experiments.geometry import score

    data, model, *_ = tiny.prepared(backbone)
    forced = TeacherForcing(model.tokens, model.trie, "trie")
    query = data.queries["q03"]
    near, likely = score(model, forced, query, list(model.docids.docnos))
    both = {d: p + 5.0 * s for d, s, p in zip(model.docids.docnos, near, likely, strict=True)}
    found = model.search(query, 50, SearchConfig(beams=50, mode=mode, similarity_weight=5.0))
    assert [r.docno for r in found] == sorted(both, key=lambda docno: -both[docno])
    assert [r.score for r in found] == pytest.approx(sorted(both.values(), reverse=True), abs=1e-3)
    assert len(model.search(query, 3, SearchConfig(mode=mode, similarity_weight=5.0))) == 3


def test_agreement_with_grades_is_kendall_s_tau(backbone, monkeypatch):
    import gr2.experiments.geometry

    data, model, *_ = tiny.prepared(backbone)
    draw = random.Random(0)
    qrels = {"q00": {f"d{i:02}": draw.randint(0, 3) for i in range(20)}, "q01": {"d01": 2, "d02": 2}}
    by_grade = lambda model, forced, query, docnos: (  # noqa: E731
        [qrels["q00"][docno] for docno in docnos],
        [-qrels["q00"][docno] for docno in docnos],
    )
    real = agreement(model, data.queries, qrels)
    assert set(real.similarity) == {"q00"} and all(-1 <= v <= 1 for v in real.means().values())
    monkeypatch.setattr(gr2.experiments.geometry, "score", by_grade)
    assert agreement(model, data.queries, qrels).means() == pytest.approx({"similarity": 1, "likelihood": -1})
