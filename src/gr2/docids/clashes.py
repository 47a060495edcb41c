"""Proposals of docids → one docid for every document: the one clash rule of all schemes.

A scheme proposes docids for each document, best first. Each document gets its first proposal that is still
free. The rule compares tokens, not texts: two texts with the same tokens would be one path of the trie. The
result depends only on the proposals, not on the order or sharding of documents.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from gr2.docids.docids import Docids, Proposals, Tokenise, Tokens

Resample = Callable[[Sequence[str], int], Proposals]
"""(documents whose proposals are all taken, number of the attempt) → new proposals for them."""


def resolve_clashes(
    proposals: Proposals,
    tokenise: Tokenise,
    about: Mapping[str, Any] | None = None,
    *,
    resample: Resample | None = None,
    tries: int = 0,
    taken: Iterable[Tokens] = (),
) -> Docids:
    """Give every document the first of its proposals that is free.

    Documents choose in the order of their best score, then of their docno. Those whose proposals are all
    taken get new ones from `resample`, if given, and choose again after all others. A document that still has
    no docid gets its first proposal with the smallest free number appended.

    >>> pets = {"d1": [("cats", 0.0)], "d2": [("cats", 0.0), ("kittens", -1.0)]}
    >>> resolve_clashes(pets, letters).texts
    ('cats', 'kittens')

    Args:
        proposals: at least one for every document.
        tokenise: texts → tokens.
        about: stored with the docids.
        resample: makes new proposals.
        tries: the most calls of `resample`.
        taken: token sequences that are already in use.
    """
    known: dict[str, Tokens] = {}
    used, clashes = set(taken), Counter[str]()
    chosen: dict[str, tuple[str, Tokens]] = {}
    waiting = proposals
    for attempt in range(1 + (tries if resample else 0)):
        if attempt and resample:
            left = sorted(set(proposals) - set(chosen))
            others = resample(left, attempt)
            waiting = {docno: others[docno] for docno in left}
        _check(waiting)
        _tokenise_new(known, waiting, tokenise)
        for docno in _in_order(waiting):
            offers = enumerate(waiting[docno], 1)
            free = ((rank, text) for rank, (text, _) in offers if known[text] not in used)
            if found := next(free, None):
                rank, text = found
                used.add(known[text])
                chosen[docno] = text, known[text]
                clashes["resampled" if attempt else _rank(rank)] += 1
        if len(chosen) == len(proposals):
            break
    numbers: Counter[str] = Counter()
    for docno in [docno for docno in _in_order(proposals) if docno not in chosen]:
        chosen[docno] = _numbered(proposals[docno][0][0], numbers, used, tokenise)
        used.add(chosen[docno][1])
        clashes["numbered"] += 1
    docnos = tuple(sorted(chosen))
    return Docids(
        docnos,
        tuple(chosen[docno][0] for docno in docnos),
        tuple(chosen[docno][1] for docno in docnos),
        dict(sorted(clashes.items())),
        dict(about or {}),
        _unique(proposals, known),
    )


def _check(proposals: Proposals) -> None:
    """Refuse documents without a proposal, and proposals that are not pairs."""
    for docno, row in proposals.items():
        if not row:
            raise ValueError(f"document {docno!r} has no proposal for its docid")
        if isinstance(row, str) or any(isinstance(one, str) or len(one) != 2 for one in row):
            raise ValueError(f"document {docno!r}: expected proposals as (text, score) pairs, found {row!r}")


def _unique(proposals: Proposals, known: Mapping[str, Tokens]) -> int:
    first = Counter(known[row[0][0]] for row in proposals.values())
    return sum(many == 1 for many in first.values())


def _rank(rank: int) -> str:
    return f"rank {rank}" if rank <= 2 else "rank 3 or later"


def _in_order(proposals: Proposals) -> list[str]:
    """Documents in the order in which they choose: by their best score, then by their docno."""
    return sorted(proposals, key=lambda docno: (-proposals[docno][0][1], docno))


def _tokenise_new(known: dict[str, Tokens], proposals: Proposals, tokenise: Tokenise) -> None:
    """Tokenise all new texts in one call."""
    texts = sorted({text for rows in proposals.values() for text, _ in rows} - set(known))
    known.update(zip(texts, map(tuple, tokenise(texts)), strict=True))


def _numbered(text: str, numbers: Counter[str], taken: Set[Tokens], tokenise: Tokenise) -> tuple[str, Tokens]:
    """The text with the smallest number appended whose tokens are free."""
    for _ in range(len(taken) + 1):
        numbers[text] += 1
        numbered = f"{text} {numbers[text] + 1}".lstrip()
        tokens = tuple(tokenise([numbered])[0])
        if tokens not in taken:
            return numbered, tokens
    raise ValueError(f"the tokenizer reads {text!r} with different numbers appended as the same tokens")


def letters(texts: Iterable[str]) -> list[list[int]]:
    """The simplest tokenizer, for tests and examples: one token per character."""
    return [[ord(character) + 1 for character in text] for text in texts]


def add_documents(
    docids: Docids,
    proposals: Proposals,
    tokenise: Tokenise,
    *,
    fingerprint: str,
    resample: Resample | None = None,
    tries: int = 0,
) -> Docids:
    """Add documents; existing ones keep their docids, new ones take what is free.

    Args:
        docids: of the existing documents.
        proposals: for the new documents.
        tokenise: the tokenizer that `docids` were made with.
        fingerprint: of the collection with the new documents.
        resample: as in `resolve_clashes`.
        tries: as in `resolve_clashes`.
    """
    known = sorted(set(proposals) & set(docids.index))
    if known:
        raise ValueError(f"document {known[0]!r} has a docid already")
    new = resolve_clashes(
        proposals, tokenise, docids.about, resample=resample, tries=tries, taken=docids.tokens
    )
    rows = [
        *zip(docids.docnos, docids.texts, docids.tokens, strict=True),
        *zip(new.docnos, new.texts, new.tokens, strict=True),
    ]
    clashes = dict(sorted((Counter(docids.clashes) + Counter(new.clashes)).items()))
    unique = None if docids.unique is None or new.unique is None else docids.unique + new.unique
    return replace(docids.with_rows(rows, clashes, fingerprint), unique=unique)
