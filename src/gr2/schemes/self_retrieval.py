"""Self-retrieval: does BM25 find a document when the text of its docid is the query?"""

from collections.abc import Mapping

from gr2.bm25 import BM25, BM25Config

CUT = 100
"""Depth of the search; a document ranked lower counts as not found."""
SETTINGS = BM25Config(k1=0.9, b=0.4)
"""BM25 parameters of the search."""
BATCH = 1000
"""Docids searched for at a time; the rankings of a whole corpus might not fit in memory."""


def reciprocal_ranks(texts: Mapping[str, str], index: BM25, *, progress: bool = False) -> dict[str, float]:
    """1 / rank of each document when the text of its docid (docno → text) is the query; 0 if not found."""
    from tqdm import tqdm

    docnos, ranks = sorted(texts), dict[str, float]()
    for start in tqdm(range(0, len(docnos), BATCH), leave=False, disable=not progress):
        run = index.search({docno: texts[docno] for docno in docnos[start : start + BATCH]}, CUT)
        for docno in docnos[start : start + BATCH]:
            found = run.docnos(docno)
            ranks[docno] = 1 / (1 + found.index(docno)) if docno in found else 0.0
    return ranks
