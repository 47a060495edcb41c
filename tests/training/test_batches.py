"""Batches: a function of seed and step, who is a negative, and epochs that leave nothing out."""

import torch
from helpers import tiny

from gr2.training.batches import Batches
from gr2.training.config import BatchConfig


def test_a_batch_is_a_function_of_seed_and_step_alone():
    examples = tiny.graded_examples()
    one, two = (Batches(examples, BatchConfig(queries=4, texts=8), seed=7) for _ in range(2))
    later = one[11]
    for step in range(11):
        two[step]
    for name, value in vars(two[11]).items():
        assert torch.equal(value, getattr(later, name)), name
    other = Batches(examples, BatchConfig(queries=4, texts=8), seed=8)[11]
    assert not torch.equal(other.text_docids, later.text_docids)


def test_a_judged_docid_is_never_a_negative_and_every_row_has_its_place():
    examples = tiny.graded_examples()
    batches = Batches(examples, BatchConfig(queries=5, texts=8, per_grade=2))
    relevant = [{d for docids in grades.values() for d in docids} for grades in examples.judged]
    for step in range(20):
        batch = batches[step]
        for place, query in enumerate((batch.queries[:, 0] - 100).tolist()):
            expected = [docid not in relevant[query] for docid in batch.docids.tolist()]
            assert batch.negatives[place].tolist() == expected
        assert (batch.grades > 0).sum(0).max() <= 1
        own = torch.zeros_like(batch.grades, dtype=torch.bool)
        own[batch.owner, torch.arange(len(batch.owner))] = True
        assert not (batch.grades[~own] > 0).any()
        assert batch.query_mask.sum(1).min() >= 1


def test_at_most_so_many_docids_of_a_grade_are_in_a_batch():
    examples = tiny.graded_examples()
    for most in (1, 3, 99):
        batch = Batches(examples, BatchConfig(queries=23, texts=1, per_grade=most))[0]
        for place, query in enumerate(batch.query_index.tolist()):
            for grade, docids in examples.judged[query].items():
                assert int((batch.grades[place] == grade).sum()) == min(most, len(docids))


def test_over_the_epochs_every_pair_and_every_text_is_read():
    examples = tiny.graded_examples()
    batches = Batches(examples, BatchConfig(queries=23, texts=57, per_grade=2))
    pairs, seen = set(), []
    for step in range(4):
        batch = batches[step]
        seen.append(sorted(batch.text_docids.tolist()))
        rows = batch.grades.nonzero().tolist()
        pairs |= {(int(batch.grades[q, d]), int(batch.docids[d])) for q, d in rows}
    assert all(row == sorted(examples.text_docids) for row in seen)
    assert pairs == {(g, d) for grades in examples.judged for g, docids in grades.items() for d in docids}


def test_ranks_share_an_epoch_without_overlap():
    examples = tiny.graded_examples()
    ranks = [Batches(examples, BatchConfig(queries=4, texts=8), rank=r, ranks=2) for r in range(2)]
    whole = Batches(examples, BatchConfig(queries=4, texts=8))
    for step in range(4):
        for rank in range(2):
            assert torch.equal(ranks[rank][step].docids, whole[2 * step + rank].docids)
