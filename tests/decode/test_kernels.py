"""Each compiled loop against its torch twin on the CPU, which is what other devices run.

Both compute in float32 and differ only in the order of sums: agreement to 1e-5, relative and absolute.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gr2.decode import kernels

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
sizes = st.integers(1, 9)
seeds = st.integers(0, 2**31)


def drawn(seed, *shape, size=1.0):
    return size * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(rows=st.integers(0, 9), width=st.integers(1, 70), size=st.sampled_from([1e-3, 1.0, 100.0]), seed=seeds)
def test_rms_norm(rows, width, size, seed):
    x, weight = drawn(seed, rows, width, size=size), drawn(seed + 1, width)
    expected = kernels.rms_norm_torch(x, weight, 1e-6)
    torch.testing.assert_close(kernels.rms_norm_compiled(x, weight, 1e-6), expected, **CLOSE)


@given(rows=sizes, others=sizes, width=st.integers(1, 70), pairs=st.integers(0, 40), seed=seeds)
def test_pair_dots(rows, others, width, pairs, seed):
    left, right = drawn(seed, rows, width), drawn(seed + 1, others, width)
    generator = torch.Generator().manual_seed(seed)
    at, to = (torch.randint(n, (pairs,), generator=generator) for n in (rows, others))
    expected = kernels.pair_dots_torch(left, at, right, to)
    torch.testing.assert_close(kernels.pair_dots_compiled(left, at, right, to), expected, **CLOSE)


def test_pair_dots_in_blocks(monkeypatch):
    """More pairs than torch copies at a time."""
    left, right = drawn(0, 7, 5), drawn(1, 6, 5)
    at, to = torch.arange(50) % 7, torch.arange(50) % 6
    whole = kernels.pair_dots_torch(left, at, right, to)
    monkeypatch.setattr(kernels, "PAIRS", 8)
    assert torch.equal(kernels.pair_dots_torch(left, at, right, to), whole)
    torch.testing.assert_close(whole, (left @ right.T)[at, to], **CLOSE)


@given(cells=sizes, new=sizes, heads=st.integers(1, 4), width=st.integers(1, 12), most=sizes, seed=seeds)
def test_attend(cells, new, heads, width, most, seed):
    query, keys, values = (drawn(seed + i, n, heads * width) for i, n in enumerate((new, cells, cells)))
    bias = drawn(seed + 3, most + 2, heads)
    generator = torch.Generator().manual_seed(seed)
    length = torch.randint(1, most + 1, (new,), generator=generator)
    past = torch.randint(cells, (new, most), generator=generator)
    past[torch.arange(most) >= length[:, None]] = 10**9  # what lies behind the length must not be read
    arguments = (query, keys, values, past, length, bias, 0.7)
    expected = kernels.attend_torch(*arguments)
    torch.testing.assert_close(kernels.attend_compiled(*arguments), expected, **CLOSE)


def test_attend_to_strided_queries():
    """A step cuts its queries out of the product of queries, keys and values, so they are not contiguous."""
    joined = drawn(0, 4, 36)
    query, past, length = joined[:, :12], torch.tensor([[0], [1], [2], [3]]), torch.ones(4, dtype=torch.long)
    arguments = (query, joined[:, 12:24], joined[:, 24:], past, length, torch.zeros(1, 3), 1.0)
    for attend in (kernels.attend_compiled, kernels.attend_torch):
        torch.testing.assert_close(attend(*arguments), joined[:, 24:], **CLOSE)


@pytest.mark.parametrize("name", ["rms_norm", "pair_dots", "attend"])
def test_the_loops_run_for_single_precision_on_the_cpu_only(name, monkeypatch):
    for form in ("compiled", "torch"):
        monkeypatch.setattr(kernels, f"{name}_{form}", lambda *_, form=form: form)
    chosen = getattr(kernels, name)
    others = {"rms_norm": 2, "pair_dots": 3, "attend": 6}[name]
    single = torch.zeros(2, 2)
    assert chosen(single, *[None] * others) == "compiled"
    for other in (single.double(), single.bfloat16(), single.to("meta")):
        assert chosen(other, *[None] * others) == "torch"


def test_half_precision_is_squared_in_single_precision():
    """Squares of 300 overflow float16."""
    x = torch.full((1, 8), 300.0, dtype=torch.float16)
    assert torch.equal(
        kernels.rms_norm_torch(x, torch.ones(8, dtype=torch.float16), 1e-6), torch.ones_like(x)
    )
