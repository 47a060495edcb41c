"""Facts about a model → its model card, the README.md of its folder."""

from collections.abc import Mapping
from typing import Any

TEXT = """---
library_name: gr2
tags: [generative-retrieval, information-retrieval]
---
# A generative retrieval model for {collection}

Given a query, it generates the docids of relevant documents, highest grade first (GR², NeurIPS 2024).

```python
from gr2 import GR2

GR2.from_pretrained("this folder").search("a query", k=10)
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


def card(facts: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """The card, from the model's own facts and its provenance."""
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
    return TEXT.format(**named, **facts)
