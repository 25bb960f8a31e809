# Needs make and Python 3.11 or newer with venv. Everything else goes into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
PIP_INSTALL := $(BIN)/python -m pip install -qq --constraint constraints.txt

export HF_HUB_OFFLINE := 1
# Tests start hundreds of interpreters: without cached bytecode, each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

SCALE ?= 1
FILES = 5000
SEED ?= 0
GPU_PYTHON ?= $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help demo tour test lint types pages unit test-versions docs format bench pictures fuzz soak gpu clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## Kill a training run during a save, and resume it bit for bit
	@$(BIN)/python examples/demo.py

tour: $(READY) ## Show everything else, on a real model
	@$(BIN)/python examples/tour.py

test: $(READY) ## Run every check: style, types, tests, documentation
	@$(MAKE) --no-print-directory --jobs 3 lint types docs
	@$(MAKE) --no-print-directory unit

lint: $(READY) ## Check style
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY) ## Check types
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/python -m tests.support.page_types README.md docs/index.md

pages: $(READY) ## Check the types of the examples in the documentation
	$(BIN)/python -m tests.support.page_types

unit: $(READY) ## Run the tests
	@$(BIN)/python tests/support/remote/get_nginx.py
	@$(BIN)/python tests/support/remote/get_azurite.py
	@$(BIN)/python tests/support/get_chromium.py
	@$(BIN)/python tests/support/signing/get_softhsm.py
	@# One more than there are cores: a third of the time, tests wait for other programs, servers and disks.
	$(BIN)/pytest --numprocesses $$($(BIN)/python -c 'import os; print(os.cpu_count() + 1)') --dist worksteal

test-versions: ## Run the core of the tests on every Python found here, and with the lowest dependencies
	$(PYTHON) -m tests.support.versions

docs: $(READY) ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(READY) ## Fix style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY) ## Compare with other libraries; writes benchmarks/record.json, docs/benchmarks.md and its plots
	@$(BIN)/python tests/support/remote/get_nginx.py
	$(BIN)/python -m benchmarks

pictures: $(READY) ## Draw again what README and the pages show of tensorkeep itself
	$(BIN)/python examples/terminal.py
	$(BIN)/python -m tests.support.run_notebook
	@$(BIN)/python tests/support/get_chromium.py
	$(BIN)/python -m tests.support.view_pictures

fuzz: $(READY) ## Feed broken files of every kind to the readers, and what scan calls clean to real ones
	$(BIN)/python -m fuzz.headers --seed $(SEED)
	$(BIN)/python -m fuzz.kinds --first $(SEED)000000 --files $(FILES)
	$(BIN)/python -m fuzz.pickles --seed $(SEED)
	$(BIN)/python -m fuzz.scans --seed $(SEED)
	$(BIN)/python -m fuzz.states --seed $(SEED)

soak: FILES = 40000
soak: fuzz ## Kill, damage and fuzz for hours: make soak SCALE=2 SEED=7
	@$(BIN)/python tests/support/remote/get_nginx.py
	TENSORKEEP_SOAK=$(SCALE) TENSORKEEP_SEED=$(SEED) \
		$(BIN)/pytest -m soak --numprocesses logical --timeout 0 --hypothesis-seed $(SEED)

gpu: ## Run the tests that need a GPU, and measure: make gpu GPU_PYTHON=python3 on a machine that has torch
	$(GPU_PYTHON) -m benchmarks.gpu --tests $(GPU_OPTIONS)

clean: ## Remove everything built
	rm -rf .venv site dist demo-out .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11'; exit 1; }
	@echo 'Installing into .venv (a minute or two, once) ...'
	@$(PYTHON) -m venv .venv
	@$(PIP_INSTALL) pip
	@$(PIP_INSTALL) --build-constraint constraints.txt --group dev --editable .
	@touch $@
