"""Optional packages: without them, every error names the extra that installs them."""

import ast
import sys
import tomllib
from importlib import import_module, reload

import pytest
from helpers.paths import ROOT
from packaging.requirements import Requirement

from gr2.extras import MissingExtra, extra

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
NOT_IMPORTED = {"dev", "docs"}
"""Extras for working on gr2 itself; the package imports nothing of them."""
SOURCE = ROOT / "src" / "gr2"
MODULES = {"faiss-cpu": "faiss", "scikit-learn": "sklearn", "ir-datasets": "ir_datasets"}
MODULES |= {"langchain-core": "langchain_core", "haystack-ai": "haystack"}
"""Packages that are imported by another name than they are installed by."""


def optional(name: str) -> set[str]:
    """The modules that an extra installs."""
    names = {Requirement(text).name for text in EXTRAS[name]} - {"gr2"}
    return {MODULES.get(name, name) for name in names}


def faiss():
    from gr2.model.product_quantiser import faiss

    faiss()


def sentencex():
    from gr2.data.links import segmented

    segmented("A sentence.")


def pandas():
    from gr2.data.runs import Run

    Run({}).to_frame()


def matplotlib():
    from gr2.schemes.plots import require_matplotlib

    require_matplotlib()


def irds():
    from gr2.data.formats.irds import load

    load("beir/scifact")


def fastapi():
    from pathlib import Path

    from gr2.serve import ServiceConfig, serve

    serve(Path("no model"), ServiceConfig(), port=0)


def integration(name):
    def imported():
        module = f"gr2.integrations.{name}"
        reload(sys.modules[module]) if module in sys.modules else import_module(module)

    return imported


USES = [
    ("docids", "faiss", faiss),
    ("wikipedia", "sentencex", sentencex),
    ("frames", "pandas", pandas),
    ("plots", "matplotlib", matplotlib),
    ("data", "ir_datasets", irds),
    ("data", "ir_datasets", integration("irds")),
    ("serve", "fastapi", fastapi),
    ("serve", "uvicorn", fastapi),
    ("serve", "h11", fastapi),
    ("serve", "prometheus_client", fastapi),
    ("terrier", "pyterrier", integration("terrier")),
    ("langchain", "langchain_core", integration("langchain")),
    ("haystack", "haystack", integration("haystack")),
]


@pytest.mark.parametrize(("name", "module", "use"), USES, ids=lambda each: getattr(each, "__name__", each))
def test_without_a_package_the_error_names_its_extra(name, module, use, monkeypatch):
    for loaded in [each for each in sys.modules if each.startswith(("gr2.serve.", "gr2.integrations."))]:
        monkeypatch.delitem(sys.modules, loaded)  # imported anew, as in a new process
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'gr2\[{name}\]'.*{module}") as error:
        use()
    assert isinstance(error.value, ImportError) and isinstance(error.value, ValueError)


def test_the_table_has_every_extra():
    assert {name for name, *_ in USES} == set(EXTRAS) - NOT_IMPORTED
    assert all(module in optional(name) for name, module, _ in USES)


def imports(tree: ast.AST, inside: str = "") -> list[tuple[str, str]]:
    """Each imported top-level module, with the extra whose block it stands in; "types" if only for types."""
    found = []
    for node in ast.iter_child_nodes(tree):
        where = inside
        if isinstance(node, ast.With) and isinstance(call := node.items[0].context_expr, ast.Call):
            if getattr(call.func, "id", "") == "extra":
                where = call.args[0].value
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            where = "types"
        if isinstance(node, ast.Import):
            found += [(alias.name.partition(".")[0], inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module.partition(".")[0], inside))
        else:
            found += imports(node, where)
    return found


def test_every_import_of_an_optional_package_names_the_extra_that_installs_it():
    known = {module: name for name in set(EXTRAS) - NOT_IMPORTED for module in optional(name)}
    seen = set()
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "serve" and path.name != "__init__.py":
            continue  # imported by serve/__init__.py, inside such a block
        for module, inside in imports(ast.parse(path.read_text(encoding="utf-8"))):
            if module in known and inside != "types":
                assert inside == known[module], f"{path}: imports {module} without its extra"
                seen.add(inside)
    assert seen == set(EXTRAS) - NOT_IMPORTED


def test_other_errors_pass_through():
    with pytest.raises(KeyError), extra("docids", "codes"):
        raise KeyError("a")
