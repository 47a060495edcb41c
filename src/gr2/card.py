"""What a model is made of → the README.md of its folder, the model card."""

from collections.abc import Mapping
from typing import Any

TEXT = """---
library_name: gr2
tags: [generative-retrieval, information-retrieval]
---
# A generative retrieval model for {collection}

Reads a query and writes the docids of the documents that answer it, best grade first (GR², NeurIPS 2024).

```python
from gr2 import GR2

GR2.from_pretrained("this folder").search("a query", k=10)
```

| what | |
|---|---|
| documents | {documents:,} |
| docids | {scheme}, {mean:.1f} tokens on average, at most {longest} |
| backbone | {backbone} ({family}) |
| weights | {weights:,} |
| node prior | {prior_weights:,} of the weights; with its tables {prior_bytes:,} bytes |
| normaliser | {normaliser} |
| recipe | {recipe} |
| collection fingerprint | {fingerprint} |
| seed | {seed} |
| gr2 | {gr2} |

It knows the documents of this collection alone: one that was not there at training has no docid. A query of
more than {cut} tokens is cut. Scores are log-probabilities of docids; they order the answers of one query and
are not comparable between queries. `config.json` has every setting of the training.
"""


def card(facts: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """The card, from what the model knows of itself and where it comes from."""
    plan = provenance.get("plan", {})
    named = {
        "collection": provenance.get("collection", "an unnamed collection"),
        "fingerprint": provenance.get("fingerprint", "unknown"),
        "backbone": provenance.get("backbone", "unknown"),
        "recipe": plan.get("recipe", "untrained"),
        "seed": plan.get("seed", provenance.get("seed", 0)),
        "gr2": provenance.get("gr2", "unknown"),
    }
    return TEXT.format(**named, **facts)
