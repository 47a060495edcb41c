"""The losses against plain loops, against torch, and against what the paper promises of them."""

from itertools import product
from math import exp, inf, isclose, log, log1p, log2

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from gr2.docids.trie import Trie
from gr2.training import likelihoods, losses

END = 1
CONSTRAINTS = ("pair", "next", "level_mean", "off")
PENALTIES = ("prose", "literal", "pow2", "uniform")
untimed = settings(deadline=None)


def batch(seed, *, queries=4, per_query=5, levels=3, dtype=torch.float64, width=6):
    """Representations, grades and negatives: each query has up to `per_query` docids, the first has none.

    Some docids of other queries are also relevant to q, and so they are neither its own nor its negatives.
    """
    random = torch.Generator().manual_seed(seed)
    rows = queries * per_query
    owner = torch.arange(rows) // per_query
    grades = torch.zeros(queries, rows, dtype=torch.long)
    drawn = torch.randint(0, levels + 1, (rows,), generator=random)
    grades[owner, torch.arange(rows)] = drawn
    grades[0] = 0
    negatives = (owner[None] != torch.arange(queries)[:, None]) & (
        torch.rand(grades.shape, generator=random) < 0.8
    )
    f_q = torch.randn(queries, width, generator=random, dtype=dtype)
    f_id = torch.randn(rows, width, generator=random, dtype=dtype)
    return f_q, f_id, grades, negatives


def similarities_of(seed, **options):
    f_q, f_id, grades, negatives = batch(seed, **options)
    return losses.similarity(f_q, f_id, temperature=1.0), grades, negatives


def check(function, *inputs):
    inputs = tuple(each.detach().clone().requires_grad_() for each in inputs)
    return torch.autograd.gradcheck(function, inputs, check_batched_grad=False)


# Gradients


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["cosine", "dot"])
def test_gradient_of_similarity(seed, kind):
    f_q, f_id, *_ = batch(seed)
    assert check(lambda q, d: losses.similarity(q, d, kind=kind), f_q, f_id)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_of_the_contrastive_losses(seed):
    s, grades, negatives = similarities_of(seed)
    assert check(lambda s: losses.pair_loss(s, grades, negatives), s)
    assert check(lambda s: losses.supervised_contrastive(s, grades, negatives), s)
    pair = losses.pair_loss(s, grades, negatives)
    for mode in CONSTRAINTS:
        assert check(lambda p, m=mode: losses.grade_constraint(p, grades, mode=m), pair)
        for penalty in PENALTIES:
            options = {"levels": 3, "penalty": penalty, "constraint": mode}
            assert check(lambda s, o=options: losses.mgcc(s, grades, negatives, **o), s)
    assert check(lambda s: losses.pair_loss(s, grades, negatives, against="lower"), s)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_of_the_likelihood_losses(seed):
    _, _, grades, _ = batch(seed)
    scores = -5 * torch.rand(grades.shape[1], dtype=torch.float64)
    assert check(lambda s: losses.mle_q(s, grades, levels=3), scores)
    assert check(losses.mle_d, scores)
    assert check(lambda s: losses.weighted_ce(s, grades), scores)
    assert check(lambda s: losses.listwise(s, grades), scores)
    assert check(lambda s: losses.soft_ce(s, losses.grade_weights(grades, 3)), scores)
    assert check(lambda s: losses.lambda_rank(s, grades, sigma=0.7), scores)
    assert check(lambda a, b, c: losses.total(a, b, c, gamma=0.3), scores[:3], scores[3:6], scores[6:])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_of_the_likelihoods(smoothing):
    logits, tokens, mask = texts(0, torch.float64)
    assert check(lambda x: likelihoods.log_likelihood(x, tokens, mask, smoothing=smoothing), logits)
    logits, position, token, target = trie_steps(0, torch.float64)
    assert check(
        lambda x: likelihoods.trie_log_likelihood(x, position, token, target, smoothing=smoothing),
        logits[:, :12],
    )


# Similarity and pair loss


def test_similarity_is_the_cosine_over_the_temperature():
    f_q, f_id, *_ = batch(0)
    expected = F.cosine_similarity(f_q[:, None], f_id[None], dim=-1)
    torch.testing.assert_close(losses.similarity(f_q, f_id), expected / 0.1)
    torch.testing.assert_close(losses.similarity(f_q, f_id, kind="dot", temperature=2.0), f_q @ f_id.T / 2)
    torch.testing.assert_close(losses.similarity(f_q * 1e-9, f_id * 1e9), expected / 0.1)


def test_a_vector_of_zeros_has_no_similarity_and_a_small_gradient():
    f_q, f_id, *_ = batch(0, dtype=torch.float32)
    f_q[1] = 0
    f_q.requires_grad_()
    s = losses.similarity(f_q, f_id)
    assert (s[1] == 0).all()
    s.sum().backward()
    assert f_q.grad.isfinite().all() and f_q.grad.abs().max() < 1e4


@pytest.mark.parametrize("seed", range(10))
def test_pair_loss_against_loops(seed):
    s, grades, negatives = similarities_of(seed)
    pair = losses.pair_loss(s, grades, negatives)
    for q, d in product(range(s.shape[0]), range(s.shape[1])):
        if grades[q, d] == 0:
            assert pair[q, d] == 0
            continue
        among = [a for a in range(s.shape[1]) if grades[q, a] > 0 or negatives[q, a]]
        expected = log(sum(exp(s[q, a]) for a in among)) - float(s[q, d])
        assert isclose(float(pair[q, d]), expected, rel_tol=1e-12)


def test_a_docid_outside_of_the_candidates_does_not_matter():
    s, grades, negatives = similarities_of(1)
    outside = (grades == 0) & ~negatives
    assert outside.any()
    for junk in (inf, -inf, 1e30, float("nan")):
        for against in ("all", "lower"):
            changed = s.masked_fill(outside, junk).requires_grad_()
            loss = losses.mgcc(changed, grades, negatives, levels=3, against=against)
            torch.testing.assert_close(loss, losses.mgcc(s, grades, negatives, levels=3, against=against))
            loss.sum().backward()
            assert changed.grad.isfinite().all() and (changed.grad[outside] == 0).all()


# Grade constraint


graded_losses = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1e4)), max_size=12
)


def blocks(queries):
    """The (grade, loss) of each query's docids as one batch: [B, D], 0 for the docids of other queries."""
    pair = [torch.tensor([[loss for _, loss in rows]], dtype=torch.float64) for rows in queries]
    grades = [torch.tensor([[float(grade) for grade, _ in rows]]) for rows in queries]
    return torch.block_diag(*pair), torch.block_diag(*grades).long()


@untimed
@given(st.lists(graded_losses, min_size=1, max_size=3), st.sampled_from(CONSTRAINTS))
@example([[(3, 0.9), (1, 0.1)], [(2, 0.5)]], "next")  # a grade that only another query has
def test_constraint_against_loops(queries, mode):
    pair, grades = blocks(queries)
    after = losses.grade_constraint(pair, grades, mode=mode)
    assert torch.equal(after[grades == 0], pair[grades == 0])
    offset = 0
    for q, rows in enumerate(queries):
        by_grade = {grade: [loss for g, loss in rows if g == grade] for grade, _ in rows if grade > 0}
        for d, (grade, loss) in enumerate(rows, offset):
            higher = [by_grade[g] for g in sorted(by_grade) if g > grade] if grade else []
            bounds = {
                "pair": [max(level) for level in higher],
                "next": [max(level) for level in higher[:1]],
                "level_mean": [sum(level) / len(level) for level in higher],
                "off": [],
            }
            assert isclose(float(after[q, d]), max([loss, *bounds[mode]]), rel_tol=1e-12)
            if grade == max(by_grade, default=0):
                assert after[q, d] == loss  # the top grade is unchanged
        offset += len(rows)


@untimed
@given(graded_losses)
def test_after_the_constraint_no_higher_grade_has_a_higher_loss(rows):
    grades = torch.tensor([[grade for grade, _ in rows]], dtype=torch.long)
    pair = torch.tensor([[loss for _, loss in rows]])
    after = losses.grade_constraint(pair, grades)[0].tolist()
    own = [(grade, loss) for (grade, _), loss in zip(rows, after, strict=True) if grade > 0]
    assert all(a <= b for (g, a), (h, b) in product(own, own) if g > h)


def test_one_step_breaks_the_promise_with_three_grades_and_keeps_it_with_two():
    pair, grades = torch.tensor([[0.9, 0.1, 0.3]]), torch.tensor([[3, 2, 1]])
    assert losses.grade_constraint(pair, grades, mode="next").tolist() == [pytest.approx([0.9, 0.9, 0.3])]
    assert losses.grade_constraint(pair, grades, mode="pair").tolist() == [pytest.approx([0.9, 0.9, 0.9])]
    for seed in range(20):
        s, grades, negatives = similarities_of(seed, levels=2)
        pair = losses.pair_loss(s, grades, negatives)
        same = [losses.grade_constraint(pair, grades, mode=mode) for mode in ("pair", "next")]
        assert torch.equal(*same)


def test_the_gradient_goes_to_the_larger_side_and_is_shared_on_ties():
    def gradient(values, grades, mode="pair"):
        pair = torch.tensor([values], requires_grad=True)
        losses.grade_constraint(pair, torch.tensor([grades]), mode=mode)[0, -1].backward()
        return pair.grad[0].tolist()

    assert gradient([0.9, 0.2, 0.1], [3, 2, 1]) == [1, 0, 0]
    assert gradient([0.9, 0.2, 0.1], [3, 2, 1], "next") == [0, 1, 0]
    assert gradient([0.9, 0.2, 1.1], [3, 2, 1]) == [0, 0, 1]
    assert gradient([0.9, 0.5, 0.1], [2, 2, 1], "level_mean") == [0.5, 0.5, 0]
    assert gradient([0.9, 0.9], [2, 1]) == [0.5, 0.5]  # a tie of the two sides
    assert gradient([0.9, 0.9, 0.1], [2, 2, 1]) == [0.5, 0.5, 0]  # a tie of those that set the bound


# Grade penalty and MGCC


def test_penalties():
    quarter, ninth = 1 / 4, 1 / 9
    expected = {
        "prose": [ninth, quarter, 1],
        "literal": [1, quarter, ninth],
        "pow2": [2, 2 ** (1 / 2), 2 ** (1 / 3)],
        "uniform": [1, 1, 1],
    }
    for reading, values in expected.items():
        assert losses.grade_penalty(3, reading=reading).tolist() == pytest.approx(values, rel=1e-15)
    assert torch.equal(losses.grade_penalty(3), losses.grade_penalty(3, reading="prose"))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("penalty", ["prose", "literal", "uniform"])
def test_one_grade_is_the_supervised_contrastive_loss(penalty, constraint):
    for seed in range(5):
        s, grades, negatives = similarities_of(seed, levels=1)
        loss = losses.mgcc(s, grades, negatives, levels=1, penalty=penalty, constraint=constraint)
        torch.testing.assert_close(loss, losses.supervised_contrastive(s, grades, negatives))
        for q in range(len(s)):  # SupCon (its L_out), written down anew
            positives, among = s[q, grades[q] > 0], s[q, (grades[q] > 0) | negatives[q]]
            expected = (
                -torch.stack([p - among.logsumexp(0) for p in positives]).mean() if len(positives) else 0
            )
            assert isclose(float(loss[q]), float(expected), rel_tol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("constraint", "penalty"), list(product(CONSTRAINTS, PENALTIES)))
def test_mgcc_against_loops_over_its_parts(seed, constraint, penalty):
    s, grades, negatives = similarities_of(seed)
    pair = losses.grade_constraint(losses.pair_loss(s, grades, negatives), grades, mode=constraint)
    loss = losses.mgcc(s, grades, negatives, levels=4, penalty=penalty, constraint=constraint)  # 4 is absent
    weights = losses.grade_penalty(4, reading=penalty).tolist()
    for q in range(len(s)):
        expected = 0.0
        for grade in (1, 2, 3, 4):
            own = pair[q, grades[q] == grade].tolist()
            expected += weights[grade - 1] * sum(own) / max(1, len(own)) / 4
        assert isclose(float(loss[q]), expected, rel_tol=1e-12)
    assert loss[0] == 0  # it has no docids


def test_variants_differ_where_they_must_and_agree_where_they_must():
    # One docid per grade; the better, the less similar: the constraint binds, the penalty tells grades apart.
    similarities, grades = torch.tensor([[1.0, 2.0, 4.0, 0.0]]), torch.tensor([[3, 2, 1, 0]])

    def every(similarities, grades):
        return {
            (penalty, constraint): float(
                losses.mgcc(
                    similarities, grades, grades == 0, levels=3, penalty=penalty, constraint=constraint
                ).detach()
            )
            for penalty, constraint in product(PENALTIES, CONSTRAINTS)
        }

    wrong = every(similarities, grades)
    for penalty in PENALTIES:
        assert wrong[penalty, "pair"] > wrong[penalty, "next"] > wrong[penalty, "off"]
        assert wrong[penalty, "pair"] == pytest.approx(wrong[penalty, "level_mean"])  # one docid per grade
    for constraint in (
        "next",
        "off",
    ):  # under "pair" all losses here are equal, and so 1/l² sums as its mirror
        assert len({round(wrong[penalty, constraint], 5) for penalty in PENALTIES}) == len(PENALTIES)
    # In the right order the constraint never binds.
    right = every(torch.tensor([[4.0, 2.0, 1.0, 0.0]]), grades)
    for penalty in PENALTIES:
        assert len({right[penalty, constraint] for constraint in CONSTRAINTS}) == 1
    assert right["prose", "pair"] < right["literal", "pair"]
    # Docids of the top grade only: the prose's penalty is 1 there, as if there was none.
    top = every(similarities, grades.clamp_max(1) * 3)
    assert len({top["prose", constraint] for constraint in CONSTRAINTS}) == 1
    assert top["prose", "pair"] == top["uniform", "pair"] != top["literal", "pair"]


def test_level_mean_lies_between_the_others():
    s, grades, negatives = similarities_of(3, per_query=12)
    loss = {mode: losses.mgcc(s, grades, negatives, levels=3, constraint=mode) for mode in CONSTRAINTS}
    assert (loss["off"][1:] < loss["level_mean"][1:]).all()
    assert (loss["level_mean"][1:] < loss["pair"][1:]).all()


# Likelihoods


def texts(seed, dtype, *, rows=5, steps=4, vocabulary=7):
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, steps, vocabulary, generator=random, dtype=dtype)
    tokens = torch.randint(0, vocabulary, (rows, steps), generator=random)
    mask = torch.arange(steps) < torch.randint(1, steps + 1, (rows, 1), generator=random)
    mask[1] = False  # a row of padding alone
    return logits, tokens, mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_log_likelihood_is_torchs_cross_entropy(smoothing, dtype):
    logits, tokens, mask = texts(0, dtype)
    assert not mask.all() and mask.any()
    ours = likelihoods.log_likelihood(logits, tokens, mask, smoothing=smoothing)
    for row in range(len(logits)):
        real = int(mask[row].sum())
        loss = F.cross_entropy(
            logits[row, :real], tokens[row, :real], reduction="sum", label_smoothing=smoothing
        )
        torch.testing.assert_close(ours[row], -loss)
    assert ours.dtype == dtype and ours[1] == 0


def test_log_likelihood_is_a_sum_of_log_probabilities_and_ignores_padding():
    logits, tokens, mask = texts(1, torch.float64)
    chosen = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    expected = (chosen * mask).sum(1)
    torch.testing.assert_close(likelihoods.log_likelihood(logits, tokens, mask), expected)
    padded = tokens.masked_fill(~mask, -7)  # no token at all
    torch.testing.assert_close(likelihoods.log_likelihood(logits, padded, mask), expected)
    banned = torch.full_like(logits, -inf).scatter(-1, tokens[..., None], 0.0).requires_grad_()
    loss = likelihoods.log_likelihood(banned, tokens, mask)
    loss.sum().backward()
    assert (loss == 0).all() and banned.grad.isfinite().all()


def trie_steps(seed, dtype, *, docids=30, tokens=10):
    """Every step of every docid of a random trie: logits, children and the token taken."""
    random = np.random.default_rng(seed)
    rows = {tuple(random.integers(2, 2 + tokens, random.integers(1, 7)).tolist()) for _ in range(docids)}
    trie = Trie.from_sequences(sorted(rows), end=END)
    nodes, target = [], []
    for index in range(len(trie)):
        path = [*trie.tokens(index).tolist(), END]
        nodes += [trie.find(path[:step]) for step in range(len(path))]
        target += path
    position, token, _ = trie.children(nodes)
    logits = torch.randn(
        len(nodes), 2 + tokens + 5, generator=torch.Generator().manual_seed(seed), dtype=dtype
    )
    return logits, torch.from_numpy(position), torch.from_numpy(token), torch.tensor(target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])
@pytest.mark.parametrize("seed", range(3))
def test_trie_log_likelihood_is_the_softmax_over_children(seed, smoothing, dtype):
    logits, position, token, target = trie_steps(seed, dtype)
    logits = (50 * logits).requires_grad_()  # far apart, so that a naive exponential overflows
    ours = likelihoods.trie_log_likelihood(logits, position, token, target, smoothing=smoothing)
    forced = torch.bincount(position) == 1
    assert forced.any() and not forced.all()
    for step in range(len(target)):
        children = token[position == step]
        taken = (children == target[step]).nonzero()[0]
        loss = F.cross_entropy(logits[step, children][None], taken, label_smoothing=smoothing)
        torch.testing.assert_close(ours[step], -loss, rtol=1e-5, atol=1e-5)
    assert (ours[forced] == 0).all() and ours.dtype == dtype
    (ours * torch.rand(len(ours), dtype=dtype)).sum().backward()  # uneven, so that rounding would show
    allowed = torch.zeros_like(logits, dtype=torch.bool).index_put((position, token), torch.tensor(True))
    assert (logits.grad[forced] == 0).all() and (logits.grad[~allowed] == 0).all()
    assert logits.grad.isfinite().all() and (logits.grad[~forced] != 0).any()


def test_trie_log_likelihood_does_not_depend_on_the_order_of_children():
    logits, position, token, target = trie_steps(0, torch.float64)
    order = torch.randperm(len(token), generator=torch.Generator().manual_seed(0))
    options = {"smoothing": 0.2}
    torch.testing.assert_close(
        likelihoods.trie_log_likelihood(logits, position[order], token[order], target, **options),
        likelihoods.trie_log_likelihood(logits, position, token, target, **options),
    )


def test_the_trie_normaliser_gives_all_probability_to_docids():
    trie = Trie.from_sequences([[5, 7], [5], [5, 7, 9], [8, 8]], end=END)
    table = torch.randn(trie.nodes, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mass = 0.0
    for index in range(len(trie)):
        path = [*trie.tokens(index).tolist(), END]
        nodes = [trie.find(path[:step]) for step in range(len(path))]
        position, token, _ = (torch.from_numpy(each) for each in trie.children(nodes))
        mass += exp(likelihoods.trie_log_likelihood(table[nodes], position, token, torch.tensor(path)).sum())
    assert isclose(mass, 1, rel_tol=1e-12)


def test_a_target_that_is_no_child_is_refused():
    logits, position, token, target = trie_steps(0, torch.float64)
    target[3] = 16
    with pytest.raises(ValueError, match=r"step 3: target 16 .* child"):
        likelihoods.trie_log_likelihood(logits, position, token, target)


# Losses on likelihoods


@pytest.mark.parametrize("seed", range(5))
def test_mle_and_ce_against_loops(seed):
    _, _, grades, _ = batch(seed)
    scores = -5 * torch.rand(
        grades.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    mle, ce = losses.mle_q(scores, grades, levels=3), losses.weighted_ce(scores, grades)
    for q, row in enumerate(grades.tolist()):
        own = [(grade, -score) for grade, score in zip(row, scores.tolist(), strict=True) if grade > 0]
        per_grade = [[loss for grade, loss in own if grade == level] for level in (1, 2, 3)]
        expected = sum(sum(level) / max(1, len(level)) for level in per_grade) / 3
        assert isclose(float(mle[q]), expected, rel_tol=1e-12)
        expected = sum(grade * loss for grade, loss in own) / max(1, sum(grade for grade, _ in own))
        assert isclose(float(ce[q]), expected, rel_tol=1e-12)
    assert torch.equal(losses.mle_d(scores), -scores)


def test_mle_and_ce_agree_for_one_grade_and_differ_for_more():
    _, _, grades, _ = batch(0, levels=1)
    scores = -torch.rand(grades.shape[1], dtype=torch.float64)
    torch.testing.assert_close(losses.mle_q(scores, grades, levels=1), losses.weighted_ce(scores, grades))
    _, _, grades, _ = batch(0, levels=3)
    assert not torch.allclose(losses.mle_q(scores, grades, levels=3), losses.weighted_ce(scores, grades))


def test_an_impossible_docid_of_another_query_does_no_harm():
    grades = torch.tensor([[2, 1, 0], [0, 0, 1]])
    scores = torch.tensor([-1.0, -2.0, -inf], requires_grad=True)
    for loss in (
        losses.mle_q(scores, grades, levels=2),
        losses.weighted_ce(scores, grades),
        losses.listwise(scores, grades),
        losses.lambda_rank(scores, grades),
    ):
        scores.grad = None
        loss[0].backward()
        assert loss[0].isfinite() and scores.grad.isfinite().all()


def lambda_rank_by_loops(scores, grades, sigma):
    own = [d for d, grade in enumerate(grades) if grade > 0]
    ranked = sorted(own, key=lambda d: (-scores[d], d))
    discount = {d: 1 / log2(rank + 2) for rank, d in enumerate(ranked)}
    gain = {d: 2 ** grades[d] - 1 for d in own}
    ideal = sum(g / log2(rank + 2) for rank, g in enumerate(sorted(gain.values(), reverse=True)))
    dcg = sum(gain[d] * discount[d] for d in own)
    values = []
    for i, j in product(own, own):
        if grades[i] > grades[j]:
            swapped = {**discount, i: discount[j], j: discount[i]}
            change = abs(sum(gain[d] * swapped[d] for d in own) - dcg) / ideal
            values.append(change * log1p(exp(-sigma * (scores[i] - scores[j]))))
    return sum(values) / max(1, len(values))


@pytest.mark.parametrize("sigma", [1.0, 0.3])
@pytest.mark.parametrize("seed", range(10))
def test_lambda_rank_against_loops(seed, sigma):
    _, _, grades, _ = batch(seed, per_query=1 + seed, levels=1 + seed % 4)
    scores = -30 * torch.rand(
        grades.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    scores = scores.round(decimals=seed % 2)  # whole numbers, so that some are tied
    loss = losses.lambda_rank(scores, grades, sigma=sigma).tolist()
    for q, row in enumerate(grades.tolist()):
        assert isclose(loss[q], lambda_rank_by_loops(scores.tolist(), row, sigma), rel_tol=1e-9)


def test_lambda_rank_of_rows_gives_no_rank_to_what_is_not_judged():
    own = losses.lambda_rank_of_rows(torch.tensor([[0.0, 0.5]]), torch.tensor([[1, 2]]))
    with_others = losses.lambda_rank_of_rows(
        torch.tensor([[9.0, 0.0, 8.0, 0.5]]), torch.tensor([[0, 1, 0, 2]])
    )
    assert with_others.tolist() == own.tolist()


def test_lambda_rank_raises_the_better_docid():
    scores = torch.tensor([-4.0, -1.0], requires_grad=True)
    losses.lambda_rank(scores, torch.tensor([[2, 1]])).sum().backward()
    assert scores.grad[0] < 0 < scores.grad[1]


def test_total_weighs_and_averages():
    parts = torch.tensor([1.0, 3.0]), torch.tensor([5.0, 6.0]), torch.tensor([1.0, 2.0, 6.0])
    assert losses.total(*parts).item() == 2 + 5.5 + 3
    assert losses.total(*parts, gamma=0.5).item() == 1 + 5.5 + 3
    assert losses.total(*parts, gamma=0.0).item() == 5.5 + 3  # the MLE variant
    nothing = torch.tensor([])
    assert losses.total(torch.tensor([3.0]), nothing, nothing).item() == 3, "a single query, no text"
    twice = [torch.cat([part, part]) for part in parts]
    assert losses.total(*twice) == losses.total(*parts)  # batch size does not change the step


# Edge cases

EDGES = {
    "query without docids": [[2, 1, 0, 0], [0, 0, 0, 0]],
    "one docid": [[2, 0, 0, 0], [0, 1, 0, 0]],
    "all the same grade": [[2, 2, 0, 0], [0, 0, 2, 2]],
    "absent grades": [[3, 1, 0, 0], [0, 0, 2, 2]],
    "nothing at all": [[0, 0, 0, 0], [0, 0, 0, 0]],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_negatives", [True, False])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_edges_give_numbers_and_finite_gradients(edge, with_negatives, dtype):
    grades = torch.tensor(EDGES[edge])
    negatives = (grades == 0) & with_negatives
    raw = torch.tensor([[3.0, -2.0, 80.0, 1.0], [0.0, 0.0, -90.0, 1.0]], dtype=dtype)
    scores = torch.tensor([-1.0, -200.0, -3.0, -3.0], dtype=dtype, requires_grad=True)
    s = raw.clone().requires_grad_()
    values = [losses.pair_loss(s, grades, negatives), losses.supervised_contrastive(s, grades, negatives)]
    for penalty, constraint in product(PENALTIES, CONSTRAINTS):
        options = {"levels": 3, "penalty": penalty, "constraint": constraint}
        values.append(losses.mgcc(s, grades, negatives, **options))
    values += [losses.mle_q(scores, grades, levels=3), losses.weighted_ce(scores, grades)]
    values += [losses.lambda_rank(scores, grades), losses.listwise(scores, grades)]
    values.append(losses.mgcc(s, grades, negatives, levels=3, constraint="off", against="lower"))
    with torch.autograd.detect_anomaly(check_nan=True):  # no NaN on the way either
        for value in values:
            assert value.dtype == dtype and value.isfinite().all() and (value >= 0).all()
            s.grad = scores.grad = None
            value.sum().backward()
            for gradient in (s.grad, scores.grad):
                assert gradient is None or gradient.isfinite().all()
            if value.dim() == 1:
                assert (value[(grades > 0).sum(1) == 0] == 0).all()


def test_a_docid_alone_costs_nothing():
    s = torch.tensor([[-7.3, 2.0]], requires_grad=True)
    loss = losses.mgcc(s, torch.tensor([[1, 0]]), torch.tensor([[False, False]]), levels=1)
    loss.sum().backward()
    assert loss.tolist() == [0] and s.grad.tolist() == [[0, 0]]


@pytest.mark.parametrize(("queries", "rows"), [(2, 0), (0, 2), (0, 0)])
def test_empty_batches(queries, rows):
    s, grades = torch.zeros(queries, rows), torch.zeros(queries, rows, dtype=torch.long)
    assert losses.similarity(torch.zeros(queries, 3), torch.zeros(rows, 3)).shape == (queries, rows)
    per_query = [
        losses.mgcc(s, grades, grades > 0, levels=2),
        losses.supervised_contrastive(s, grades, grades > 0),
        losses.mle_q(torch.zeros(rows), grades, levels=2),
        losses.mgcc(s, grades, grades > 0, levels=2, against="lower"),
        losses.weighted_ce(torch.zeros(rows), grades),
        losses.listwise(torch.zeros(rows), grades),
        losses.lambda_rank(torch.zeros(rows), grades),
    ]
    assert all(torch.equal(loss, torch.zeros(queries)) for loss in per_query)
    assert losses.total(per_query[0], per_query[2], torch.zeros(0)) == 0
    nothing = torch.zeros(0, dtype=torch.long)
    assert likelihoods.trie_log_likelihood(torch.zeros(0, 5), nothing, nothing, nothing).shape == (0,)
    assert likelihoods.log_likelihood(
        torch.zeros(0, 2, 5), torch.zeros(0, 2), torch.ones(0, 2) > 0
    ).shape == (0,)


def test_misspelt_switches_and_grades_beyond_the_levels_are_refused():
    s, grades, negatives = similarities_of(0)
    with pytest.raises(ValueError, match="kind must be one of cosine, dot, not 'euclid'"):
        losses.similarity(s, s, kind="euclid")
    with pytest.raises(ValueError, match="mode must be one of pair, next, level_mean, off"):
        losses.mgcc(s, grades, negatives, levels=3, constraint="max")
    with pytest.raises(ValueError, match="reading must be one of"):
        losses.mgcc(s, grades, negatives, levels=3, penalty="square")
    with pytest.raises(ValueError, match="levels is 2, but a docid of the batch has grade 3"):
        losses.mgcc(s, grades, negatives, levels=2)
    with pytest.raises(ValueError, match="levels is 2"):
        losses.mle_q(torch.zeros(s.shape[1]), grades, levels=2)
