# make demo   talk to a small model        make test   see it proven
# Both set up everything they need first, in .venv: Python 3.10+ with venv, a C++ compiler and the network are enough.
#
#   make demo BUILD_ARGS="--backend cuda --cuda-arch 86"     arguments of `dflash-local build`
#   make demo DEMO_ARGS="--port 9000"                        arguments of `dflash-local demo`
#   make wheel WHEEL_ARGS="--backend cuda --cuda-arch 86"    arguments of `dflash-local wheel`
#   make wheels MACHINE=linux-x86_64                         wheels of a release, by cibuildwheel: docs/building.md

PYTHON     ?= python3
BUILD_ARGS ?=
DEMO_ARGS  ?=
WHEEL_ARGS ?= --portable
TEST_ARGS  ?=
BENCH_ARGS ?=
GPU_PROOF_ARGS ?=
IMAGE_ARGS ?=

BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
# Python's own may be years old, and slow at finding what fits together. It was run with 26.3.
PIP := pip>=26,<27
# Python compiles what is imported, not everything: half the time of an installation.
# setuptools takes the folders of ggml_ops for forgotten packages, and a current pip shows its warnings.
PIP_INSTALL = PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Tests start Python hundreds of times; without bytecode each would compile anew what it imports.
unexport PYTHONDONTWRITEBYTECODE

NATIVE_FILES := $(shell find ggml_ops -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')

.PHONY: setup native setup-test demo wheel wheels test test-all toolchains checks lint style shape types imports layers tidy format native-build native-test page bench gpu-proof dist installers windows-zip recipes images hashes upload clean distclean

# Arguments of a make that runs its goals side by side, which keeps all cores busy.
AT_ONCE = --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j 5)

# An installation, while the compiler works: the native build needs nothing of it.
while_compiling = $(MAKE) -s $(AT_ONCE) $1 \
	$(if $(wildcard $1)$(findstring --out,$(BUILD_ARGS)),,native)

setup: .venv/.created
	+@$(call while_compiling,.venv/.installed)
	@$(BIN)/dflash-local build $(BUILD_ARGS)

# The native build, into the cache.
native: .venv/.created
	@$(BIN)/python -m dflash_local.cli build --no-install $(BUILD_ARGS)

setup-test: .venv/.created
	+@$(call while_compiling,.venv/.installed-test)
	@$(BIN)/dflash-local build $(BUILD_ARGS)

demo: setup
	@$(BIN)/dflash-local demo $(DEMO_ARGS)

# Into dist/, for machines without a compiler: docs/building.md.
wheel: .venv/.installed
	@$(PIP_INSTALL) -e '.[wheel]'
	@$(BIN)/dflash-local wheel $(WHEEL_ARGS)

# Those of a release for one kind of machine, into dist/: release/wheels.py lists them.
wheels: .venv/.installed
	@$(PIP_INSTALL) -e '.[wheels]'
	@$(BIN)/python -m release.wheels --machine "$(MACHINE)"

# Three tests at a time, file by file: on two cores, since many wait. tests/conftest.py orders the files.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# What each prints stays in one piece where make can do that (since 4.0; macOS has 3.81).
SIDE_BY_SIDE = $(AT_ONCE) $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

LINT := types tidy style imports layers

# What comes before the tests.
checks: setup-test
	@echo "lint, and what has changed of the native tests"
	@$(MAKE) $(SIDE_BY_SIDE) native-build $(LINT)

test: checks
	@$(PYTEST) -m "not slow" $(TEST_ARGS)

# What measures time comes last, alone.
test-all: export DFLASH_TEST_ALL = 1
test-all: toolchains
	@$(MAKE) --no-print-directory checks NATIVE_ARGS=--all
	@$(PYTEST) -m "not timing" $(TEST_ARGS)
	@$(BIN)/python -m tests.devices
	@$(BIN)/python -m pytest -m timing $(TEST_ARGS)

# What only slow tests need: Python packages; compilers, emulators and container tools (Debian packages), where they may
# be installed.
toolchains: .venv/.installed-test-all setup-test
	@$(BIN)/python -m tests.toolchains --install

bench: setup-test
	@$(BIN)/python benchmarks/compare_upstream.py $(BENCH_ARGS)

# With nothing installed, from what `dflash-local build --out DIR` packed: docs/gpu.md.
gpu-proof:
	@$(PYTHON) -m benchmarks.gpu_proof $(GPU_PROOF_ARGS)

lint: setup-test
	@$(MAKE) $(SIDE_BY_SIDE) $(LINT)

style: .venv/.installed-test
	@ruff check .
	@ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@clang-format --dry-run --Werror $(NATIVE_FILES) || { echo "run: make format"; exit 1; }

# mypy and lint-imports can't follow setuptools' mapping of convert/ and server/ into the package: build/types shows them
# the installed shape.
shape:
	@rm -rf build/types && mkdir -p build/types/dflash_local
	@ln -s "$(CURDIR)"/dflash_local/* "$(CURDIR)/convert" "$(CURDIR)/server" build/types/dflash_local/
	@ln -s "$(CURDIR)/tests" "$(CURDIR)/benchmarks" "$(CURDIR)/release" "$(CURDIR)/pyproject.toml" build/types/

# Where every checkout finds it: mypy compares what files say, not where they are.
TYPES_CACHE = python -c 'from dflash_local.build.upstream import cache_dir; print(cache_dir() / "types")'

types: .venv/.installed-test shape
	@cd build/types && cache="$$($(TYPES_CACHE))" && mypy --config-file "$(CURDIR)/pyproject.toml" --cache-dir "$$cache" \
		-p dflash_local -p tests -p benchmarks -p release

imports: .venv/.installed-test shape
	@cd build/types && lint-imports --no-cache --no-logo > ../imports.log || \
		{ cat ../imports.log; exit 1; }

format: .venv/.installed-test
	@ruff format --quiet .
	@clang-format -i $(NATIVE_FILES)

# What has changed of ggml_ops/tests, into build/native; NATIVE_ARGS=--all: for slow tests and for ARM too.
native-build: setup-test
	@$(BIN)/python -m tests.ggml_ops.native $(NATIVE_ARGS)

native-test: native-build
	@$(BIN)/python -m pytest -m "not slow" tests/ggml_ops

# Files without findings are remembered: a second run looks at what has changed.
tidy: setup-test
	@$(BIN)/python -m tests.ggml_ops.tidy

# Includes between the folders of ggml_ops; names of files there, and of Python modules.
layers: .venv/.installed-test
	@$(BIN)/python -m tests.ggml_ops.layers
	@$(BIN)/python -m tests.module_names

# The chat page, with npm, into server/page/dist, which is kept in the repository: docs/page.md.
page: .venv/.installed-test
	@$(BIN)/python -m tests.page.answer_shapes
	@cd server/page && npm ci --silent && npm run --silent build

# With what the native build imports.
.venv/.created:
	@$(PYTHON) -c 'import sys; sys.version_info < (3, 10) and sys.exit("error: Python 3.10 or newer is needed, $(PYTHON) is " + sys.version.split()[0])'
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@$(PIP_INSTALL) --upgrade '$(PIP)' "$$(sed -n 's/^ *"\(filelock[^"]*\)".*/\1/p' pyproject.toml)"
	@touch $@

.venv/.installed: pyproject.toml | .venv/.created
	@echo "installing dflash-local into .venv"
	@$(PIP_INSTALL) -e .
	@touch $@

# With what it brings along, so not after it: an installation reads the indexes and makes an editable wheel each time.
.venv/.installed-test: pyproject.toml | .venv/.created
	@echo "installing dflash-local and the test tools into .venv"
	@$(PIP_INSTALL) -e '.[convert,test,dev]'
	@touch .venv/.installed $@

.venv/.installed-test-all: .venv/.installed-test
	@echo "installing what only slow tests need into .venv"
	@$(PIP_INSTALL) -e '.[test-all]'
	@touch $@

# sdist and wheel of dflash-local itself, checked; PROJECT_URL is the address that their metadata name.
dist: .venv/.installed-test
	@$(BIN)/python -m release.dist --url "$(PROJECT_URL)"

# The scripts that install a release, into dist/: they know the address of its files.
installers: .venv/.installed
	@$(BIN)/python -m release.installers --url "$(PROJECT_URL)"

# The archive for Windows with a Python of its own, from the wheels in dist/.
windows-zip: .venv/.installed
	@$(BIN)/python -m release.windows_zip

# Recipes of Homebrew, conda-forge and winget for the files of dist/ and their hashes, into build/recipes.
recipes: .venv/.installed
	@$(BIN)/python -m release.recipes --url "$(PROJECT_URL)"

# Container images from the wheels in dist/, by the names of a release; IMAGE_ARGS=--push publishes them.
images: .venv/.installed
	@$(BIN)/python -m release.images --image "$(IMAGE)" $(IMAGE_ARGS)

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
