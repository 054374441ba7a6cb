# Two commands set everything up: `make demo` and `make test`. Both install into .venv and write nowhere else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard native/*)
export TMPDIR := $(CURDIR)/build/tmp
export PIP_DISABLE_PIP_VERSION_CHECK := 1
HYPOTHESIS_PROFILE ?= ci
export HYPOTHESIS_PROFILE

.PHONY: help demo test test-all bench check format clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(VENV)/installed ## install and run every operator on a small example
	$(BIN)/lunette demo

test: $(VENV)/installed-tests check ## install what the tests need, check style and types, run the tests
	$(BIN)/python -m pytest -q -n auto
	LUNETTE_ISA=generic $(BIN)/python -m pytest -q -n auto tests/test_kernels.py

test-all: $(VENV)/installed-tests check ## the tests at length: thousands of random examples per law
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -q -n auto

bench: $(VENV)/installed-bench ## measure beside PyTorch, JAX, ONNX Runtime and OpenVINO; BENCH=--quick for a short look
	$(BIN)/lunette bench --threads 1 $(BENCH)
	$(BIN)/lunette bench --threads 2 $(BENCH)
	$(BIN)/lunette bench --threads 1 --dtype float64 $(BENCH)

check: $(VENV)/installed-tests ## style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/installed-tests ## let ruff write the style
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean: ## remove what was built
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "lunette needs Python 3.11 or later: make PYTHON=python3.11"'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python $(SOURCES)
	mkdir -p $(TMPDIR)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/installed-tests: $(BIN)/python $(SOURCES)
	mkdir -p $(TMPDIR)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/installed

$(VENV)/installed-bench: $(BIN)/python $(SOURCES)
	mkdir -p $(TMPDIR)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	touch $@ $(VENV)/installed
