"""Known figures on real collections; skipped where these are not at hand.

They are looked for in $GR2_DATA, else in `../shared/data` beside the checkout: BEIR folders of nfcorpus,
cranfield, medquad-nih and scifact.
"""

from collections import Counter
from pathlib import Path

import pytest
from helpers.paths import DATA

from gr2.bm25 import BM25, BM25Config
from gr2.data.formats import read_folder
from gr2.evaluate.leaks import Leaks
from gr2.evaluate.measures import evaluate

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
    means = evaluate(run, collection.split(split), ["nDCG@10", "nDCG@20"]).means
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
