# Every target makes its own .venv on first use; nothing but Python 3.11 or newer is needed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

.DEFAULT_GOAL := help
.PHONY: help demo test test-all coverage check format reliability bench bench-peers docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## train on the embedded world and print what comes out; needs no data and no network
	$(BIN)/veilrec demo

test: $(READY) ## run the tests that take seconds, and say how many CPU seconds of how many they took
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.budget $(BUDGET) -n 2 --dist loadfile -m 'not slow'

test-all: $(READY) ## run every test, the slow ones too
	$(PYTEST)

coverage: $(READY) ## run the quick tests and list the lines they miss
	$(PYTEST) -m 'not slow' --cov --cov-report=term-missing

check: $(READY) ## check format, lint, types, layering, and what examples cost
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_forbidden.py tests/test_project.py
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.example_cost

format: $(READY) ## format the code and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reliability: $(READY) ## measure what is promised of kills, pairs and bad input; stopped, it goes on where it was
	$(BIN)/python -m tests.reliability $(ARGUMENTS)

bench: $(READY) ## measure the engine: speed against a one-client loop, memory, scaling
	$(BIN)/python -m benchmarks.run

bench-peers: $(READY) ## do the same work with other frameworks, each in an environment of its own
	$(BIN)/python -m benchmarks.peers.run

docs: $(READY) .venv/.docs ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove what was built and cached; .venv and runs/ stay
	rm -rf build dist site htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find veilrec tests docs benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# torch goes first and alone, so that pip takes the wheel that constraints.txt names before it looks at the rest.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "veilrec needs Python 3.11 or newer, and $(PYTHON) is: $$($(PYTHON) -V 2>&1)." >&2; \
	  echo "Name another one, for example: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Making .venv: this happens once and takes a few minutes."
	@$(PYTHON) -m venv .venv || { \
	  echo "$(PYTHON) cannot make environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install -c constraints.txt torch
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	@touch $@

.venv/.docs: $(READY)
	$(BIN)/python -m pip install -c constraints.txt -e '.[docs]'
	@touch $@
