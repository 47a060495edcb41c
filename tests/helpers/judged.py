"""A model whose queries share no word with their documents, so that only judgements can teach it.

Every query is about one of six topics, which has one word in queries and another in documents.
"""

import random
from pathlib import Path

from gr2.data.collection import Collection, Document
from gr2.judge.judged_queries import JudgedQueries
from gr2.systems.config import GenerativeConfig
from gr2.training.fit import fit
from helpers import tiny

TOPICS = 6
ASKED, WRITTEN, OTHERS = tiny.WORDS[:TOPICS], tiny.WORDS[TOPICS : 2 * TOPICS], tiny.WORDS[2 * TOPICS :]


def documents(count: int = 36) -> list[Document]:
    """Documents of the topics in turn."""
    draw = random.Random(5)
    found = []
    for number in range(count):
        words = [WRITTEN[number % TOPICS], *draw.sample(OTHERS[:19], 4)]
        found.append(Document(f"d{number:02}", " ".join(words[1:3]), " ".join(words)))
    return found


def judged(count: int = 30, *, sense: bool = True, first: int = 0) -> JudgedQueries:
    """Queries of the topics in turn; without sense, documents are judged relevant by chance."""
    draw, rows, texts = random.Random(6 + first), {}, {}
    for number in range(first, first + count):
        texts[f"q{number}"] = f"{ASKED[number % TOPICS]} {OTHERS[19:][number % 19]} {number // 100}"
        own = [d.docno for i, d in enumerate(documents()) if i % TOPICS == number % TOPICS]
        relevant = own if sense else draw.sample([d.docno for d in documents()], len(own))
        rows[f"q{number}"] = {docno: 1 + place % 2 for place, docno in enumerate(relevant)}
    return JudgedQueries(texts, rows)


def train_model(out: Path, backbone: Path, **settings: object) -> Path:
    """The folder of a model with look-ahead that has learned nothing."""
    data = Collection(name="topics", documents=tuple(documents()), queries={}, qrels={})
    config = tiny.with_settings(GenerativeConfig().training, settings)
    fit(data, tiny.titles(data, backbone), str(backbone), out, config)
    return out
