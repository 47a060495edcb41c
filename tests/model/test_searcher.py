"""One search path: filters, both modes, batches and the second score, all against one exhaustive ranking."""

import pytest
import torch
from helpers import tiny

from gr2.model.config import SearchConfig
from gr2.model.searcher import SearchRequest
from gr2.training.fit import fit


@pytest.fixture(scope="module")
def model(checkpoints, tmp_path_factory):
    data = tiny.collection(30)
    out = tmp_path_factory.mktemp("model") / "model"
    docids = tiny.titles(data, checkpoints["encoder"])
    return fit(data, docids, str(checkpoints["encoder"]), out, tiny.training(tiny.FAST))


QUERIES = {f"q{i}": text for i, text in enumerate(["baka beke", "duku", "bika deke doko", "buku bako"])}


def test_a_filter_gives_the_allowed_part_of_the_whole_ranking_in_both_modes(model):
    allowed = {f"d{i:02}" for i in range(0, 30, 3)}
    for mode in ("beam", "exact"):
        searcher = model.searcher(SearchConfig(mode=mode, beams=40))
        for query in QUERIES.values():
            whole = [r for r in searcher.search(query, 30) if r.docno in allowed]
            found = searcher.search(query, 5, allowed=allowed)
            assert [r.docno for r in found] == [r.docno for r in whole[:5]]
            assert [r.score for r in found] == pytest.approx([r.score for r in whole[:5]], abs=1e-5)
        assert searcher.search("baka", 5, allowed=["unknown"]) == []


def test_requests_of_different_kinds_are_answered_together_as_alone(model):
    searcher = model.searcher()
    some = searcher.indices(["d03", "d11", "d20"])
    requests = [
        SearchRequest(text, k, allowed)
        for text, k, allowed in zip(QUERIES.values(), (1, 5, 3, 25), (None, some, None, some), strict=True)
    ]
    together = searcher.answer(requests)
    for request, answer in zip(requests, together, strict=True):
        (alone,) = searcher.answer([request])
        assert answer.docids == alone.docids and answer.proven == alone.proven
        assert answer.scores == pytest.approx(alone.scores, abs=1e-5)
        assert len(answer.docids) == min(request.k, 3 if request.allowed else 30)


def test_the_batch_changes_nothing(model):
    small, large = (model.search_many(QUERIES, 5, SearchConfig(batch=size)) for size in (1, 16))
    for qid in QUERIES:
        assert small.docnos(qid) == large.docnos(qid)


def test_one_query_and_many_agree(model):
    run = model.search_many(QUERIES, 4, SearchConfig(batch=1))
    for qid, text in QUERIES.items():
        assert run.rankings[qid] == tuple((r.docno, r.score) for r in model.search(text, 4))


@pytest.mark.parametrize(
    ("mode", "settings", "wanted"),
    [
        ("beam", {"beams": 7}, {"beams": 7, "k": 5}),
        ("beam", {"beams": 3}, {"beams": 5, "k": 5}),
        ("beam", {"beams": 7, "similarity_weight": 1.0}, {"beams": 7, "k": 7}),
        ("exact", {"budget": 11}, {"budget": 11, "k": 5}),
    ],
)
def test_the_search_is_called_with_its_settings(model, monkeypatch, mode, settings, wanted):
    from gr2.model import searcher

    seen, real = [], getattr(searcher, mode)
    monkeypatch.setattr(searcher, mode, lambda *given, **named: seen.append(named) or real(*given, **named))
    model.search("baka beke", 5, SearchConfig(mode=mode, **settings))
    assert [{name: each[name] for name in wanted} for each in seen] == [wanted]


def test_the_second_score_changes_the_ranking_score(model):
    plain, mixed = (model.search("baka beke", 30, SearchConfig(similarity_weight=w)) for w in (0.0, 5.0))
    assert {r.docno for r in plain} == {r.docno for r in mixed}
    assert [r.score for r in plain] != [r.score for r in mixed]
    assert [r.score for r in mixed] == sorted((r.score for r in mixed), reverse=True)


def test_the_decoder_is_prepared_once_and_anew_after_training(model):
    network = model.network.eval()
    first = network.decoder_for_search()
    assert network.decoder_for_search() is first
    network.train()
    second = network.eval().decoder_for_search()
    assert second is not first and network.decoder_for_search() is second
    with torch.no_grad():
        network.decoder.block[0].layer[-1].DenseReluDense.wo.weight.mul_(1.0)
    assert network.decoder_for_search() is not second, "a weight was changed in evaluation mode"


@pytest.mark.parametrize("k", [0, -1])
def test_nothing_is_not_a_number_of_results(model, k):
    with pytest.raises(ValueError, match="k of at least 1"):
        model.search("baka", k)
