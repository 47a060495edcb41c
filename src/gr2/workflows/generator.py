"""Pairs of texts and questions → a generator that asks about any text: the first of two stages.

The second stage starts from it (`--docids.generator FOLDER`) and learns a collection's own queries, by
L_Docid of fusion or by L_MLE alone. The result is a backbone (`save_backbone`): the embeddings of tokens are
frozen, so the decoder can write words that no pair has.

A generator that has seen lower case alone copies from a text with capitals instead of asking about it. So if
all pairs are in lower case, its tokenizer reads every text that way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from gr2.bm25 import BM25
from gr2.data.collection import Document
from gr2.schemes.fusion.generator import DocidGenerator
from gr2.schemes.fusion.pairs import Pairs
from gr2.schemes.self_retrieval import SETTINGS, reciprocal_ranks
from gr2.store import Workspace, check_replaceable
from gr2.training.progress import progress_bar
from gr2.workflows.config import QuestionsConfig
from gr2.workflows.pretrain import export


@dataclass(frozen=True)
class Asked:
    """How well a generator asks about held-out texts, before and after it learned to."""

    texts: int
    loss: tuple[float, float]
    """L_MLE of people's questions."""
    found: tuple[float, float]
    """MRR of finding the text by BM25 with the generator's own question, among all texts."""


def train_generator(
    pairs: Sequence[tuple[str, str]],
    backbone: str,
    out: Path,
    config: QuestionsConfig | None = None,
    *,
    resume: bool = False,
    progress: bool = False,
) -> Asked:
    """Learn to ask from pairs of a text and a question, measure that on held-out texts, and write it.

    Args:
        pairs: texts, each with a question about it.
        backbone: folder or hub name of a T5, BART or encoder checkpoint to start from.
        out: the folder to write; unfinished work is kept in OUT.making.
        config: the settings.
        resume: continue an interrupted run.
        progress: show a progress bar.
    """
    config = config or QuestionsConfig()
    check_replaceable(out)
    texts, questions = [text for text, _ in pairs], [question for _, question in pairs]
    generator = DocidGenerator.fresh(backbone, [*texts, *questions], config.generation, seed=config.seed)
    generator.pairs = Pairs([_key(text) for text in texts], texts, questions, "questions")
    digest = blake2b("\n".join(f"{text}\t{question}" for text, question in pairs).encode(), digest_size=8)
    generator.about = {"pairs": digest.hexdigest(), "generator": Path(backbone).name}
    held = generator.parted()[1]
    if not held.docnos:
        raise ValueError(f"too few texts to hold some out for measuring: found {len(set(texts))}, give 100")
    before = _measured(generator, held)
    with progress_bar("generator", config.steps, show=progress) as update:
        making = Workspace(out).making
        generator.fit(making, freeze_embeddings=True, resume=resume, progress=update)
    asked = Asked(len(set(held.docnos)), *zip(before, _measured(generator, held), strict=True))
    lower = all(text == text.lower() for text in (*texts, *questions))
    made = {**generator.about, "steps": config.steps, "seed": config.seed, "lower case": lower}
    tokenizer = in_lower_case(generator.tokenizer) if lower else generator.tokenizer
    about = {"made from": made, "asks": vars(asked)}
    export(generator.fusion.generator, backbone, out, about, tokenizer=tokenizer)
    return asked


def in_lower_case(tokenizer: Any) -> Any:
    """The tokenizer, changed so that it reads every text in lower case."""
    from tokenizers import normalizers

    backend = tokenizer.backend_tokenizer
    others = [backend.normalizer] if backend.normalizer else []
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *others])
    return tokenizer


def _measured(generator: DocidGenerator, held: Pairs) -> tuple[float, float]:
    """The loss on held-out pairs, and the MRR of the texts by the generator's own questions."""
    loss = generator.dev_loss(held)
    known = dict(zip(generator.pairs.docnos, generator.pairs.documents, strict=True))
    index = BM25.index([Document(docno, "", text) for docno, text in known.items()], SETTINGS)
    asked = {
        docno: row[0][0]
        for chunk in generator.chunks({docno: known[docno] for docno in held.docnos})
        for docno, row in generator.write(chunk).items()
        if row
    }
    return loss, sum(reciprocal_ranks(asked, index).values()) / len(set(held.docnos))


def _key(text: str) -> str:
    """A name for a text, so that all questions about it are held out together."""
    return blake2b(text.encode(), digest_size=8).hexdigest()
