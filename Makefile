# Every target sets up what it needs. The first one lists them all.

PYTHON ?= python3
VENV := $(or $(QUEUE_DB_VENV),.venv)
PY := $(VENV)/bin/python
KINDS ?= postgresql mysql mariadb
# Test processes, each with its own servers; `unit_of` in tests/conftest.py says which tests stay in one process. Tests wait more
# than they compute, so there are more processes than cores. WORKERS=0 runs all in one.
WORKERS ?= 4
PYTEST = $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 10 --durations-min 1

# What an older server may do differently.
ON_THE_OLDEST = tests/conformance tests/migrations tests/races tests/faults/test_error_codes.py tests/feeds/plans tests/test_servers.py

# Where 12 GB of memory are free, the servers and files of tests are there: on a disk, making a database takes ten times as long.
IN_MEMORY = awk '$$1 == "MemAvailable:" && $$2 > 12e6' /proc/meminfo | grep -q . && \
	df -Pk /dev/shm | awk '$$4 > 12e6 && $$6 == "/dev/shm" { print $$6 }'
export TMPDIR ?= $(shell { $(IN_MEMORY); } 2> /dev/null)

# The tests start thousands of Pythons: each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# Spark needs a Java; the recipes that run Spark begin with this.
WITH_JAVA = java_home=$$($(PY) tools/java.py) && JAVA_HOME="$$java_home"

.DEFAULT_GOAL := help
.PHONY: help environment demo compare gallery check test test-rest test-nightly test-clusters rehearsal mutants docs lint golden aio format lock servers clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

environment: ## Make .venv with all that requirements.lock pins (at once if it is up to date)
	@$(PYTHON) tools/setup_environment.py

demo: environment ## Show the queue at work with Spark: DIR=folder URL=database TASKS=number, each optional
	@$(WITH_JAVA) $(PY) spark_jobs/demo.py \
		$(if $(DIR),--dir "$(DIR)") $(if $(URL),--url "$(URL)") $(if $(TASKS),--tasks "$(TASKS)")

compare: environment ## Compare the locking strategies on every server that can be started here: KINDS="…" ARGS="--workers 32"
	@$(PY) -m tests.servers compare sqlite $(KINDS) -- --quick $(ARGS)

gallery: environment ## Measure every server that can be started here, shortly, and write docs/gallery.md with its pictures
	@$(PY) -m tools.gallery

# Whoever names tests wants these, and not to hear of the style first.
LINT_FIRST = $(if $(ARGS),environment,lint)

check: $(LINT_FIRST) ## Lint, and test what needs no server: for the loop while writing; ARGS="tests/feeds": only these tests
	@$(PYTEST) --part check $(ARGS)

test: $(LINT_FIRST) ## Lint, and the suite on private servers; ARGS="tests/races -k postgresql": only these tests
	@$(WITH_JAVA) $(PYTEST) --part test $(ARGS)

test-rest: environment ## What make test leaves: SQLite and MySQL, the other strategies, kills, old servers, chaos; ARGS="…": only these tests
	@$(WITH_JAVA) $(PYTEST) --part rest $(ARGS)
	$(if $(ARGS),,@$(PY) -m tests.servers oldest postgresql mariadb -- $(PYTEST) --part test $(ON_THE_OLDEST))
	$(if $(ARGS),,@$(PY) -m tests.chaos --kinds sqlite postgresql mysql mariadb --seconds 20 --rounds 1 --parallel 2)

test-nightly: environment ## What the others have on a twin: MariaDB beside MySQL, cells that a class does not depend on: ARGS="…"
	@$(PYTEST) --part nightly $(ARGS)

test-clusters: environment ## Conflicts and failures on a cluster of three nodes, which it starts by itself: ARGS="…"
	@$(PY) -m pytest --part clusters tests/clusters $(ARGS)

rehearsal: environment ## Upgrade from the previous version and go back, with workers running: ARGS="--from COMMIT --kinds sqlite postgresql"
	@$(PY) -m tests.rehearsal $(ARGS)

mutants: environment ## Change the code in small ways and list what no test of make test notices, resumable: ARGS="'queue_db.strategies.*'"
	@nice -n 19 $(PY) -m tests.servers share postgresql -- $(VENV)/bin/mutmut run --max-children 1 $(ARGS)
	@$(VENV)/bin/mutmut results

docs: environment ## Build the documentation as a site into build/site; dead links end it
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "build/site/index.html"

lint: environment ## Check style, types, who imports whom, the generated classes for asyncio, and the golden SQL
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/mypy --strict queue_db & types=$$!; trap "kill $$types" INT TERM; \
		$(VENV)/bin/lint-imports && $(PY) -m tools.asynchronous check && $(PY) -m tests.sql check; others=$$?; wait $$types && exit $$others

golden: environment ## Write the SQL that each database gets into tests/sql, and into the docs that show it
	@$(PY) -m tests.sql write

aio: environment ## Write the classes of queue_db/aio from the signatures and docstrings of the synchronous ones
	@$(PY) -m tools.asynchronous write

format: environment ## Put the code in the house style
	@$(VENV)/bin/ruff check --fix
	@$(VENV)/bin/ruff format

lock: environment ## Write requirements.lock anew from pyproject.toml, with the newest versions it allows
	@$(PY) -m pip install --quiet --disable-pip-version-check uv
	@$(PY) -m uv pip compile --quiet --universal --upgrade --python-version 3.11 --all-extras --group dev \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml -o requirements.lock
	@git --no-pager diff --stat -- requirements.lock

servers: environment ## Start private servers and print their URLs, until Ctrl-C: KINDS="postgresql mysql mariadb"
	@$(PY) -m tests.servers start $(KINDS)

clean: ## Remove the environment and everything else that was made here
	rm -rf $(VENV) build dist demo-output comparison mutants test-report spark-warehouse metastore_db derby.log *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
