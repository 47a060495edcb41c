"""Codes ↔ text: docids such as `3-17-4`, and the numbers that make them unique.

Each position of a docid has its own codes (position 0: 0 to k - 1, position 1: k to 2k - 1, ...), so a token
determines its position (NCI's position-aware tokens). A number appended by the clash rule is written in
decimal digits, which are ten more codes after all others.
"""

import re
from collections.abc import Sequence

from gr2.docids.docids import Tokenise

DIGITS = 10
CODES_WORDS = "codes-words"
"""The scheme whose documents are codes and their best words (`gr2.model.codes_words`)."""
KEPT_WORDS = "kept words"
"""Where the docids of this scheme say how many words of a document are kept."""
CODES = re.compile(r"[0-9]+(-[0-9]+)*( [0-9]+)?")


def written(codes: Sequence[int]) -> str:
    """The text of a docid made of codes.

    >>> written([3, 17, 4])
    '3-17-4'
    """
    return "-".join(map(str, codes))


def code_tokeniser(sizes: Sequence[int]) -> Tokenise:
    """A tokenizer for docids whose position i has `sizes[i]` codes.

    >>> code_tokeniser([10, 20])(["3-17", "3-17 2"])
    [[3, 27], [3, 27, 32]]
    """
    offsets = [sum(sizes[:place]) for place in range(len(sizes) + 1)]

    def read(text: str) -> list[int]:
        path, _, number = text.partition(" ")
        if not CODES.fullmatch(text):
            raise ValueError(
                f"expected codes such as 3-17-4, optionally followed by a number, found {text!r}"
            )
        codes = [int(code) for code in path.split("-")]
        if len(codes) > len(sizes) or any(not 0 <= c < n for c, n in zip(codes, sizes, strict=False)):
            raise ValueError(f"expected at most {len(sizes)} codes below {max(sizes)}, found {text!r}")
        tokens = [offset + code for offset, code in zip(offsets, codes, strict=False)]
        return tokens + [offsets[-1] + int(digit) for digit in number]

    return lambda texts: [read(text) for text in texts]


def count(sizes: Sequence[int]) -> int:
    """The number of different codes, digits included."""
    return sum(sizes) + DIGITS
