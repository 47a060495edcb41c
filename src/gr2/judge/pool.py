"""Rankings of several systems for one query → one list to judge, which does not say who found what.

The list has the first `depth` documents of every system, each once. They come in rounds: first those that
some system ranked first, then those that some system ranked second, and so on; so somebody who stops early
has judged the best of every system. Within a round the order is that of a hash of query and document: it is
the same every time, and does not depend on the order of the systems or on how many found a document.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b


def pool(query: str, rankings: Iterable[Sequence[str]], depth: int) -> list[str]:
    """The docnos to judge for a query.

    Args:
        query: The text of the query.
        rankings: The docnos that each system found, best first.
        depth: How many of each system to take.

    >>> pool("sour fruit", [["lime", "fig", "kiwi"], ["lemon", "lime", "plum"]], depth=2)
    ['lime', 'lemon', 'fig']
    """
    if depth < 1:
        raise ValueError(f"expected a depth of at least 1, found {depth}")
    best: dict[str, int] = {}
    for ranking in rankings:
        for rank, docno in enumerate(ranking[:depth]):
            best[docno] = min(rank, best.get(docno, rank))
    return sorted(best, key=lambda docno: (best[docno], _mixed(query, docno)))


def _mixed(query: str, docno: str) -> bytes:
    text = f"{' '.join(query.split())}\n{docno}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
