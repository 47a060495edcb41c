"""A trained model and graded judgements → do distances to the query order by grade (paper: the t-SNE figure).

The figure's claim as a number: for each query, the rank correlation between the grades of its judged
documents and sim(f_q, f_id); beside it that of log P(id ∣ q), which is what the model ranks by.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import kendalltau
from torch import Tensor

from gr2.batches import padded
from gr2.data import Qrels
from gr2.forcing import TeacherForcing
from gr2.losses import similarity
from gr2.model import GR2


@dataclass(frozen=True)
class Agreement:
    """Kendall's τ-b with the grades, by query; queries whose documents have one grade only are left out."""

    similarity: Mapping[str, float]
    likelihood: Mapping[str, float]

    def means(self) -> dict[str, float]:
        """Over the queries; NaN without any."""
        both = {"similarity": self.similarity, "likelihood": self.likelihood}
        return {name: float(np.mean(list(row.values()))) if row else np.nan for name, row in both.items()}


def agreement(model: GR2, queries: Mapping[str, str], qrels: Qrels, *, most: int = 64) -> Agreement:
    """How well similarity and likelihood order each query's judged documents.

    Args:
        model: a trained model.
        queries: texts by qid.
        qrels: grades of at least 1 count; a query needs two different ones.
        most: documents of a query at most, taken evenly from all of its judged ones.
    """
    forced = TeacherForcing(model.tokens, model.trie, model.config.normaliser)
    found: dict[str, tuple[float, float]] = {}
    for qid, row in qrels.items():
        judged = sorted((docno, grade) for docno, grade in row.items() if grade > 0)
        judged = judged[:: -(-len(judged) // most)] if judged else []
        if len({grade for _, grade in judged}) < 2:
            continue
        near, likely = score(model, forced, queries[qid], [docno for docno, _ in judged])
        grades = [grade for _, grade in judged]
        found[qid] = float(kendalltau(near, grades)[0]), float(kendalltau(likely, grades)[0])
    # A constant row of scores has no order, hence no correlation with anything.
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
    """f_q [1, H], and of given documents f_id [N, H] and log P(id ∣ q) [N], by teacher forcing."""
    forced = forced or TeacherForcing(model.tokens, model.trie, model.config.normaliser)
    network = model.network.eval()
    ids, mask = padded(model.read([query]))
    states = network.encode(ids, mask)
    docids = torch.tensor([model.docids.index[docno] for docno in docnos], dtype=torch.long)
    prior, first = network.prefer(ids, states, mask), torch.zeros_like(docids)
    f_id, likelihood = forced(network, states, mask, first, docids, prior=prior, represent=True)
    assert f_id is not None  # it was asked for
    return network.represent_query(states, mask), f_id, likelihood
