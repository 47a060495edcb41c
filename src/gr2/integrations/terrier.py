"""A model, or any system of `gr2.systems`, as a PyTerrier transformer."""

from typing import TYPE_CHECKING

from gr2.extras import extra
from gr2.model.gr2 import GR2
from gr2.systems.generative import GenerativeSystem
from gr2.systems.registry import System

with extra("terrier", "this transformer needs PyTerrier"):
    import pyterrier as pt

if TYPE_CHECKING:
    import pandas as pd


class GR2Retriever(pt.Transformer):
    """`GR2Retriever(model) % 10 >> ...`, or in `pt.Experiment`."""

    def __init__(self, system: System | GR2, k: int = 100) -> None:
        """Return the k best documents of a system for each query."""
        super().__init__()
        self.system = GenerativeSystem(system) if isinstance(system, GR2) else system
        self.k = k

    def transform(self, topics: "pd.DataFrame") -> "pd.DataFrame":
        """A frame with qid and query → a row for each result, with docno, score and rank."""
        pt.validate.query_frame(topics, extra_columns=["query"])
        qids = topics["qid"].astype(str)
        run = self.system.search(dict(zip(qids, topics["query"], strict=True)), self.k)
        return topics.assign(qid=qids).drop_duplicates("qid").merge(run.to_frame(), on="qid")

    def __repr__(self) -> str:
        """As tables of experiments name it."""
        return f"gr2({self.system}, k={self.k})"
