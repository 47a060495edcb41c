"""Plain text → paragraphs, sentences, pieces of a few words, stemmed words: pure functions of a string."""

import re
from functools import cache
from typing import Any

WORD = re.compile(r"\w+")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")
PARAGRAPH_END = re.compile(r"\n\s*\n")


def paragraphs(text: str) -> list[str]:
    """Split at blank lines."""
    return [part.strip() for part in PARAGRAPH_END.split(text) if part.strip()]


def sentences(text: str) -> list[str]:
    """Split after a full stop, question mark or exclamation mark if a capital letter or digit follows.

    This rule needs no extra package and is fixed, so docids and training examples stay the same;
    `gr2.data.links.segmented` is the language-aware splitter for pre-training queries.

    >>> sentences("Cats purr. Dogs bark! e.g. loudly.")
    ['Cats purr.', 'Dogs bark! e.g. loudly.']
    """
    return [part.strip() for part in SENTENCE_END.split(" ".join(text.split())) if part.strip()]


def pieces(text: str, words: int, most: int) -> list[str]:
    """Consecutive pieces of `words` words; if there are more than `most`, evenly spaced ones are kept.

    >>> pieces("a b c d e", 2, 9)
    ['a b', 'c d', 'e']
    """
    split = text.split()
    starts = range(0, len(split), words)
    if len(starts) > most:
        starts = [starts[i * len(starts) // most] for i in range(most)]  # type: ignore[assignment]
    return [" ".join(split[start : start + words]) for start in starts]


@cache
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english")


def words(text: str) -> list[str]:
    """Lower-cased, stemmed words.

    >>> words("Merging sorted iterables")
    ['merg', 'sort', 'iter']
    """
    stems: list[str] = _stemmer().stemWords(WORD.findall(text.lower()))
    return stems
