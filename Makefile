# SPDX-License-Identifier: MIT
# A new user needs `make run` and `make test`. What the machine must have is in README.md and checked by
# cmake/preflight.sh; everything else is installed into .venv from PyPI.
PYTHON ?= python3
# make's own default is g++, which a machine with clang alone does not have.
ifeq ($(origin CXX),default)
CXX := c++
endif
VENV := .venv
BIN := $(VENV)/bin
BUILD := build/engine
FUZZ_SECONDS ?= 600
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export CXX
export PATH := $(CURDIR)/$(BIN):$(PATH)

ENGINE_SOURCES := $(shell find engine workloads spaces cmake CMakeLists.txt pyproject.toml \
	-name '*.cpp' -o -name '*.hpp' -o -name build_id.py -o -name '*.yaml' -o -name CMakeLists.txt \
	-o -name characteristics.json -o -name pyproject.toml)

# Versions are those of constraints.txt, also of what builds a package that comes as source.
PIP_LOG := $(VENV)/pip.log
PIP_INSTALL = rm -f $(PIP_LOG); $(BIN)/python -m pip install --disable-pip-version-check \
	--log $(PIP_LOG) --constraint constraints.txt --build-constraint constraints.txt
OR_EXPLAIN = || { cmake/pip_failed.sh $(PIP_LOG); exit 1; }

.DEFAULT_GOAL := help
.NOTPARALLEL: # one pip at a time; the compiler runs in JOBS processes as it is
.PHONY: help setup run test test-quick engine-test lint tidy format docs hooks sanitize fuzz-build fuzz \
	torture bench bench-tuner smoke wheel tierd image cluster cluster-down test-docker test-cluster test-live test-emulated lock clean preflight

help: ## Show this list
	@echo "make run tunes the cachelib workload, make test runs the tests; both install what they need."
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'
	@echo "run, test, test-quick, test-docker, test-cluster, test-live, test-emulated, sanitize, torture, smoke, bench, bench-tuner and tidy pass ARGS=... on; PYTHON, CXX and JOBS choose tools."

preflight:
	@cmake/preflight.sh "$(PYTHON)" "$(CXX)"

$(VENV)/.pip: | preflight
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@rm -f $(PIP_LOG); $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --log $(PIP_LOG) --upgrade "pip>=25.3,<27" $(OR_EXPLAIN)
	@touch $@

$(VENV)/.packages: pyproject.toml constraints.txt $(VENV)/.pip
	@echo "== 1/2 Python packages (about 350 MB the first time)"
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
	  > $(VENV)/requirements.txt
	@$(PIP_INSTALL) --requirement $(VENV)/requirements.txt --group build $(OR_EXPLAIN)
	@touch $@

# CMake compiles, so that progress shows; pip then finds all of it built and registers the package.
$(VENV)/.engine: $(VENV)/.packages $(ENGINE_SOURCES)
	@echo "== 2/2 the engine"
	@$(BIN)/cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS) \
	  -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" >/dev/null
	@$(BIN)/cmake --build $(BUILD)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  --config-settings=build-dir=$(BUILD) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt $(VENV)/.packages
	@$(PIP_INSTALL) --quiet --group test $(OR_EXPLAIN)
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.packages
	@$(PIP_INSTALL) --quiet --group dev $(OR_EXPLAIN)
	@touch $@

setup: preflight $(VENV)/.engine ## Create .venv, install dependencies, build the engine

run: setup ## Tune the cachelib workload with a budget of 100 trials
	@$(BIN)/tune run --workload cachelib --budget 100 $(ARGS)

engine-test: setup ## Build and run the engine's unit tests
	@$(BIN)/cmake --build $(BUILD) --target engine_tests
	@$(BUILD)/engine_tests

test: setup engine-test $(VENV)/.test ## Run all tests
	@$(BIN)/python -m pytest $(ARGS)

test-quick: setup $(VENV)/.test ## Run the half without Ray and MLflow, in a few minutes
	@$(BIN)/python -m pytest -m "not slow" $(ARGS)

PYTHON_FOLDERS := tuner tests cmake .ci docs docker
MARKDOWN = git ls-files '*.md'

lint: $(VENV)/.dev ## Check style, types, Markdown, links and spelling
	@$(BIN)/ruff check $(PYTHON_FOLDERS)
	@$(BIN)/ruff format --check $(PYTHON_FOLDERS)
	@$(BIN)/mypy
	@git ls-files '*.cpp' '*.hpp' | xargs $(BIN)/clang-format --dry-run --Werror
	@$(MARKDOWN) | xargs $(BIN)/pymarkdown scan
	@$(MARKDOWN) | xargs $(BIN)/python docs/links.py
	@git ls-files ':!*.json' ':!*.png' ':!constraints.txt' ':!tests/fuzz/corpus' | xargs $(BIN)/codespell

# Kernels are left out: a stream is known by its kernel's source, so a changed line makes it stale.
tidy: setup $(VENV)/.dev ## Run clang-tidy on the engine (ARGS=tt_live: on one of its libraries)
	@$(BIN)/run-clang-tidy.py -clang-tidy-binary $(BIN)/clang-tidy -p $(BUILD) -quiet -hide-progress \
	  -j $(JOBS) $(or $(ARGS),'/engine/.*\.cpp$$|/(tt_[a-z]+|_engine)\.dir/Unity/')

format: $(VENV)/.dev ## Format all sources
	@$(BIN)/ruff check --fix --quiet $(PYTHON_FOLDERS) || true
	@$(BIN)/ruff format --quiet $(PYTHON_FOLDERS)
	@git ls-files '*.cpp' '*.hpp' | xargs $(BIN)/clang-format -i

golden: setup ## Write the golden values of streams, results and machines
	@$(BIN)/cmake --build $(BUILD) --target engine_tests
	@TIERTUNE_GOLDEN=write $(BUILD)/engine_tests golden
	@$(BIN)/python tests/tuner/test_golden.py --write

docs: setup ## Write the tables and pictures of the documents from results/ and the engine
	@$(BIN)/python docs/tables.py --write

hooks: $(VENV)/.dev ## Check format, types, prose and the subject at every commit
	@$(BIN)/pre-commit install

sanitize: $(VENV)/.packages ## Run the engine's tests under address and undefined-behaviour sanitizers
	@cmake --preset sanitize --log-level=WARNING
	@cmake --build --preset sanitize
	@ASAN_OPTIONS=handle_sigill=1:$$ASAN_OPTIONS build/sanitize/engine_tests $(ARGS)

fuzz-build: $(VENV)/.packages
	@cmake --preset fuzz --log-level=WARNING
	@cmake --build --preset fuzz

fuzz: fuzz-build ## Fuzz each reader for ten minutes (FUZZ_SECONDS=600), under sanitizers
	@for target in stream spool import requests perf; do \
	  build/fuzz/fuzz $$target --corpus tests/fuzz/corpus/$$target --seconds $(FUZZ_SECONDS) || exit 1; done

torture: setup fuzz-build $(VENV)/.test ## Faults, kills, power loss, damage: goes on where it was (ARGS=--quick: a sample)
	@$(BIN)/python tests/torture/torture.py $(ARGS)

smoke: setup ## Run every policy on every workload's smoke input
	@$(BIN)/tune smoke $(ARGS)

bench: setup ## Measure all speed figures, beside a native build; writes results/bench.json
	@for build in bench bench-native; do \
	  cmake --preset $$build --log-level=WARNING && cmake --build --preset $$build || exit 1; done
	@$(BIN)/python tests/bench/run.py --build build/bench --native build/bench-native \
	  --out results/bench.json $(ARGS)

bench-tuner: setup ## Compare ways to choose what holds near the search's conditions; adds to results/tuner.json. And a sample of searches
	@$(BIN)/python tests/bench/robust.py --out results/tuner.json $(ARGS)
	@$(BIN)/python tests/bench/search.py --set development --seeds 0 --budget 25 --contenders ours,random,workers-4

wheel: $(VENV)/.pip ## Build dist/*.whl, which runs without compiler and checkout
	@$(BIN)/python -m pip wheel --disable-pip-version-check --no-deps --wheel-dir dist .

# Of another architecture it needs a cross compiler: g++-aarch64-linux-gnu for ARCH=aarch64.
MACHINE := $(shell uname -m)
ARCH ?= $(MACHINE)
TIERD := $(if $(filter $(MACHINE),$(ARCH)),$(BUILD),build/$(ARCH))
TIERD_MOST := 8388608 # bytes
tierd: setup ## Write dist/tierd-ARCH, a static program that runs on any Linux of its kind (ARCH=aarch64)
	@test $(ARCH) = $(MACHINE) || $(BIN)/cmake --preset $(ARCH) --log-level=WARNING
	@$(BIN)/cmake --build $(TIERD) --target tierd
	@grep -q '^TIERTUNE_STATIC:.*=1$$' $(TIERD)/CMakeCache.txt || \
	  { echo "error: no static libraries of C and C++ here: apt install libc6-dev, dnf install glibc-static libstdc++-static"; exit 1; }
	@install -D -m 755 $(TIERD)/tierd dist/tierd-$(ARCH)
	@bytes=$$(stat -c %s dist/tierd-$(ARCH)); echo "dist/tierd-$(ARCH): $$bytes bytes"; \
	  test "$$bytes" -le $(TIERD_MOST) || { echo "error: must have at most $(TIERD_MOST)"; exit 1; }

lock: $(VENV)/.pip ## Write constraints.txt: the newest versions that pyproject.toml allows
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/python cmake/lock.py

image: setup ## Build the images of trials and of the cluster, with Docker (BASE=IMAGE: from another Debian; WHEEL=FILE)
	@build=$$($(BIN)/python -c 'from tuner import engine; print(engine.results_id())') && \
	docker build --file docker/Dockerfile $(if $(BASE),--build-arg BASE=$(BASE)) $(if $(WHEEL),--build-arg WHEEL=$(WHEEL)) \
	  --tag tiertune:$$build . && \
	docker build $(if $(BASE),--build-arg BASE=$(BASE)) --tag tiertune-database docker/database

cluster: setup ## Start a Ray cluster and MLflow in those images (WORKERS=3); docker/tune runs a driver in it
	@docker/cluster up --detach --scale worker=$(or $(WORKERS),3)

cluster-down: ## End it, and remove its streams, studies and MLflow's database
	@docker/cluster --profile driver down --volumes

# Without a Docker Engine there is no image, and the tests say why they are skipped.
.PHONY: image-if-docker
image-if-docker: setup
	@if docker version >/dev/null 2>&1; then $(MAKE) --no-print-directory image; fi

test-docker: image-if-docker $(VENV)/.test ## Run the tests of trials in containers, in the images of `make image`
	@$(BIN)/python -m pytest -rs tests/docker $(ARGS)

test-cluster: image-if-docker $(VENV)/.test ## Run those of the cluster alone: faults of every part of it
	@$(BIN)/python -m pytest -rs tests/docker/test_cluster.py $(ARGS)

test-live: setup $(VENV)/.test ## Run tierd on a real kernel with two memory nodes, in an emulated machine
	@TIERTUNE_TIERD=$(CURDIR)/$(BUILD)/tierd $(BIN)/python -m pytest -rs tests/live $(ARGS)

test-emulated: setup $(VENV)/.test ## Time a real kernel's and tierd's tiering in the emulated machine
	@TIERTUNE_EMULATED=1 $(BIN)/python -m pytest -rs tests/emulated $(ARGS)

clean: ## Remove build products and the virtual environment
	rm -rf build $(VENV) dist
