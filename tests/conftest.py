"""What more than one test file needs."""

import sys
from types import SimpleNamespace

import pytest
from hypothesis import settings

# The same examples in every run, and no deadline: a busy machine must not fail a test.
settings.register_profile("gr2", deadline=None, derandomize=True)
settings.load_profile("gr2")


@pytest.fixture
def gr2(monkeypatch, capsys):
    """The command line: a function from arguments to what is printed."""
    from gr2.cli import main

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["gr2", *map(str, arguments)])
        main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def register(monkeypatch):
    """A function that registers an ir_datasets data set for the length of one test."""
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries

    monkeypatch.setattr(ir_datasets.registry, "_registered", dict(ir_datasets.registry._registered))

    class Docs(BaseDocs):
        def __init__(self, rows):
            self.rows = rows

        def docs_iter(self):
            return self.rows() if callable(self.rows) else iter(self.rows)

    class Queries(BaseQueries):
        def __init__(self, rows):
            self.rows = rows

        def queries_iter(self):
            return self.rows() if callable(self.rows) else iter(self.rows)

    class Qrels(BaseQrels):
        def __init__(self, rows):
            self.rows = rows

        def qrels_iter(self):
            return self.rows() if callable(self.rows) else iter(self.rows)

    def add(id, *, docs=None, queries=None, qrels=None):
        """Rows, or a function that returns an iterator over them; judgements as (qid, docno, grade)."""
        if qrels is not None and not callable(qrels):
            qrels = [SimpleNamespace(query_id=q, doc_id=d, relevance=g) for q, d, g in qrels]
        parts = [
            kind(rows)
            for kind, rows in ((Docs, docs), (Queries, queries), (Qrels, qrels))
            if rows is not None
        ]
        ir_datasets.registry.register(id, Dataset(*parts))

    return add
