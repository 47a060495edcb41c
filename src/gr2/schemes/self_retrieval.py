"""Self-retrieval: does BM25 find a document when the text of its docid is the query?"""

from collections.abc import Mapping, Sequence

from gr2.bm25 import BM25, BM25Config

CUT = 100
"""Depth of the search; a document ranked lower counts as not found."""
SETTINGS = BM25Config(k1=0.9, b=0.4)
"""BM25 parameters of the search."""
BATCH = 1000
"""Texts searched for at a time; the rankings of a whole corpus might not fit in memory."""


def reciprocal_ranks(texts: Mapping[str, str], index: BM25, *, progress: bool = False) -> dict[str, float]:
    """1 / rank of each document when the text of its docid (docno → text) is the query; 0 if not found."""
    rows = {docno: [text] for docno, text in texts.items()}
    return {docno: row[0] for docno, row in all_reciprocal_ranks(rows, index, progress=progress).items()}


def all_reciprocal_ranks(
    texts: Mapping[str, Sequence[str]], index: BM25, *, progress: bool = False
) -> dict[str, list[float]]:
    """The same for several texts of each document."""
    from tqdm import tqdm

    pairs = [(docno, text) for docno in sorted(texts) for text in texts[docno]]
    ranks: dict[str, list[float]] = {docno: [] for docno in sorted(texts)}
    for start in tqdm(range(0, len(pairs), BATCH), leave=False, disable=not progress):
        part = pairs[start : start + BATCH]
        run = index.search({str(place): text for place, (_, text) in enumerate(part)}, CUT)
        for place, (docno, _) in enumerate(part):
            found = run.docnos(str(place))
            ranks[docno].append(1 / (1 + found.index(docno)) if docno in found else 0.0)
    return ranks
