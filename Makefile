# `make demo` and `make test` set up what they need: Python 3.11 or later and make are enough.
# Other versions of Python and of dependencies, Spark, long searches for faults: tests/Makefile. Speed and papers:
# benchmarks/Makefile. Both are read here, so their targets are made from this folder.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test test-long check lint types docs site release image assurance clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# The demo needs a third of the packages that the tests need; a target that needs more installs the rest.
DEMO := $(or $(wildcard $(READY)),$(VENV)/.demo)
$(READY): EXTRA := test
$(VENV)/.demo: EXTRA := demo

$(READY) $(VENV)/.demo: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; say which with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRA)]'
	@touch $@

setup: $(READY) ## the environment, in .venv

demo: $(DEMO) ## the main job on UCI Adult: policy, grant, tree, exhaustion, audit (results in build/demo)
	$(BIN)/pinq demo --folder build/demo

# Each process that tests, and each that a test starts, would compile everything again without kept bytecode, and load
# what other packages plug into pytest: see docs/decisions/0093-what-makes-the-tests-quick.md.
PYTEST := PYTHONDONTWRITEBYTECODE= PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(BIN)/python -m pytest -p xdist -p randomly -p hypothesispytest

# A part of the time is waiting (disks, servers that start and stop), so one process more than there are cores.
# In a fresh clone each of them would compile all modules.
# TESTS="tests/privacy": all tests of a folder or file, long ones too.
SELECT ?= $(if $(TESTS),,-m 'not long')
test: $(READY) ## all tests but long ones, side by side on all cores; each file's tests stay in one process
	@$(BIN)/python -m compileall -q -j 0 -x '/test_' pinq miners pinq_secure pinq_workbench pinq_demo benchmarks examples tests
	$(PYTEST) -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist loadfile --no-loadscope-reorder $(SELECT) $(TESTS)

test-long: $(READY) ## the tests of more than a second (tests/long.txt), some ten minutes
	$(MAKE) test SELECT='-m long'

$(VENV)/.dev: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

IMAGE ?= localhost/pinq:latest
# BUILD="--build-arg BASE=...": from another image with Python.
image: ## the server as an image, by podman, docker or buildah
	deploy/build $(IMAGE) $(BUILD)

assurance: $(READY) ## kills, races, malformed requests and damaged files in numbers worth quoting, an hour or more (build/assurance.md)
	rm -f build/assurance.md
	PINQ_ASSURANCE=1 $(BIN)/python -m pytest -p no:randomly tests/e2e/test_crash.py tests/e2e/test_server_crash.py tests/e2e/test_race.py tests/e2e/test_server_race.py tests/e2e/test_secure_chaos.py tests/e2e/test_secure_resume.py tests/e2e/test_secure_bytes.py tests/e2e/test_server_fuzz.py tests/property/test_snapshots.py tests/integration/test_ledger_damage.py tests/integration/test_ledger_model.py tests/integration/test_verify_log.py tests/integration/test_mutated_files.py tests/integration/test_office_files.py tests/integration/test_selftest.py tests/integration/test_agents.py tests/e2e/test_workbench_provider.py tests/e2e/test_workbench_analyst.py tests/e2e/test_workbench_offices.py tests/privacy/test_samplers_see_neighbours.py tests/privacy/test_outcomes.py tests/privacy/test_other_samplers.py tests/unit/test_known_draws.py tests/integration/test_published_tables.py tests/unit/linear/test_regression.py tests/integration/test_statistics_coverage.py tests/unit/statistics/test_levels.py tests/contract/test_every_limit.py
	$(BIN)/python -m tests.assurance.planted_faults
	$(BIN)/pinq selftest --report build/selftest.html

lint: $(VENV)/.dev ## style and import directions
	$(BIN)/ruff check pinq miners pinq_secure pinq_workbench pinq_demo tests examples benchmarks tools
	$(BIN)/lint-imports

types: $(VENV)/.dev ## static types
	$(BIN)/mypy

check: lint types test test-long ## all that must hold before a commit lands

$(VENV)/.release: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs,release]'
	@touch $@

release: $(VENV)/.release ## checks, then all artefacts in dist/ with checksums; uploads nothing (RELEASING.md)
	$(MAKE) check prove
	$(BIN)/python tools/release.py build $(if $(LINKS),--links $(LINKS))

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

# What pages link to, copied with the repository's own layout, so that a link means the same there.
SITE := README.md CHANGELOG.md CONTRIBUTING.md RELEASING.md SECURITY.md CODE_OF_CONDUCT.md CITATION.cff LICENSE docs data/README.md policies examples benchmarks/results benchmarks/papers deploy miners/fitted pinq_secure clients/r proofs tools
SITE_FOLDER := build

docs: $(VENV)/.docs site ## all pages as a site with search and the API reference (in build/site; opens from the disk)

site:
	rm -rf $(SITE_FOLDER)/site $(SITE_FOLDER)/site-source
	mkdir -p $(SITE_FOLDER)/site-source
	cp -R --parents $(wildcard $(SITE)) $(SITE_FOLDER)/site-source
	find $(SITE_FOLDER)/site-source -name __pycache__ -prune -exec rm -r {} +
	PINQ_SITE=$(abspath $(SITE_FOLDER))/site PINQ_SITE_SOURCE=$(abspath $(SITE_FOLDER))/site-source PINQ_VERSION="$$($(BIN)/python -c 'import pinq; print(f"pinq-miners {pinq.__version__}, Apache-2.0")')" NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

clean: ## removes what make made
	rm -rf $(VENV) .venv-peers .venv-oldest .venv-3.* build dist *.egg-info

include tests/Makefile benchmarks/Makefile
