"""What every document has, whatever a query asks: lengths of text and title, and the depth of its path.

Look-ahead can learn from judgements how much these count (`training/document_prior.py`): people may want
overviews or details, long entries or short ones. Web search has used the depth of a URL in the same way since
Kraaij, Westerveld and Hiemstra (SIGIR 2002).

Shapes: N documents, F features.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gr2.data.collection import Document

FEATURES = ("text length", "title length", "depth")
_STEP = re.compile(r"[./:](?=\w)")
_WORD = re.compile(r"\w+")


def document_features(documents: Sequence[Document]) -> NDArray[np.float32]:
    """Each feature with mean 0 and variance 1 over the documents; 0 where all have the same [N, F].

    Lengths are logarithms of words. The depth is the number of steps in the URL, or in the docno without one.

    >>> rows = document_features([Document("os", "os", "a b c"), Document("os.path.join", "join", "a b c")])
    >>> rows.tolist()
    [[0.0, 0.0, -1.0], [0.0, 0.0, 1.0]]
    """
    rows = [
        (
            np.log1p(len(_WORD.findall(document.text))),
            np.log1p(len(_WORD.findall(document.title))),
            len(_STEP.findall(document.url or document.docno)),
        )
        for document in documents
    ]
    values = np.array(rows, np.float64).reshape(-1, len(FEATURES))
    spread = values.std(0)
    scaled: NDArray[np.float32] = (
        (values - values.mean(0)) / np.where(spread > 1e-9, spread, np.inf)
    ).astype(np.float32)
    return scaled
