"""Codes ↔ text: docids such as `3-17-4`, position by position, and the numbers that keep them apart.

Each place of a docid has codes of its own (place 0: 0 to k - 1, place 1: k to 2k - 1, ...), so that a token
says where it stands (NCI's position-aware tokens). A number behind the codes, given by the clash rule, is
written in decimal digits, which are ten more codes at the end. This file knows no vectors and no model.
"""

import re
from collections.abc import Sequence

from gr2.docids import Tokenise

DIGITS = 10
CODES = re.compile(r"[0-9]+(-[0-9]+)*( [0-9]+)?")


def written(codes: Sequence[int]) -> str:
    """Codes as the text of a docid.

    >>> written([3, 17, 4])
    '3-17-4'
    """
    return "-".join(map(str, codes))


def code_tokeniser(sizes: Sequence[int]) -> Tokenise:
    """Read docids whose place i has `sizes[i]` codes.

    >>> code_tokeniser([10, 20])(["3-17", "3-17 2"])
    [[3, 27], [3, 27, 32]]
    """
    offsets = [sum(sizes[:place]) for place in range(len(sizes) + 1)]

    def read(text: str) -> list[int]:
        path, _, number = text.partition(" ")
        if not CODES.fullmatch(text):
            raise ValueError(
                f"expected codes such as 3-17-4, and perhaps a number behind them, found {text!r}"
            )
        codes = [int(code) for code in path.split("-")]
        if len(codes) > len(sizes) or any(not 0 <= c < n for c, n in zip(codes, sizes, strict=False)):
            raise ValueError(f"expected at most {len(sizes)} codes below {max(sizes)}, found {text!r}")
        tokens = [offset + code for offset, code in zip(offsets, codes, strict=False)]
        return tokens + [offsets[-1] + int(digit) for digit in number]

    return lambda texts: [read(text) for text in texts]


def count(sizes: Sequence[int]) -> int:
    """How many codes there are, digits included."""
    return sum(sizes) + DIGITS
