# `make demo` and `make test` set up what they need: Python 3.11 or later and make are enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: pictures help setup demo test test-pythons test-newest test-each-python test-oldest test-unit test-privacy test-e2e test-spark test-spark-quick explore attack assurance image test-image lint types check examples benchmark reproduce-fs reproduce-dilca reproduce-diprime reproduce-topdown reproduce-secure moved wheel docs site clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; say which with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $(READY)

setup: $(READY) ## the environment, in .venv

demo: $(READY) ## the main job on UCI Adult: policy, grant, tree, exhaustion, audit (results in build/demo)
	$(BIN)/python examples/adult.py

# Each process that tests, and each that a test starts, would compile everything again without kept bytecode, and load
# what other packages plug into pytest: see docs/decisions/0093-what-makes-the-tests-quick.md.
PYTEST := PYTHONDONTWRITEBYTECODE= PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(BIN)/python -m pytest -p xdist -p randomly -p hypothesispytest

# A part of the time is waiting (disks, servers that start and stop), so one process more than there are cores.
# In a fresh clone each of them would compile all modules.
test: $(READY) ## all tests, side by side on all cores; each file's tests stay in one process
	@$(BIN)/python -m compileall -q -j 0 -x '/test_' pinq miners pinq_secure pinq_workbench benchmarks examples tests
	$(PYTEST) -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist loadfile --no-loadscope-reorder $(TESTS)

# Of each minor version from 3.11 on the newest, on the path or where pyenv keeps them.
PYTHONS ?= $(shell for minor in 11 12 13 14 15; do for python in python3.$$minor $$(ls -rd $$HOME/.pyenv/versions/3.$$minor.*/bin/python 2>/dev/null); do "$$python" -c 'import sqlite3, ssl' 2>/dev/null && echo "$$python" && break; done; done; true)

test-pythons: test-each-python ## all tests on each Python from 3.11 on that is here (or PYTHONS="python3.12 ..."), with the newest dependencies; then test-oldest
	$(MAKE) test-oldest PYTHON=$(firstword $(PYTHONS))

test-newest: ## unit and contract tests on the newest Python that is here, with the newest dependencies
	$(MAKE) test-each-python PYTHONS=$(lastword $(PYTHONS)) TESTS="tests/unit tests/contract"

# Each Python has an environment of its own, .venv-3.12 say, whose packages are brought up to date first.
test-each-python:
	for python in $(PYTHONS); do \
	  venv=.venv-$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') && rm -f $$venv/.ready && \
	  PIP_UPGRADE=1 PIP_UPGRADE_STRATEGY=eager $(MAKE) test PYTHON="$$python" VENV=$$venv TESTS="$(TESTS)" || exit 1; \
	done

tests/oldest.txt: pyproject.toml tests/oldest.py
	$(PYTHON) -m tests.oldest > $@

.venv-oldest/.ready: tests/oldest.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint tests/oldest.txt --editable '.[test]'
	@touch $@

# Old releases use what newer ones of their own dependencies deprecate: that is not ours to mend.
test-oldest: .venv-oldest/.ready ## all tests but e2e, with the oldest version of each dependency that pyproject.toml admits (needs Python 3.11)
	.venv-oldest/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -W ignore::DeprecationWarning tests/unit tests/contract/test_every_*.py tests/property tests/docs

test-unit: $(READY) ## unit, contract, integration and property tests
	$(BIN)/python -m pytest tests/unit tests/contract tests/integration tests/property

test-privacy: $(READY) ## statistical tests of every mechanism
	$(BIN)/python -m pytest tests/privacy

test-e2e: $(READY) ## real processes: the command line, crashes, races, the wheel
	$(BIN)/python -m pytest tests/e2e

$(VENV)/.spark: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,spark]'
	@touch $@

test-spark: $(VENV)/.spark ## the engine inside a Spark of two workers in this process, some minutes (needs Java 17 or later)
	PINQ_SPARK=1 $(BIN)/python -m pytest tests/integration/test_spark.py
	PINQ_SPARK=1 $(BIN)/python -m pytest tests/contract/test_every_engine.py tests/contract/test_every_engines_rows.py -k SparkEngine

test-spark-quick: $(VENV)/.spark ## a tree, shards, a killed worker and a changed source inside Spark, a minute
	PINQ_SPARK=1 $(BIN)/python -m pytest -p no:randomly tests/integration/test_spark.py -k "tree or shards or killed or changes"

$(VENV)/.dev: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

explore: $(READY) ## property tests with examples never drawn before, and many more of them; hundreds of crashes
	PINQ_EXPLORE=1 $(BIN)/python -m pytest tests/unit tests/contract tests/integration tests/property tests/e2e/test_crash.py tests/e2e/test_server_crash.py

attack: $(READY) ## fifty thousand malformed requests against a server (make test sends two thousand, the same ones each time)
	PINQ_ATTACK=1 $(BIN)/python -m pytest -s tests/e2e/test_server_fuzz.py

IMAGE ?= localhost/pinq:latest
image: ## the server as an image, by podman, docker or buildah (BUILD="--build-arg BASE=...": from another image with Python)
	deploy/build $(IMAGE) $(BUILD)

test-image: $(READY) image ## builds the image and runs it as a container: read-only root, not root, reload, stop
	PINQ_IMAGE=$(IMAGE) $(BIN)/python -m pytest tests/e2e/test_image.py

assurance: $(READY) ## kills, races, malformed requests, mutated files and flipped bits in numbers worth quoting, over both ledgers, an hour or more (table in build/assurance.md)
	rm -f build/assurance.md
	PINQ_ASSURANCE=1 $(BIN)/python -m pytest -p no:randomly tests/e2e/test_crash.py tests/e2e/test_server_crash.py tests/e2e/test_race.py tests/e2e/test_server_race.py tests/e2e/test_secure_chaos.py tests/e2e/test_secure_resume.py tests/e2e/test_server_fuzz.py tests/integration/test_ledger_damage.py tests/integration/test_ledger_model.py tests/integration/test_mutated_files.py tests/integration/test_selftest.py tests/integration/test_agents.py tests/e2e/test_workbench_provider.py tests/e2e/test_workbench_analyst.py tests/privacy/test_samplers_see_neighbours.py tests/privacy/test_outcomes.py tests/integration/test_published_tables.py
	$(BIN)/python -m tests.assurance.planted_faults
	$(BIN)/pinq selftest --report build/selftest.html

lint: $(VENV)/.dev ## style and import directions
	$(BIN)/ruff check pinq miners pinq_secure pinq_workbench tests examples benchmarks
	$(BIN)/lint-imports

types: $(VENV)/.dev ## static types
	$(BIN)/mypy

check: lint types test ## all that must hold before a commit lands

.venv-peers/.ready: benchmarks/speed/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/speed/peers.txt
	@touch $@

benchmark: $(READY) .venv-peers/.ready ## speed beside the bare engine and peers, in one run; prints ratios (results in benchmarks/results)
	PEERS_PYTHON=.venv-peers/bin/python $(BIN)/python -m benchmarks.speed.layer
	$(BIN)/python -m benchmarks.speed.server
	PEERS_PYTHON=.venv-peers/bin/python $(BIN)/python -m benchmarks.speed.growth
	$(BIN)/python -m benchmarks.speed.floods
	$(BIN)/python -m benchmarks.speed.predict
	$(BIN)/python -m benchmarks.speed.trees
	$(BIN)/python -m benchmarks.speed.cards
	$(BIN)/python -m benchmarks.speed.sessions
	$(BIN)/python -m benchmarks.accuracy.trees
	$(BIN)/python -m benchmarks.accuracy.tables
	$(BIN)/python -m benchmarks.accuracy.scorecards
	$(BIN)/python -m benchmarks.accuracy.holders
	$(BIN)/python -m benchmarks.accuracy.sessions
	$(BIN)/python -m benchmarks.accuracy.which

reproduce-fs: $(READY) .venv-peers/.ready ## figures 3 to 8 of Friedman & Schuster 2010 again, over hours; goes on where it stopped (ARGS=--quick: minutes)
	PEERS_PYTHON=.venv-peers/bin/python $(BIN)/python -m benchmarks.papers.friedman_schuster $(ARGS)

examples: $(READY) ## what else there is to see: distances between categories, one tree of three holders (results in build/)
	$(BIN)/python examples/dilca.py
	$(BIN)/python examples/three_holders.py

reproduce-dilca: $(READY) ## figures 2-11 and Tables 3-6 of the DP-DILCA paper beside the published mechanism; goes on where it stopped (ARGS=--quick: one run; results in benchmarks/results/dilca)
	$(BIN)/python -m benchmarks.papers.dilca $(ARGS)

reproduce-topdown: $(READY) ## figures 1 to 3, 5 and 6 of the DP-TopDown paper, four holders; goes on where it stopped (ARGS=--quick: minutes)
	$(BIN)/python -m benchmarks.papers.topdown $(ARGS)

reproduce-secure: $(READY) ## secure ID3: Table 6.1 of its paper beside MPyC's demo (MPYC_DEMOS=...), bytes, accuracy with noise inside; goes on where it stopped (ARGS=--quick: one run; results in benchmarks/results/secure)
	$(BIN)/python -m benchmarks.papers.secure $(ARGS)

reproduce-diprime: $(READY) ## tables and figures of the DiPriMe paper on our miners; goes on where it stopped (ARGS=--quick: minutes; results in benchmarks/results/diprime)
	$(BIN)/python -m benchmarks.papers.diprime $(ARGS)

moved: $(READY) ## results whose code has moved since they were measured
	$(BIN)/python -m benchmarks.harness.origin

wheel: $(READY) ## a wheel in dist/
	$(BIN)/python -m build --wheel --outdir dist .

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

# What pages link to, copied with the repository's own layout, so that a link means the same there.
SITE := README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md CODE_OF_CONDUCT.md CITATION.cff LICENSE docs data/README.md policies examples benchmarks/results benchmarks/papers deploy miners/fitted pinq_secure/mpc clients/r
SITE_FOLDER := build

docs: $(VENV)/.docs site ## all pages as a site with search and the API reference, built without network (in build/site; opens from the disk)

site:
	rm -rf $(SITE_FOLDER)/site $(SITE_FOLDER)/site-source
	mkdir -p $(SITE_FOLDER)/site-source
	cp -R --parents $(wildcard $(SITE)) $(SITE_FOLDER)/site-source
	find $(SITE_FOLDER)/site-source -name __pycache__ -prune -exec rm -r {} +
	PINQ_SITE=$(abspath $(SITE_FOLDER))/site PINQ_SITE_SOURCE=$(abspath $(SITE_FOLDER))/site-source PINQ_VERSION="$$($(BIN)/python -c 'import pinq; print(f"pinq-miners {pinq.__version__}, Apache-2.0")')" NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

pictures: $(READY) ## the workbench's pages for the docs, taken by its tests (in docs/pictures/workbench)
	PINQ_PICTURES=1 $(BIN)/python -m pytest tests/e2e/test_workbench_provider.py tests/e2e/test_workbench_analyst.py

clean: ## removes what make made
	rm -rf $(VENV) .venv-peers .venv-oldest .venv-3.* build dist *.egg-info
