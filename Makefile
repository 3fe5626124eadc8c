# Everything a newcomer needs: `make run` and `make test`. Needs Python >= 3.11, a C++20 compiler
# and git; all else is installed into .venv from PyPI.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FUZZ_SECONDS ?= 600
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PATH := $(CURDIR)/$(BIN):$(PATH)

ENGINE_SOURCES := $(shell find engine workloads/kernels cmake CMakeLists.txt pyproject.toml \
	-name '*.cpp' -o -name '*.hpp' -o -name '*.cmake' -o -name CMakeLists.txt -o -name pyproject.toml)

.DEFAULT_GOAL := help
.PHONY: help setup run test lint format sanitize fuzz bench smoke engine-test clean preflight

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

preflight:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "error: Python 3.11 or newer is needed ($(PYTHON) is not); set PYTHON=/path/to/python3" >&2; exit 1; }
	@cxx=$${CXX:-c++}; command -v $$cxx >/dev/null 2>&1 || \
	  { echo "error: no C++ compiler found ($$cxx); install one with C++20, e.g. 'apt install g++', or set CXX" >&2; exit 1; }; \
	echo 'int main() { return 0; }' | $$cxx -std=c++20 -x c++ - -o /dev/null 2>/dev/null || \
	  { echo "error: the C++ compiler ($$cxx) does not take -std=c++20; install g++ 12 or clang 15 or newer, or set CXX" >&2; exit 1; }

$(VENV)/.dependencies: pyproject.toml | preflight
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing dependencies into $(VENV) (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@touch $@

$(VENV)/.installed: $(VENV)/.dependencies $(ENGINE_SOURCES)
	@echo "Building the engine ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable .
	@touch $@

setup: preflight $(VENV)/.installed ## Create .venv, install dependencies, build the engine

run: setup ## Tune the cachelib workload with a budget of 100 trials
	@$(BIN)/tune run --workload cachelib --budget 100 $(ARGS)

engine-test: $(VENV)/.dependencies | preflight ## Build and run the engine's unit tests
	@cmake --preset release >/dev/null
	@cmake --build --preset release
	@build/release/engine_tests

test: setup engine-test ## Run the whole test suite
	@$(BIN)/python -m pytest $(ARGS)

lint: setup ## ruff, mypy --strict, clang-format
	@$(BIN)/ruff check tuner tests
	@$(BIN)/ruff format --check tuner tests
	@$(BIN)/mypy tuner
	@git ls-files '*.cpp' '*.hpp' | xargs $(BIN)/clang-format --dry-run --Werror

format: setup ## Format all sources
	@$(BIN)/ruff check --fix --quiet tuner tests || true
	@$(BIN)/ruff format --quiet tuner tests
	@git ls-files '*.cpp' '*.hpp' | xargs $(BIN)/clang-format -i

sanitize: $(VENV)/.dependencies | preflight ## Engine tests under address and undefined-behaviour sanitizers
	@cmake --preset sanitize >/dev/null
	@cmake --build --preset sanitize
	@build/sanitize/engine_tests

fuzz: $(VENV)/.dependencies | preflight ## Ten minutes of fuzzing per target (FUZZ_SECONDS=600), under sanitizers
	@cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz
	@for target in stream spool import; do \
	  build/fuzz/fuzz $$target --corpus tests/fuzz/corpus/$$target --seconds $(FUZZ_SECONDS) || exit 1; done

smoke: setup ## Every policy on every workload's smoke input
	@$(BIN)/tune smoke

bench: setup ## All speed figures in one run; writes results/bench.json
	@cmake --preset bench >/dev/null
	@cmake --build --preset bench
	@cmake --preset bench-portable >/dev/null
	@cmake --build --preset bench-portable --target bench_track
	@$(BIN)/python tests/bench/run.py --build build/bench --out results/bench.json $(ARGS)

clean: ## Remove build products and the virtual environment
	rm -rf build $(VENV) dist
