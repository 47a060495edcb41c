"""The losses one scalar at a time: loops over queries, docids and grades, nothing vectorised.

Numbers are torch scalars (or floats), tables are nested lists, so autograd differentiates what is written
here and nothing cleverer. A table [B][D] has one row per query and one column per docid of the batch.
"""

import math

import torch


def scalars(table, *, requires_grad=False):
    """A tensor of one or two dimensions as nested lists of separate scalar leaves."""
    if table.dim() == 1:
        return [torch.tensor(float(x), dtype=torch.float64, requires_grad=requires_grad) for x in table]
    return [scalars(row, requires_grad=requires_grad) for row in table]


def number(value):
    """The plain float of a scalar, with or without a graph."""
    return value.item() if isinstance(value, torch.Tensor) else float(value)


def larger(a, b):
    """The larger of the two, so that the gradient flows through the larger side alone."""
    return a if number(a) >= number(b) else b


def largest(values):
    """The largest of a list that is not empty."""
    best = values[0]
    for value in values[1:]:
        best = larger(best, value)
    return best


def mean(values):
    """Arithmetic mean of a list that is not empty."""
    return sum(values) / len(values)


# ------------------------------------------------------------------------------------------------ the batch


def batch(judgements, brought, self_negatives=None, *, one_row_per_docid=False):
    """Grades [B][D] and negatives [B][D] of a batch, from plain lists.

    Args:
        judgements: Per query docid → grade, everything that is judged, in the batch or not. Grades below 1
            mean not relevant.
        brought: Per query the docids it brings into the batch, all of them judged relevant to it.
        self_negatives: Per query docids that the model wrongly returned for it. They are extra members of
            that query's own A_q only: the other negatives are docids relevant to the rest of the queries.
        one_row_per_docid: A docid that several queries bring has one common row. Otherwise it has a row for
            each of them, as it must when its representation depends on the query it was decoded from, and
            the row of another query is neither a positive (it is not q's own) nor a negative (it is
            relevant to q).

    Returns:
        Grades and negatives.
    """
    self_negatives = self_negatives or [[] for _ in judgements]
    rows = []  # (docid, the queries that bring it, the query whose self-negative it is)
    for q, docids in enumerate(brought):
        for docid in docids:
            assert judgements[q].get(docid, 0) > 0
            common = [row for row in rows if row[0] == docid and one_row_per_docid]
            if common:
                common[0][1].append(q)
            else:
                rows.append((docid, [q], None))
    for q, docids in enumerate(self_negatives):
        rows.extend((docid, [], q) for docid in docids)
    grades = [[0] * len(rows) for _ in judgements]
    negatives = [[False] * len(rows) for _ in judgements]
    for q, judged in enumerate(judgements):
        for d, (docid, owners, returned_for) in enumerate(rows):
            if q in owners:
                grades[q][d] = judged[docid]
            elif judged.get(docid, 0) > 0:
                pass  # relevant to q: no negative, whoever brought it
            elif owners or returned_for == q:
                negatives[q][d] = True
    return grades, negatives


# ------------------------------------------------------------------------------------------------- the loss


def similarity(f_q, f_id, *, kind="cosine", temperature=0.1):
    """sim(f_q, f_id)/τ of every query and docid."""

    def dot(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    norms_q = [torch.sqrt(dot(query, query)) for query in f_q]
    norms_id = [torch.sqrt(dot(docid, docid)) for docid in f_id]
    table = []
    for query, norm_q in zip(f_q, norms_q, strict=True):
        row = []
        for docid, norm_id in zip(f_id, norms_id, strict=True):
            value = dot(query, docid)
            if kind == "cosine":
                value = value / (norm_q * norm_id)
            row.append(value / temperature)
        table.append(row)
    return table


def pair_loss(similarities, grades, negatives):
    """ℓ(q,id) = −log(exp(sim of id) / Σ over A_q of exp(sim)); 0 where id is not q's own."""
    table = []
    for q, row in enumerate(similarities):
        members = [d for d in range(len(row)) if grades[q][d] > 0 or negatives[q][d]]
        losses = [0.0] * len(row)
        if members:
            shift = max(number(row[d]) for d in members)
            total = sum(torch.exp(row[d] - shift) for d in members)
            for d in members:
                if grades[q][d] > 0:
                    losses[d] = torch.log(total) - (row[d] - shift)
        table.append(losses)
    return table


def present(grades_of_query):
    """The grades a query has docids of, highest first."""
    return sorted({g for g in grades_of_query if g > 0}, reverse=True)


def of_grade(grades_of_query, grade):
    """The columns of a query's docids of one grade."""
    return [d for d, g in enumerate(grades_of_query) if g == grade]


def grade_constraint(pair, grades, *, mode="pair"):
    """ℓ' of every pair: no less than the loss of the next higher grade present, by one of four readings."""
    table = []
    for losses, of_query in zip(pair, grades, strict=True):
        constrained = list(losses)
        order = present(of_query)
        if mode == "next":  # the next higher grade's ℓ as it came, so the bound reaches one grade down only
            for above, grade in zip(order, order[1:], strict=False):
                bound = largest([losses[d] for d in of_grade(of_query, above)])
                for d in of_grade(of_query, grade):
                    constrained[d] = larger(losses[d], bound)
        elif mode == "pair":  # the next higher grade's ℓ', so the bound reaches all the way down
            for above, grade in zip(order, order[1:], strict=False):
                bound = largest([constrained[d] for d in of_grade(of_query, above)])
                for d in of_grade(of_query, grade):
                    constrained[d] = larger(losses[d], bound)
        elif mode == "level_mean":  # the largest mean ℓ of any higher grade
            bound = -math.inf
            for grade in order:
                for d in of_grade(of_query, grade):
                    constrained[d] = larger(losses[d], bound)
                bound = larger(mean([losses[d] for d in of_grade(of_query, grade)]), bound)
        else:
            assert mode == "off"
        table.append(constrained)
    return table


def grade_penalty(levels, *, reading="prose"):
    """λ of grade 1, 2, … L."""
    weights = []
    for grade in range(1, levels + 1):
        if reading == "prose":
            weights.append(1 / (levels - grade + 1) ** 2)
        elif reading == "literal":
            weights.append(1 / grade**2)
        elif reading == "pow2":
            weights.append(2 ** (1 / grade))
        else:
            assert reading == "uniform"
            weights.append(1.0)
    return weights


def mgcc(similarities, grades, negatives, *, levels, penalty="prose", constraint="pair"):
    """Per query 1/L Σ_l λ_l · mean over its docids of grade l of ℓ'; an empty grade adds nothing."""
    constrained = grade_constraint(pair_loss(similarities, grades, negatives), grades, mode=constraint)
    return mgcc_of_constrained(constrained, grades, levels=levels, penalty=penalty)


def mgcc_of_constrained(constrained, grades, *, levels, penalty):
    """The last step of `mgcc`, where ℓ' is at hand."""
    weights = grade_penalty(levels, reading=penalty)
    result = []
    for losses, of_query in zip(constrained, grades, strict=True):
        total = 0.0
        for grade in range(1, levels + 1):
            columns = of_grade(of_query, grade)
            if columns:
                total = total + weights[grade - 1] * mean([losses[d] for d in columns])
        result.append(total / levels)
    return result


# --------------------------------------------------------------------------------- losses on log-likelihoods


def mle_q(log_likelihoods, grades, *, levels):
    """Per query 1/L Σ_l mean over its docids of grade l of −log P; an empty grade adds nothing."""
    result = []
    for of_query in grades:
        total = 0.0
        for grade in range(1, levels + 1):
            columns = of_grade(of_query, grade)
            if columns:
                total = total + mean([-log_likelihoods[d] for d in columns])
        result.append(total / levels)
    return result


def weighted_ce(log_likelihoods, grades):
    """Per query Σ g/Σg · −log P; 0 without docids."""
    result = []
    for of_query in grades:
        total = 0.0
        for d, grade in enumerate(of_query):
            if grade > 0:
                total = total + grade / sum(of_query) * -log_likelihoods[d]
        result.append(total)
    return result


def lambda_rank(scores, grades, *, sigma=1.0):
    """Per query the mean over its pairs g_i > g_j of |ΔnDCG of swapping them|·log(1 + exp(−σ(s_i − s_j))).

    nDCG is computed twice, before and after the swap, and subtracted: no formula for the difference.
    """

    def dcg(gains):
        return sum((2**g - 1) / math.log2(1 + rank) for rank, g in enumerate(gains, start=1))

    result = []
    for of_query in grades:
        own = [d for d, g in enumerate(of_query) if g > 0]
        ranking = sorted(own, key=lambda d: -number(scores[d]))
        ideal = dcg(sorted((of_query[d] for d in own), reverse=True))
        total, pairs = 0.0, 0
        for i in own:
            for j in own:
                if of_query[i] > of_query[j]:
                    swapped = [{i: j, j: i}.get(d, d) for d in ranking]
                    before = dcg([of_query[d] for d in ranking]) / ideal
                    after = dcg([of_query[d] for d in swapped]) / ideal
                    margin = sigma * (scores[i] - scores[j])
                    if number(margin) < 0:  # log(1 + exp(−m)) = −m + log(1 + exp(m)): never a large exponent
                        cost = -margin + torch.log(1 + torch.exp(margin))
                    else:
                        cost = torch.log(1 + torch.exp(-margin))
                    total = total + abs(after - before) * cost
                    pairs += 1
        result.append(total / pairs if pairs else 0.0)
    return result
