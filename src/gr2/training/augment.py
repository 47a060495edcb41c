"""A document → short texts from which its docid is trained, in place of queries (paper, appendix).

The texts are pseudo-queries if given, the title, leading paragraphs, leading sentences, a few entities, and
pieces of the whole text. Entities are capitalised spans, rarest first; any other function can be passed
instead. Pure functions: the same document and seed give the same texts.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import log

from gr2.data.collection import Document
from gr2.text import paragraphs, pieces, sentences
from gr2.training.config import AugmentConfig

Entities = Callable[[Document], list[str]]
CAPITALISED = re.compile(r"\b(?:[A-Z][\w-]+)(?:\s+(?:of|the|and|for|de)?\s*[A-Z][\w-]+)*")


def texts_of(
    document: Document,
    config: AugmentConfig,
    entities: Entities,
    *,
    seed: int = 0,
    pseudo_queries: Sequence[str] = (),
) -> list[str]:
    """All texts of a document, each once, in a fixed order; pseudo-queries come first."""
    found = [*pseudo_queries, document.title, *paragraphs(document.text)[: config.paragraphs]]
    found += sentences(document.text)[: config.sentences]
    known = entities(document)
    draw = random.Random(f"{seed} {document.docno}")
    found += draw.sample(known, min(config.entities, len(known)))
    found += pieces(document.contents, config.words, config.pieces)
    cut = (" ".join(text.split()[: config.max_words]) for text in found)
    return list(dict.fromkeys(text for text in cut if text)) or [document.docno]


def capitalised_entities(documents: Iterable[Document], most: int = 20) -> Entities:
    """Capitalised spans of a document, rarest in the corpus first; one pass over the corpus counts them."""
    frequency: Counter[str] = Counter()
    count = 0
    for document in documents:
        frequency.update(set(_spans(document)))
        count += 1

    def entities(document: Document) -> list[str]:
        inside = Counter(_spans(document))
        weight: Mapping[str, float] = {
            span: n * log((1 + count) / (1 + frequency[span])) for span, n in inside.items()
        }
        return sorted(weight, key=lambda span: (-weight[span], span))[:most]

    return entities


def _spans(document: Document) -> Iterator[str]:
    for sentence in (document.title, *sentences(document.text)):
        for match in CAPITALISED.finditer(sentence):
            # A single word at the start of a sentence is always capitalised, so it tells nothing.
            if match.start() > 0 or " " in match[0]:
                yield match[0]
