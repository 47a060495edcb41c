"""Encoder states and a trie of docids become ranked docids, by beam search or by exact search.

Walk: `weights` reads a transformers model once, `paths` reads the trie once, `cells` turns tokens into
states, `scores` turns states into log-probabilities of children, `beam` and `exact` decide what to read next,
`ranked` is what comes out. Nothing in this package knows text.
"""

from gr2.decode.beam import beam
from gr2.decode.exact import exact
from gr2.decode.linear import Precision
from gr2.decode.ranked import Ranked
from gr2.decode.scores import NodePrior, Normaliser
from gr2.decode.weights import Decoder, bart_decoder, decoder_of, t5_decoder

__all__ = [
    "Decoder",
    "NodePrior",
    "Normaliser",
    "Precision",
    "Ranked",
    "bart_decoder",
    "beam",
    "decoder_of",
    "exact",
    "t5_decoder",
]
