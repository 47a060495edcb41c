"""A document → the short texts that stand for queries nobody has asked yet (paper, appendix).

Generated pseudo-queries where there are some, leading paragraphs, leading sentences, a few entities, and
pieces of the whole text; each is trained towards the document's docid. Entities are capitalised spans by how
rare they are in the corpus; any function can take their place. Pure functions: the same document, the same
seed, the same texts.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log

from gr2.data import Document

Entities = Callable[[Document], list[str]]
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")
PARAGRAPH_END = re.compile(r"\n\s*\n")
CAPITALISED = re.compile(r"\b(?:[A-Z][\w-]+)(?:\s+(?:of|the|and|for|de)?\s*[A-Z][\w-]+)*")


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """How many texts of each kind a document gives; the paper takes three of each of the first kinds."""

    paragraphs: int = 3
    """Leading paragraphs."""
    sentences: int = 3
    """Leading sentences."""
    entities: int = 3
    """Entities, drawn at random."""
    pieces: int = 8
    """Pieces of the text, spread evenly over it; 0 for none. Not in the paper: DSI-like full coverage."""
    words: int = 32
    """Words of a piece."""
    longest: int = 128
    """Words at which any text is cut."""


def texts_of(
    document: Document,
    config: AugmentConfig,
    entities: Entities,
    *,
    seed: int = 0,
    pseudo_queries: Sequence[str] = (),
) -> list[str]:
    """All texts of a document, each once, in a fixed order; queries that a model made for it come first."""
    found = [*pseudo_queries, document.title, *paragraphs(document.text)[: config.paragraphs]]
    found += sentences(document.text)[: config.sentences]
    known = entities(document)
    draw = random.Random(f"{seed} {document.docno}")
    found += draw.sample(known, min(config.entities, len(known)))
    found += pieces(document.contents, config.words, config.pieces)
    cut = (" ".join(text.split()[: config.longest]) for text in found)
    return list(dict.fromkeys(text for text in cut if text)) or [document.docno]


def paragraphs(text: str) -> list[str]:
    """Split at blank lines."""
    return [part.strip() for part in PARAGRAPH_END.split(text) if part.strip()]


def sentences(text: str) -> list[str]:
    """Split behind a full stop, question or exclamation mark that a capital or digit follows.

    >>> sentences("Cats purr. Dogs bark! e.g. loudly.")
    ['Cats purr.', 'Dogs bark! e.g. loudly.']
    """
    return [part.strip() for part in SENTENCE_END.split(" ".join(text.split())) if part.strip()]


def pieces(text: str, words: int, most: int) -> list[str]:
    """Runs of words that cover the text; if that takes more than `most`, evenly spread ones.

    >>> pieces("a b c d e", 2, 9)
    ['a b', 'c d', 'e']
    """
    split = text.split()
    starts = range(0, len(split), words)
    if len(starts) > most:
        starts = [starts[i * len(starts) // most] for i in range(most)]  # type: ignore[assignment]
    return [" ".join(split[start : start + words]) for start in starts]


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
            # A single word at the start of a sentence is capitalised whatever it is.
            if match.start() > 0 or " " in match[0]:
                yield match[0]
