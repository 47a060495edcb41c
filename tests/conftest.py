"""What more than one test file needs."""

import sys
from types import SimpleNamespace

import pytest
from hypothesis import settings

# The same examples in every run, and no deadline: a busy machine must not fail a test.
settings.register_profile("gr2", deadline=None, derandomize=True)
settings.load_profile("gr2")


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """One thread of torch for all tests: tiny tensors gain nothing by more, and sums keep their order."""
    torch = sys.modules.get("torch")  # not imported for tests that do without it
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """A tiny random checkpoint of each family; see `helpers.tiny`."""
    from helpers import tiny

    return {name: tiny.save_checkpoint(tmp_path_factory.mktemp(name), name) for name in tiny.FAMILIES}


@pytest.fixture(scope="session")
def t5(checkpoints):
    """The one of the family T5."""
    return checkpoints["t5"]


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """A checkpoint that tells texts apart, of 64 positions."""
    from helpers import tiny

    return tiny.save_strong_encoder(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def encoder(bert):
    """The same, read."""
    from gr2.model.encoder import Encoder

    return Encoder.load(bert)


@pytest.fixture(scope="session")
def served_folder(tmp_path_factory):
    """A small trained model with its documents; see `helpers.served`."""
    from helpers import served

    return served.train_model(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def served_model(served_folder):
    """The same model, to compare with."""
    from gr2.model.gr2 import GR2

    return GR2.from_pretrained(served_folder)


@pytest.fixture
def server(served_folder):
    """A function that starts a real server: options → (process, address)."""
    from helpers import served

    with served.servers(served_folder) as start:
        yield start


@pytest.fixture(scope="module")  # while it runs, its thread has an event loop that other tests must not meet
def browser():
    """A running chromium; for files that have made sure that there is one."""
    from helpers import browsing
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browsing.CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A page that fails its test if anything goes wrong in it."""
    from helpers import browsing

    with browsing.opened(browser) as page:
        yield page


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
