# Two commands do everything on a machine with Python >= 3.11, make and a C compiler:
#   make demo   the main job on the embedded collection
#   make test   lint, types and the test suite
# Also: make docs (the documentation site, in site/), make test-slow (the long tests), make mutants (do the tests
# notice changes of the source?).
# Both set up .venv themselves, once; a change of pyproject.toml or constraints.txt sets it up again.
# Every path is relative, so the folder's own path may contain spaces.

PYTHON ?= python3
PY := .venv/bin/python
READY := .venv/ready

.PHONY: demo test test-slow mutants lint docs setup clean
.DELETE_ON_ERROR:

demo: $(READY)
	$(PY) -m gr2 demo

test: $(READY) lint
	$(PY) -m pytest

test-slow: $(READY)
	$(PY) -m pytest -m slow

mutants: $(READY)
	PYTHONPATH=tests $(PY) -m mutants --json docs/results/mutants.json

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo

docs: $(READY)
	$(PY) -m mkdocs build --strict

setup: $(READY)

# torch comes first and pinned: an open range would pull several gigabytes of GPU packages.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gr2 needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up .venv (once; a few minutes) ..."
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet torch==2.13.0
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
