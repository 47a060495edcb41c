"""The scheme codes-words: no vector per document, an exact search, and documents that are added later."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import tiny

from gr2.bm25 import BM25
from gr2.data.collection import Document
from gr2.decode import NodePrior, exact
from gr2.docids.codes import CODES_WORDS
from gr2.model.codes_words import code_vectors, with_documents
from gr2.model.document_vectors import document_vectors
from gr2.model.gr2 import GR2
from gr2.model.look_ahead_io import load_look_ahead
from gr2.model.node_prior import leaf_ranges
from gr2.model.residual_encoder import encode_residual
from gr2.model.vector_storage import CodeVectors
from gr2.model.word_weights import WordWeights
from gr2.schemes.config import SchemeConfig
from gr2.systems.config import GenerativeConfig
from gr2.systems.generative import train
from gr2.training.candidates import Candidate
from gr2.training.config import with_settings
from gr2.training.judged import TrainingSet
from gr2.training.learner import Learner
from gr2.training.regression import RegressionConfig
from gr2.workflows.learn import views_of

SCHEME = SchemeConfig(scheme=CODES_WORDS, code_length=3, codebook_size=8, kept_words=4)
DATA = tiny.collection(40)
DATA = replace(DATA, documents=(*DATA.documents, DATA.documents[7]._replace(docno="twin")))
CONFIG = GenerativeConfig(docids=SCHEME)


@pytest.fixture(scope="module")
def built(bert, tmp_path_factory):
    """The folder of a model that learned what cross-validation chose, and the folder of its vectors."""
    folder = tmp_path_factory.mktemp("codes")
    train(DATA, folder / "m", replace(CONFIG, backbone=str(bert)))
    return folder / "m", folder / "m.training"


@pytest.fixture(scope="module")
def model(built):
    """The same model, which learned offsets of codes with a gate and no rule of choice."""
    found = GR2.from_pretrained(built[0])
    found.network.eval()
    texts, judged = list(DATA.queries.values()), list(DATA.split("train").values())
    known = TrainingSet(texts, found.query_encoder.encode(texts), judged)
    way = Candidate(RegressionConfig(own=False, shared="codes", negatives="all"), (0.4, 0.8))
    return found.with_look_ahead(Learner(found.look_ahead.without_learned()).learn(known, way))


def queries_of(model):
    texts = [tiny.some_words(seed, 3) for seed in range(12)]
    return texts, model.query_encoder.encode(texts)


def test_phi_is_the_dense_score_of_the_reconstruction_and_the_words(built, bert):
    model = GR2.from_pretrained(built[0])
    plain, texts = model.look_ahead.without_learned(), list(DATA.queries.values())
    queries = model.query_encoder.encode(texts)
    coded = code_vectors(model.docids)
    rebuilt = coded.vectors[np.arange(3), coded.codes].sum(1)
    by_docno = {document.docno: document for document in DATA.documents}
    words = WordWeights.of(BM25.index([by_docno[docno] for docno in model.docids.docnos]), 4).scores(texts)
    expected = 20 * queries @ rebuilt.T + words
    np.testing.assert_allclose(plain.scores(texts, queries), expected, rtol=1e-4, atol=1e-4)
    vectors = document_vectors(DATA, model.docids.docnos, str(bert), built[1])
    error = np.square(vectors - rebuilt).sum(1).mean()
    assert error < 0.8 * np.square(vectors - vectors.mean(0)).sum(1).mean()


def test_nothing_is_kept_of_a_document_but_codes_and_words(built, model):
    for one in (GR2.from_pretrained(built[0]).look_ahead, model.look_ahead):
        assert set(one.bytes_per_document) == {"codes", "words"}
        assert one.bytes_per_document["codes"] == 3 and isinstance(one.bm25, WordWeights)
    assert model.look_ahead.nbytes["codebooks"] == 2 * 3 * 8 * 32 * 4, "the quantiser's and what was learned"
    numbered = [row for row in model.docids.tokens if len(row) > 3]
    assert numbered, "the twin has the codes of another document, and a number"


def test_learned_codes_rank_judged_documents_higher_and_survive_the_disk(built, model, tmp_path):
    texts, judged = list(DATA.queries.values()), list(DATA.split("train").values())
    queries = model.query_encoder.encode(texts)
    learner = Learner(model.look_ahead.without_learned())
    before, after = (
        np.mean(learner.ndcg(one.scores(texts, queries), judged)) for one in (learner.plain, model.look_ahead)
    )
    assert after > before + 0.02
    model.save_pretrained(tmp_path / "again")
    again = GR2.from_pretrained(tmp_path / "again")
    np.testing.assert_array_equal(
        again.look_ahead.scores(texts, queries), model.look_ahead.scores(texts, queries)
    )
    assert again.look_ahead.offsets.codes is again.look_ahead.vectors.codes
    assert again.look_ahead.nbytes == model.look_ahead.nbytes


@pytest.mark.parametrize("learned", [False, True])
def test_walking_the_trie_gives_the_same_documents(model, bert, learned):
    """Each node has the logsumexp of φ below it; best-first search then proves the k best."""
    if not learned:
        model = model.with_look_ahead(model.look_ahead.without_learned())
    texts, queries = queries_of(model)
    phi, trie = model.look_ahead.scores(texts, queries), model.trie
    start, count = leaf_ranges(trie)
    order = np.empty(len(trie), np.int64)
    order[start[trie.leaf]] = trie.leaf_docid
    low, high = (torch.from_numpy(part.astype(np.int32)) for part in (start, start + count))
    prior = NodePrior(low=low, high=high, scores=torch.from_numpy(phi[:, order]))
    network = GR2.fresh(bert, model.docids, model.config).network.eval()
    with torch.no_grad():
        network.head.weight.zero_()  # a decoder that adds nothing
        states, mask = torch.zeros(len(texts), 1, 32), torch.ones(len(texts), 1, dtype=torch.long)
        decoder = network.decoder_for_search()
        found = exact(decoder, trie, states, mask, k=7, budget=10_000, normaliser="trie", prior=prior)
    assert found.proven.all()
    for row, text in enumerate(texts):
        places, scores = found[row]
        ranked = model.search(text, 7)
        np.testing.assert_allclose(scores, [each.score for each in ranked], atol=2e-4)
        walked = dict(zip((model.docids.docnos[place] for place in places), scores.tolist(), strict=True))
        for each in ranked:  # the last ones may be level with others
            assert each.docno in walked or each.score < ranked[-1].score + 1e-3


def test_new_documents_get_codes_and_words_and_old_ones_stay(built, model):
    remembers = replace(model.look_ahead.config, memory=0.5)
    model = model.with_look_ahead(model.look_ahead.with_config(remembers))
    texts, queries = queries_of(model)
    new = [Document("a-new", "tiny", tiny.some_words(900)), Document("z-new", "", "unheard " * 3)]
    vectors = np.stack([queries[0], -queries[1]])
    words = BM25.index([*DATA.documents, *new])
    found, docids = with_documents(
        model.look_ahead, model.docids, new, vectors, words, fingerprint="of all documents"
    )
    assert docids.docnos == tuple(sorted([*model.docids.docnos, "a-new", "z-new"])) == found.docnos
    assert docids.about["fingerprint"] == "of all documents"
    old = [docids.index[docno] for docno in model.docids.docnos]
    before, after = model.look_ahead.scores(texts, queries), found.scores(texts, queries)
    np.testing.assert_array_equal(after[:, old], before)
    assert [docids.tokens[place] for place in old] == list(model.docids.tokens)
    kept, books = code_vectors(docids), code_vectors(model.docids).vectors
    rows = [docids.index["a-new"], docids.index["z-new"]]
    np.testing.assert_array_equal(kept.codes[rows], encode_residual(vectors, books))
    np.testing.assert_array_equal(found.vectors.codes, kept.codes)
    np.testing.assert_array_equal(found.offsets.codes, kept.codes)
    assert found.views(["unheard"], queries[:1])["words"][0, rows[1]] > 0
    assert np.argmax(found.views(["unheard"], queries[:1])["words"]) == rows[1]
    whole = GR2(model.network, model.tokenizer, docids, model.config, model.provenance)
    whole.look_ahead = found
    assert whole.search("unheard", 1)[0].docno in docids.docnos


def test_a_document_that_is_known_gets_its_old_codes_again(built, model, bert):
    """The codes of a document do not depend on whether it came first or later."""
    vectors = document_vectors(DATA, model.docids.docnos, str(bert), built[1])
    coded = code_vectors(model.docids)
    np.testing.assert_array_equal(encode_residual(vectors, coded.vectors), coded.codes)


def test_wrong_settings_are_refused(built, bert, tmp_path):
    changed = with_settings(CONFIG.training, {"look_ahead.storage": "int8"})
    with pytest.raises(ValueError, match="no vectors to store"):
        train(DATA, tmp_path / "m", replace(CONFIG, backbone=str(bert), training=changed))
    static = tiny.save_static_encoder(tmp_path / "static")
    changed = with_settings(CONFIG.training, {"look_ahead.encoder": str(static)})
    with pytest.raises(ValueError, match="made from vectors of .* encoded by static"):
        train(DATA, tmp_path / "m", replace(CONFIG, backbone=str(bert), training=changed))
    model = GR2.from_pretrained(built[0])
    with pytest.raises(ValueError, match="codebooks of at most 256 codes, found 8"):
        code_vectors(replace(model.docids, code_vectors=None))
    full = replace(model.look_ahead, bm25=None)
    with pytest.raises(ValueError, match="expected look-ahead of codes and words"):
        words = BM25.index(DATA.documents)
        with_documents(full, model.docids, [], np.zeros((0, 32), np.float32), words, fingerprint="")


def test_it_is_learned_from_again_as_from_the_start(built):
    """What `gr2 learn` begins with: the quantiser's codes and the kept words, without what was learned."""
    model = GR2.from_pretrained(built[0])
    views, (texts, queries) = views_of(model, built[0]), queries_of(model)
    again = views.at(replace(views.usual, words=model.look_ahead.config.words))
    expected = model.look_ahead.without_learned()
    np.testing.assert_array_equal(again.scores(texts, queries), expected.scores(texts, queries))
    titled = views.index(4)
    assert isinstance(titled, WordWeights) and titled.config.title_weight == 4


def test_codes_are_saved_once(built, model, tmp_path):
    from gr2.model.look_ahead_io import save_look_ahead

    save_look_ahead(model.look_ahead, tmp_path / "look_ahead")
    read = load_look_ahead(tmp_path / "look_ahead")
    assert isinstance(read.offsets, CodeVectors)
    np.testing.assert_array_equal(read.offsets.vectors, model.look_ahead.offsets.vectors)
