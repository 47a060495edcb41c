"""Judgements and products of Amazon's Shopping Queries (ESCI) → a collection.

Judgements are the JSON that OpenSearch's Search Relevance Workbench imports: for each query a list of
products with a rating of 100 (exact), 10 (substitute), 1 (complement) or 0 (irrelevant). Products come as
ESCI-S records in bulk form (.ndjson: an action line before each product), or as the table that Amazon
publishes, as .csv.
"""

import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from gr2.data.collection import Collection, Document
from gr2.data.formats.lines import FormatError, is_key, kind, numbered_lines
from gr2.data.formats.tables import CSV, table

GRADES = {100.0: 3, 10.0: 2, 1.0: 1, 0.0: 0}
TEXTS = ("product_bullet_point", "product_description", "product_brand", "product_color")
COLUMNS = ("product_id", "product_locale", "product_title", *TEXTS)
TAG = re.compile(r"<[^<>]*>")


def read_esci(judgements: Path, products: Path, *, train: int, seed: int) -> Collection:
    """A collection; `train` queries, drawn with a seed, make that split and the others `test`.

    Queries are called e1, e2, … in the order of the judgements. Judgements of products that are not there are
    left out. Bulk records are all kept; of Amazon's table, the judged products of the US.
    """
    rows = {f"e{number}": row for number, row in enumerate(_rated(judgements), start=1)}
    judged = {docno for _, row in rows.values() for docno in row}
    found = _from_amazon(products, judged) if kind(products) == CSV else _from_bulk(products)
    documents = {document.docno: document for document in found}
    drawn = sorted(rows)
    random.Random(seed).shuffle(drawn)
    splits: dict[str, dict[str, dict[str, int]]] = {"train": {}, "test": {}}
    for qid, (_, row) in rows.items():
        split = splits["train" if qid in drawn[:train] else "test"]
        split[qid] = {docno: grade for docno, grade in row.items() if docno in documents}
    return Collection(
        name="esci",
        documents=tuple(documents.values()),
        queries={qid: text for qid, (text, _) in rows.items()},
        qrels=splits,
    )


def _rated(path: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """The text of each query, and product → grade."""
    try:
        content = orjson.loads(b"\n".join(line for _, line in numbered_lines(path)))
        for entry in content["judgmentRatings"]:
            ratings = {row["docId"]: GRADES[float(row["rating"])] for row in entry["ratings"]}
            yield " ".join(entry["query"].split()), ratings
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        message = "expected judgmentRatings, a list of queries with ratings of 100, 10, 1 or 0"
        raise FormatError(path, 0, f"{message} ({type(error).__name__}: {error})") from None


def _from_bulk(path: Path) -> Iterator[Document]:
    for line, raw in numbered_lines(path):
        try:
            record: Mapping[str, Any] = orjson.loads(raw)
            if set(record) & {"index", "create"}:
                continue  # the action before a product
            attributes, details = record.get("attrs") or {}, record.get("info") or {}
            parts = [
                *(record.get("bullets") or []),
                record.get("description"),
                record.get("brand") or attributes.get("Brand"),
                record.get("color") or attributes.get("Color") or details.get("Colour"),
                " / ".join(record.get("category") or []),
            ]
            docno, title, text = str(record["asin"]), _plain([record.get("title")]), _plain(parts)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            raise FormatError(path, line, "expected a product as a JSON object with asin and title") from None
        if not is_key(docno):
            raise FormatError(path, line, f"expected an asin without white space, found {docno[:40]!r}")
        yield Document(docno, title, text)


def _from_amazon(path: Path, judged: set[str]) -> Iterator[Document]:
    for _, row in table(path, needs=COLUMNS):
        if row["product_locale"] == "us" and row["product_id"] in judged:
            yield Document(row["product_id"], _plain([row["product_title"]]), _plain([row[c] for c in TEXTS]))


def _plain(parts: list[str | None]) -> str:
    return " ".join(" ".join(TAG.sub(" ", part) for part in parts if part).split())
