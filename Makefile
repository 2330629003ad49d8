# Everything a person types. Each target sets up what it needs.
PYTHON ?= python3
BIN := .venv/bin
ACCOUNT := clinic-visits
OPEN_ACCOUNT = $(BIN)/dpflow ledger show $(ACCOUNT) >/dev/null 2>&1 || \
	$(BIN)/dpflow ledger open $(ACCOUNT) --epsilon 10 --delta 1e-9 --unit patient_id --neighbours add-remove
# Tests wait for a disk at every commit of a ledger: where memory can be had as a folder, they use that.
MEMORY := $(shell [ -w /dev/shm ] && [ "$$(df -Pk /dev/shm | awk 'NR == 2 {print $$4}')" -gt 4000000 ] && echo /dev/shm)
# What tells most in least time: no server, no other process, no statistics that need many draws.
FAST := $(addprefix tests/dpcore/,cli curator descent marginals privacy reporting spec steward textbook/theorems textbook/truthful universe) \
	$(filter-out tests/dpcore/test_randomness.py,$(wildcard tests/dpcore/test_*.py)) \
	$(addprefix --ignore=tests/dpcore/,cli/test_audit.py privacy/accounting/test_gaussian.py privacy/accounting/test_sampler.py spec/test_encodings.py)
QUIET_PIP := --quiet --disable-pip-version-check -c constraints.txt

# The tests start hundreds of processes: none of them has to compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test campaign lint types style fast check docs bench ui ui-stop clean

help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/runtime: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dpflow needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up .venv (a few minutes the first time)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install $(QUIET_PIP) -e .
	@touch $@

.venv/development: .venv/runtime
	@echo "adding what tests, lint and the documentation need"
	@$(BIN)/pip install $(QUIET_PIP) -e '.[test,lint,docs]'
	@touch $@

data/clinic-visits.csv: data/clinic_visits.py .venv/runtime
	@$(BIN)/python data/clinic_visits.py

setup: .venv/development data/clinic-visits.csv ## make .venv with everything, and the sample table

demo: .venv/runtime data/clinic-visits.csv ## make a private synthetic release of the sample table
	@$(OPEN_ACCOUNT)
	@$(BIN)/dpflow run data/clinic-visits.yaml

test: .venv/development data/clinic-visits.csv ## run all tests
	@TMPDIR=$${TMPDIR:-$(MEMORY)} $(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

campaign: .venv/development data/clinic-visits.csv ## run the tests that have a long version, at length (an hour or more)
	@TMPDIR=$${TMPDIR:-$(MEMORY)} DPFLOW_CAMPAIGN=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m campaign

lint: types style ## check style, types, layers, and that noise has one source
	@$(BIN)/python -m pytest -q tests/dpcore/test_randomness_search.py

types: .venv/development
	@$(BIN)/mypy

style: .venv/development
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

# Fewer examples of each property than `make test` draws.
fast: .venv/development data/clinic-visits.csv
	@TMPDIR=$${TMPDIR:-$(MEMORY)} HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -q -n 2 --dist loadfile $(FAST)

docs: .venv/development ## build the documentation into site/
	@$(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html; to search as well, serve it: $(BIN)/python -m mkdocs serve"

check: .venv/development data/clinic-visits.csv ## style, types, layers and the fast tests, in two minutes; prints what the code weighs
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types style fast
	@$(BIN)/python -m tests.weight

bench: .venv/development ## measure speed and accuracy (tables in ../shared/data)
	@$(BIN)/python -m benchmarks.noise
	@$(BIN)/python -m benchmarks.dense
	@$(BIN)/python -m benchmarks.accuracy
	@$(BIN)/python -m benchmarks.accuracy --data adult_discretized --currency gdp
	@$(BIN)/python -m benchmarks.growth
	@$(BIN)/python -m benchmarks.ingest
	@$(BIN)/python -m benchmarks.cluster
	@$(BIN)/python -m benchmarks.ledger
	@$(BIN)/python -m tests.faults.ledger_faults
	@$(BIN)/python -m benchmarks.overhead
	@$(BIN)/python -m benchmarks.budgeted

ui: .venv/runtime data/clinic-visits.csv ## start the Prefect UI with the sample deployed, in the background; prints its address
	@$(OPEN_ACCOUNT)
	@$(BIN)/dpflow register data/clinic-visits.yaml --cron "0 3 1 * *" --timezone Europe/Zurich >/dev/null
	@$(BIN)/dpflow ui

ui-stop: .venv/runtime ## end what `make ui` has started
	@$(BIN)/dpflow ui --stop

clean: ## remove what was built; the ledger in .dpflow and the releases stay
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
