"""A look-ahead distilled into codes: the score is the sum of their logits, and learns the teacher's."""

from dataclasses import replace

import numpy as np
import pytest

from gr2.data.collection import Document
from gr2.model.config import LookAheadConfig
from gr2.model.look_ahead import LookAhead
from gr2.model.look_ahead_io import load_look_ahead, save_look_ahead
from gr2.training.distil import DistilConfig, coded, distil, soft_lists


@pytest.fixture(scope="module")
def parts():
    draw = np.random.default_rng(0)

    def unit(rows):
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    documents = [Document(f"d{i:02}", text=f"word{i}") for i in range(40)]
    teacher = LookAhead.build(documents, unit(draw.standard_normal((40, 6))), LookAheadConfig(words=0.0))
    codes = draw.integers(0, 8, (40, 3))
    vectors = draw.standard_normal((24, 6)).astype(np.float32) / 4
    queries = unit(draw.standard_normal((30, 6)))
    return teacher, codes, vectors, [f"word{i}" for i in range(30)], queries


def test_a_score_is_the_sum_of_the_codes_logits(parts):
    teacher, codes, vectors, texts, queries = parts
    student = coded(teacher, codes, vectors)
    expected = [
        [sum(20 * query @ vectors[8 * t + code] for t, code in enumerate(row)) for row in codes]
        for query in queries
    ]
    np.testing.assert_allclose(student.scores(texts, queries), expected, rtol=1e-4, atol=1e-4)
    assert set(student.views(texts, queries)) == {"vectors"}, "no words, offsets or memory"
    assert student.nbytes == {"codes": 40 * 3, "codebooks": vectors.nbytes}
    assert student.bytes_per_document == {"codes": 3}


def test_the_student_learns_the_teachers_order(parts):
    teacher, codes, vectors, texts, queries = parts
    student = coded(teacher, codes, vectors)
    taught = distil(teacher, student, texts, queries, DistilConfig(decay=0.01))
    best = teacher.scores(texts, queries).argmax(1)

    def ranks(one):
        scores = one.scores(texts, queries)
        return np.mean([(row > row[top]).sum() for row, top in zip(scores, best, strict=True)])

    assert ranks(taught) < ranks(student) / 2
    np.testing.assert_array_equal(taught.vectors.codes, student.vectors.codes)
    held = distil(teacher, student, texts, queries, DistilConfig(decay=1e6))
    np.testing.assert_allclose(held.vectors.vectors, student.vectors.vectors, atol=1e-4)
    again = distil(teacher, student, texts, queries, DistilConfig(decay=0.01))
    np.testing.assert_array_equal(again.vectors.vectors, taught.vectors.vectors)


def test_a_list_has_the_weights_of_the_teachers_softmax(parts):
    teacher, _, _, texts, queries = parts
    (found,) = soft_lists(teacher, texts[:1], queries[:1], DistilConfig(nearest=3, floor=0.0))
    phi = teacher.scores(texts[:1], queries[:1])[0]
    top = np.argsort(-phi)[:3]
    assert list(found) == [teacher.docnos[i] for i in top]
    np.testing.assert_allclose(list(found.values()), np.exp(phi[top] - phi[top[0]]), rtol=1e-4)
    (few,) = soft_lists(teacher, texts[:1], queries[:1], DistilConfig(nearest=40, floor=0.5))
    assert few and min(few.values()) >= 0.5


def test_it_is_saved_and_read(parts, tmp_path):
    teacher, codes, vectors, texts, queries = parts
    student = coded(teacher, codes, vectors)
    save_look_ahead(student, tmp_path / "codes")
    read = load_look_ahead(tmp_path / "codes")
    np.testing.assert_array_equal(read.scores(texts, queries), student.scores(texts, queries))
    assert read.nbytes == student.nbytes


def test_codes_beyond_a_byte_or_without_a_vector_are_refused(parts):
    teacher, codes, vectors, _, _ = parts
    for wrong in (codes + 1000, codes + 3):
        with pytest.raises(ValueError, match="found 24 and codes up to"):
            coded(teacher, wrong, vectors)
    with pytest.raises(ValueError, match="found 23"):
        coded(teacher, codes, vectors[:-1])


def test_a_student_of_other_documents_is_refused(parts):
    teacher, codes, vectors, texts, queries = parts
    student = coded(teacher, codes, vectors)
    with pytest.raises(ValueError, match="must have codes"):
        distil(teacher, teacher, texts, queries)
    with pytest.raises(ValueError, match="must have codes"):
        distil(teacher, replace(student, docnos=student.docnos[::-1]), texts, queries)
