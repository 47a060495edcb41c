"""Facts about a model → its model card, the README.md of its folder, as the Hugging Face hub reads it.

The metadata between the lines `---` is YAML. Each value is written as JSON, which YAML includes, so any name
of a collection is quoted as it must be.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

FIGURES = "measures.json"
"""The figures that were measured when a model was indexed, in its folder."""
TEXT = """# A generative retrieval model for {collection}

Given a query, it generates the docids of relevant documents, highest grade first (GR², NeurIPS 2024).

```python
from gr2 import GR2

GR2.from_pretrained("this folder, or its name on the hub").search("a query", k=10)
```

| property | value |
|---|---|
| documents | {documents:,} |
| docids | {scheme}, {mean:.1f} tokens on average, at most {longest} |
| backbone | {backbone} ({family}) |
| weights | {weights:,} |
| node prior | {prior_weights:,} of the weights; {prior_bytes:,} bytes with its tables |
| look-ahead | {views} |
| normaliser | {normaliser} |
| variant | {variant} |
| collection fingerprint | {fingerprint} |
| seed | {seed} |
| gr2 | {gr2} |

The model can return only documents of this collection: a document added after training has no docid. Queries
are truncated to {cut} tokens. Scores are log-probabilities of docids; they rank the documents of one query
and are not comparable between queries. `config.json` lists all training settings.
"""


@dataclass(frozen=True, kw_only=True)
class CardFields:
    """What the card says and only the owner of the documents knows."""

    license: str = "unknown"
    """An identifier of the hub, such as apache-2.0 or cc-by-4.0; the folder contains documents too."""
    language: tuple[str, ...] = ()
    """ISO 639-1 codes."""
    datasets: tuple[str, ...] = ()
    """Names of data sets on the hub."""


class Measured(TypedDict):
    """The content of `measures.json`."""

    collection: str
    fingerprint: str
    split: str
    queries: int
    convention: str
    means: dict[str, float]


def card(facts: Mapping[str, Any], provenance: Mapping[str, Any], measured: Measured | None = None) -> str:
    """The card, from the model's own facts, its provenance, and what was measured, if anything."""
    training = provenance.get("training", {})
    named = {
        "collection": provenance.get("collection", "an unnamed collection"),
        "fingerprint": provenance.get("fingerprint", "unknown"),
        "backbone": provenance.get("backbone", "unknown"),
        "variant": training.get("variant", "untrained"),
        "seed": training.get("seed", provenance.get("seed", 0)),
        "gr2": provenance.get("gr2", "unknown"),
        "views": ", ".join(f"{name} {size:,} bytes" for name, size in facts["look_ahead"].items()) or "none",
    }
    head = "".join(f"{name}: {_yaml(value)}\n" for name, value in _metadata(provenance, measured).items())
    figures = "" if measured is None else "\n" + "\n".join(_figures(measured)) + "\n"
    return f"---\n{head}---\n{TEXT.format(**named, **facts)}{figures}"


def _metadata(provenance: Mapping[str, Any], measured: Measured | None) -> dict[str, Any]:
    fields = CardFields(**provenance.get("card", {}))
    found: dict[str, Any] = {
        "license": fields.license,
        "language": list(fields.language),
        "datasets": list(fields.datasets),
        "library_name": "gr2",
        "pipeline_tag": "text-ranking",
        "tags": ["generative-retrieval", "information-retrieval"],
    }
    if measured is not None:
        found |= {"metrics": [_metric(name) for name in measured["means"]], "model-index": _index(measured)}
    return {name: value for name, value in found.items() if value}


def _index(measured: Measured) -> list[dict[str, Any]]:
    """The figures in the form of the hub's model index."""
    name = measured["collection"]
    dataset = {"type": name, "name": name, "split": measured["split"], "revision": measured["fingerprint"]}
    metrics = [
        {"type": _metric(measure), "name": measure, "value": round(value, 4)}
        for measure, value in measured["means"].items()
    ]
    task = {"type": "text-retrieval", "name": "Retrieval"}
    return [{"name": f"gr2 on {name}", "results": [{"task": task, "dataset": dataset, "metrics": metrics}]}]


def _figures(measured: Measured) -> Iterator[str]:
    """The figures as a section of Markdown."""
    yield "## Measures"
    yield f"\n{measured['queries']:,} queries of {measured['split']}; {measured['convention']}.\n"
    yield f"| {' | '.join(measured['means'])} |"
    yield "|" + "---:|" * len(measured["means"])
    yield f"| {' | '.join(f'{value:.4f}' for value in measured['means'].values())} |"


def _metric(measure: str) -> str:
    """A measure as the hub names it.

    >>> _metric("nDCG@20")
    'ndcg_at_20'
    """
    return measure.lower().replace("@", "_at_")


def _yaml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
