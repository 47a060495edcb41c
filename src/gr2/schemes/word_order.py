"""The words of a docid in the order in which a decoder writes them.

Questions begin alike (`what are the treatments for ...`), so their first tokens hardly tell documents apart,
and a beam spends its places on them. With the rarest words first the decoder begins with the subject. Only
the tokens change: people still see the text as it was proposed.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from gr2.docids.docids import Tokenise


def rarest_first(texts: Iterable[str]) -> Callable[[str], str]:
    """A function that puts the words of a text first that the fewest of these texts contain.

    Words in equally many texts keep their order. Unknown words, such as the number after a clash, come last.

    >>> rarest_first(["what is a lemon", "what is a lime"])("what is a lime 2")
    'lime what is a 2'
    """
    having = Counter(word for text in texts for word in set(text.split()))
    unknown = having.total() + 1

    def ordered(text: str) -> str:
        return " ".join(sorted(text.split(), key=lambda word: having[word] or unknown))

    return ordered


def tokenise_ordered(tokenise: Tokenise, ordered: Callable[[str], str]) -> Tokenise:
    """A tokenizer that reads the words of each text in another order."""
    return lambda texts: tokenise([ordered(text) for text in texts])
