"""A docid → its path through the trie, token by token, to show how the model reached it."""

from dataclasses import dataclass

from gr2.model.gr2 import GR2
from gr2.model.network import FIRST


@dataclass(frozen=True)
class Step:
    """One token of a docid."""

    text: str
    """Starts with a space if the token starts a word."""
    choices: int
    """The number of tokens that the trie allows here; 1: the token was forced."""


class DocidPaths:
    """The paths of a model's docids."""

    def __init__(self, model: GR2) -> None:
        """Decode the texts of all docid tokens once: a fast tokenizer must not be used by two threads."""
        self._docids, self._trie = model.docids, model.trie
        self._texts = None if model.docids.codes is not None else _token_texts(model)

    def path(self, docid: int) -> tuple[Step, ...]:
        """The tokens of a docid index as steps from the root, without the end token."""
        trie, edges = self._trie, []
        node = int(trie.parents[trie.leaf_of([docid])[0]])  # the leaf itself is the end token
        while node:
            parent = int(trie.parents[node])
            edges.append((int(trie.token[node - 1]), int(trie.first[parent + 1] - trie.first[parent])))
            node = parent
        edges.reverse()
        labels = self._labels(docid, [token for token, _ in edges])
        return tuple(Step(text, count) for text, (_, count) in zip(labels, edges, strict=True))

    def _labels(self, docid: int, tokens: list[int]) -> list[str]:
        if self._texts is not None:
            return [self._texts[token - FIRST] for token in tokens]
        codes, _, number = self._docids.texts[docid].partition(" ")
        labels = [f" {code}" for code in codes.split("-")] + list(number)
        return labels if len(labels) == len(tokens) else [f" {token - FIRST}" for token in tokens]


def _token_texts(model: GR2) -> list[str]:
    """The text of each token in the docid alphabet, with a leading space if it starts a word."""
    tokens = model.alphabet.tolist()
    raw = [str(token) for token in model.tokenizer.convert_ids_to_tokens(tokens)]
    texts = model.tokenizer.batch_decode([[token] for token in tokens])
    starts = [token[:1] in ("▁", "Ġ") for token in raw]
    if not any(starts):  # WordPiece marks the tokens that continue a word instead
        starts = [not token.startswith("##") for token in raw]
    clean = [text.strip().removeprefix("##") for text in texts]
    return [f" {text}" if start else text for text, start in zip(clean, starts, strict=True)]
