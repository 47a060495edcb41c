"""A trained model and graded judgements → are documents of higher grades nearer to the query?

This measures the claim of the paper's t-SNE figure: for each query, the rank correlation between the grades
of its judged documents and sim(f_q, f_id), and that with log P(id ∣ q), by which the model ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import kendalltau
from torch import Tensor

from gr2.data.collection import Qrels
from gr2.model.gr2 import GR2
from gr2.model.padding import padded
from gr2.training.losses import similarity
from gr2.training.teacher_forcing import TeacherForcing


@dataclass(frozen=True)
class Agreement:
    """Kendall's τ-b with the grades, by query; queries with a single grade are left out."""

    similarity: Mapping[str, float]
    likelihood: Mapping[str, float]

    def means(self) -> dict[str, float]:
        """The means over the queries; NaN if there are none."""
        both = {"similarity": self.similarity, "likelihood": self.likelihood}
        return {name: float(np.mean(list(row.values()))) if row else np.nan for name, row in both.items()}


def agreement(model: GR2, queries: Mapping[str, str], qrels: Qrels, *, most: int = 64) -> Agreement:
    """How well similarity and likelihood order each query's judged documents.

    Args:
        model: a trained model.
        queries: qid → text.
        qrels: only grades of at least 1 are used; a query needs two different ones.
        most: maximum documents per query, sampled evenly from its judged ones.
    """
    forced = _forced(model)
    found: dict[str, tuple[float, float]] = {}
    for qid, row in qrels.items():
        judged = sorted((docno, grade) for docno, grade in row.items() if grade > 0)
        judged = judged[:: -(-len(judged) // most)] if judged else []
        if len({grade for _, grade in judged}) < 2:
            continue
        near, likely = score(model, forced, queries[qid], [docno for docno, _ in judged])
        grades = [grade for _, grade in judged]
        found[qid] = float(kendalltau(near, grades)[0]), float(kendalltau(likely, grades)[0])
    # If all scores are equal, τ is undefined and counts as 0.
    clean = {qid: np.nan_to_num(pair).tolist() for qid, pair in found.items()}
    return Agreement({q: near for q, (near, _) in clean.items()}, {q: p for q, (_, p) in clean.items()})


def score(
    model: GR2, forced: TeacherForcing, query: str, docnos: list[str]
) -> tuple[list[float], list[float]]:
    """sim(f_q, f_id) (cosine) and log P(id ∣ q) of given documents, by teacher forcing."""
    f_q, f_id, likelihood = representations(model, query, docnos, forced)
    return similarity(f_q, f_id, temperature=1.0)[0].tolist(), likelihood.tolist()


@torch.inference_mode()
def representations(
    model: GR2, query: str, docnos: Sequence[str], forced: TeacherForcing | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """f_q [1, H], and f_id [N, H] and log P(id ∣ q) [N] of given documents, by teacher forcing."""
    forced = forced or _forced(model)
    network = model.network.eval()
    ids, mask = padded(model.read([query]), device=network.device)
    states = network.encode(ids, mask)
    docids = torch.tensor(
        [model.docids.index[docno] for docno in docnos], dtype=torch.long, device=network.device
    )
    prior, first = network.prior_scores(ids, states, mask), torch.zeros_like(docids)
    f_id, likelihood = forced(network, states, mask, first, docids, prior=prior, represent=True)
    assert f_id is not None  # because represent=True
    return network.represent_query(states, mask), f_id, likelihood


def _forced(model: GR2) -> TeacherForcing:
    return TeacherForcing(model.tokens, model.trie, model.config.normaliser, device=model.network.device)
