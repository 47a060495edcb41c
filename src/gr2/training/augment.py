"""A document → texts from which its docid is trained, as documents or as queries (paper, appendix).

The texts are pseudo-queries if given, the title or the whole document, leading paragraphs, leading sentences,
a few entities, and pieces of the whole text. Entities are capitalised spans, rarest first; any other function
can be passed instead. Pure functions: the same document and seed give the same texts.
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
    """The texts of a document for L_MLE^d, each once, in a fixed order; pseudo-queries come first."""
    own = document.contents if config.document else document.title
    extra = [] if config.as_queries else _augmented(document, config, entities, seed)
    found = [*([] if config.as_queries else pseudo_queries), own, *extra]
    found += pieces(document.contents, config.words, config.pieces)
    return _cut(found, config) or [document.docno]


def queries_of(
    document: Document,
    config: AugmentConfig,
    entities: Entities,
    *,
    seed: int = 0,
    pseudo_queries: Sequence[str] = (),
) -> list[str]:
    """The texts of a document that are used as queries, each once; none unless `as_queries` is set."""
    if not config.as_queries:
        return []
    return _cut([*pseudo_queries, *_augmented(document, config, entities, seed)], config)


def _augmented(document: Document, config: AugmentConfig, entities: Entities, seed: int) -> list[str]:
    """Leading paragraphs, leading sentences, and entities drawn at random."""
    known = entities(document)
    draw = random.Random(f"{seed} {document.docno}")
    return [
        *paragraphs(document.text)[: config.paragraphs],
        *sentences(document.text)[: config.sentences],
        *draw.sample(known, min(config.entities, len(known))),
    ]


def _cut(texts: Iterable[str], config: AugmentConfig) -> list[str]:
    """The distinct texts, each truncated; empty ones are left out."""
    cut = (" ".join(text.split()[: config.max_words]) for text in texts)
    return list(dict.fromkeys(text for text in cut if text))


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
