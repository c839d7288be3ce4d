# make demo   talk to a small model        make test   see it proven
# Both set up everything they need first, in .venv: Python 3.10+ with venv, a C++ compiler and the network are enough.
#
#   make demo BUILD_ARGS="--backend cuda --cuda-arch 86"     arguments of `dflash-local build`
#   make demo DEMO_ARGS="--port 9000"                        arguments of `dflash-local demo`
#   make wheel WHEEL_ARGS="--backend cuda --cuda-arch 86"    arguments of `dflash-local wheel`

PYTHON     ?= python3
BUILD_ARGS ?=
DEMO_ARGS  ?=
WHEEL_ARGS ?= --portable
TEST_ARGS  ?=
BENCH_ARGS ?=
GPU_PROOF_ARGS ?=

BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

NATIVE_FILES := $(shell find ggml_ops -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')

.PHONY: setup setup-test demo wheel test test-all toolchains lint tidy format native-build native-test page bench gpu-proof dist hashes upload clean distclean

setup: .venv/.installed
	@$(BIN)/dflash-local build $(BUILD_ARGS)

setup-test: setup .venv/.installed-test

demo: setup
	@$(BIN)/dflash-local demo $(DEMO_ARGS)

# Into dist/, for machines without a compiler: docs/building.md.
wheel: .venv/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[wheel]'
	@$(BIN)/dflash-local wheel $(WHEEL_ARGS)

# Three tests at a time, file by file: on two cores, since many wait. tests/conftest.py orders the files.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test: lint native-build
	@$(PYTEST) -m "not slow" $(TEST_ARGS)

# What measures time comes last, alone.
test-all: toolchains lint native-build
	@$(PYTEST) -m "not timing" $(TEST_ARGS)
	@$(BIN)/python -m tests.devices
	@$(BIN)/python -m pytest -m timing $(TEST_ARGS)

# Compilers and emulators for other machines (Debian packages), where they may be installed.
toolchains: setup-test
	@$(BIN)/python -m tests.toolchains --install

bench: setup-test
	@$(BIN)/python benchmarks/compare_upstream.py $(BENCH_ARGS)

# With nothing installed, from what `dflash-local build --out DIR` packed: docs/gpu.md.
gpu-proof:
	@$(PYTHON) -m benchmarks.gpu_proof $(GPU_PROOF_ARGS)

# mypy and lint-imports can't follow setuptools' mapping of convert/ and server/ into the package: build/types shows them
# the installed shape.
lint: .venv/.installed-test
	@ruff check .
	@ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@clang-format --dry-run --Werror $(NATIVE_FILES) || { echo "run: make format"; exit 1; }
	@rm -rf build/types && mkdir -p build/types/dflash_local
	@ln -s $(CURDIR)/dflash_local/* $(CURDIR)/convert $(CURDIR)/server build/types/dflash_local/
	@ln -s $(CURDIR)/tests $(CURDIR)/benchmarks $(CURDIR)/release build/types/
	@cd build/types && mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache \
		-p dflash_local -p tests -p benchmarks -p release
	@cd build/types && lint-imports --config $(CURDIR)/pyproject.toml --no-cache --no-logo > ../imports.log || \
		{ cat ../imports.log; exit 1; }

format: .venv/.installed-test
	@ruff format --quiet .
	@clang-format -i $(NATIVE_FILES)

# What has changed of ggml_ops/tests, into build/native.
native-build: setup-test
	@$(BIN)/python -m tests.ggml_ops.native

native-test: native-build
	@$(BIN)/python -m pytest -m "not slow" tests/ggml_ops

lint: tidy

# Files without findings are remembered: a second run looks at what has changed.
tidy: setup-test
	@$(BIN)/python -m tests.ggml_ops.tidy

# The chat page, with npm, into server/page/dist, which is kept in the repository: docs/page.md.
page:
	@cd server/page && npm ci --silent && npm run --silent build

.venv/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info < (3, 10) and sys.exit("error: Python 3.10 or newer is needed, $(PYTHON) is " + sys.version.split()[0])'
	@echo "installing dflash-local into .venv"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/.installed-test: .venv/.installed
	@echo "installing the test tools into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[convert,test,dev]'
	@touch $@

# sdist and wheel of dflash-local itself, checked; PROJECT_URL is the address that their metadata name.
dist: .venv/.installed-test
	@$(BIN)/python -m release.dist --url "$(PROJECT_URL)"

# SHA256SUMS of dist/.
hashes:
	@$(PYTHON) -m release.hashes

# What goes to the package index, into build/upload: the sdist, and the wheels that it takes.
upload:
	@$(PYTHON) -m release.upload

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
