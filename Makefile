# Every target makes and uses .venv; `make help` lists them.
PYTHON ?= python3
EXTRAS ?= dev,readers
# torch goes in first and pinned: any later package would otherwise pull the newest build, several GB of CUDA.
TORCH := $(shell grep '^torch==' constraints.txt)
BIN := .venv/bin

.PHONY: help setup demo demo-text test test-all test-slow check bench bench-setup clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: .venv/installed  ## make .venv and install the package in it, editable

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is not (try: make $(MAKECMDGOALS) PYTHON=python3.12)" >&2; \
	  exit 1; }
	@echo "installing into .venv (once; $(TORCH) is the large part)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq -c constraints.txt $(TORCH)
	@$(BIN)/pip install -qq -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

demo: setup  ## real recordings to a report, in a few minutes
	$(BIN)/python examples/demo.py

demo-text: setup  ## real text to a BERT of one's own, in a few minutes
	$(BIN)/python examples/demo_text.py

# Two processes of one thread each: small tests gain nothing from threads.
test: setup  ## the tests without the slow ones
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

test-all: setup  ## all tests
	$(BIN)/pytest -m ''

test-slow: setup  ## only the slow tests (5 is pytest's word for: there are none)
	$(BIN)/pytest -m slow || [ $$? -eq 5 ]

check: setup  ## style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup bench-setup  ## measure speed and memory against peers; writes benchmarks/results/
	$(BIN)/python benchmarks/run.py

bench-setup: .bench-venv/installed  ## make .bench-venv, where the peers live

# torchaudio (braindecode imports it) is built for CUDA and another torch; without its compiled part it falls back to
# Python, as it does by itself where that part is absent. None of the measured models uses it.
.bench-venv/installed: benchmarks/requirements.txt
	@echo "installing the peers into .bench-venv"
	@$(PYTHON) -m venv .bench-venv
	@.bench-venv/bin/pip install -qq $(TORCH)
	@.bench-venv/bin/pip install -qq -r benchmarks/requirements.txt
	@rm -f .bench-venv/lib/python3*/site-packages/torchaudio/lib/*torchaudio.so
	@touch $@

clean:  ## remove what the targets made
	rm -rf .venv .bench-venv demo-run benchmarks/results .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
