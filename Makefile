# make demo: set up and run the main job on built-in input.   make test: everything that CI checks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed-by-make

# One thread a process: tests run side by side, and results do not depend on the number of cores.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test format lint types tests long lock clean

demo: $(STAMP)
	env -u OMP_NUM_THREADS $(BIN)/geomix sits demo -o demo

test: lint types tests

$(STAMP): requirements.lock setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: geomix needs Python 3.11 or newer, '$(PYTHON)' is `$(PYTHON) --version 2>&1`;" \
	       "name another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: Python's venv module is missing; on Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	@echo "installing geomix and its libraries into $(VENV); the first time takes some minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

# By file, so that what a file prepares once is prepared once.
tests: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations 10

# What takes too long, or needs the network.
long: $(STAMP)
	$(BIN)/python -m pytest tests/long

# Pin what is installed. Not triton: torch builds for CUDA ask for one version of it themselves.
lock: $(STAMP)
	{ echo "# Written by 'make lock': what geomix is developed and tested with."; \
	  $(BIN)/python -m pip freeze --all --exclude geomix --exclude pip --exclude triton | sed 's/+cpu$$//'; \
	  echo "triton; sys_platform == 'linux'"; } > requirements.lock.new
	mv requirements.lock.new requirements.lock

clean:
	rm -rf $(VENV) demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
