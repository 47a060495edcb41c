"""Encoder states and a trie of docids → ranked docids, by beam search or by exact search.

`decoder` reads a transformers model once, `paths` reads the trie once, `cells` turns tokens into states,
`scores` turns states into log-probabilities of children, `beam` and `exact` decide what to read next, and
`ranked` is the result. `free` is beam search without a trie. Everything works on token ids, not on text, and
on the device of the decoder's weights.
"""

from gr2.decode.beam import beam
from gr2.decode.decoder import Decoder, bart_decoder, decoder_of, t5_decoder
from gr2.decode.exact import exact
from gr2.decode.linear import Precision
from gr2.decode.ranked import Ranked
from gr2.decode.scores import NodePrior, Normaliser

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
