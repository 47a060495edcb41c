"""Codes as text and as tokens: every place has its own, digits come behind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gr2.docids.codes import code_tokeniser, count, written


@given(st.lists(st.integers(2, 300), min_size=1, max_size=6).flatmap(
    lambda sizes: st.tuples(st.just(sizes), st.tuples(*(st.integers(0, size - 1) for size in sizes)))
), st.integers(0, 999))  # fmt: skip
def test_each_place_has_codes_of_its_own_and_digits_come_behind(made_of, number):
    sizes, codes = made_of
    text = written(codes)
    assert text == "-".join(map(str, codes))
    numbered = f"{text} {number}"
    plain, more = code_tokeniser(sizes)([text, numbered])
    assert [token - sum(sizes[:place]) for place, token in enumerate(plain)] == list(codes)
    assert more == plain + [sum(sizes) + int(digit) for digit in str(number)]
    assert max(more) < count(sizes) == sum(sizes) + 10
    every = [range(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes))]
    assert all(token in place for token, place in zip(plain, every, strict=True))


def test_fewer_codes_than_places_are_a_path_that_ends_early():
    assert code_tokeniser([3, 3, 3])(["2", "2-1", "2-1-0 7"]) == [[2], [2, 4], [2, 4, 6, 9 + 7]]
    assert code_tokeniser([3])([]) == []


@pytest.mark.parametrize("text", ["3-0", "0-3", "0-0-0", "-1", "", "a", "0--1", "0-0 x", "0-", "0 1 2"])
def test_what_is_no_code_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011
        code_tokeniser([3, 3])([text])


def test_a_code_out_of_range_says_what_was_expected():
    with pytest.raises(ValueError, match="at most 2 codes below 20, found '3-17-1'"):
        code_tokeniser([10, 20])(["3-17-1"])
    with pytest.raises(ValueError, match="found '10-1'"):
        code_tokeniser([10, 20])(["10-1"])
