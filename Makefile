# Everything a user or contributor runs. Each target sets up what it needs: a virtual environment in .venv with the tested set.

VENV ?= .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
# Where the environment was made: one that was copied or moved with its checkout still runs the old checkout's code. A PYTHON
# that is named is looked at each time.
MOVED := $(if $(filter-out x,x$(shell test "$$(cat '$(VENV)/.place' 2>/dev/null)" = "$$(pwd -P)" || echo moved)$(PYTHON)),moved)

.DEFAULT_GOAL := help
.PHONY: help demo quick types fast-tests test check test-gpu test-engines test-vllm bench soak pictures pins clean moved loop-tests types-and-other-tests

help:
	@echo "make demo      train a small model, minutes on two cores, and open the report (sets everything up first)"
	@echo "make quick     lint, types and the fast tests: under 90 s, for every edit"
	@echo "make test      format, lint, types and all tests, changing nothing"
	@echo "make check     the same for contributors: fixes format and lint first"
	@echo "make test-gpu  the tests that need a CUDA device"
	@echo "make test-engines  verl, SkyRL, tinker and prime-rl's library in environments of their own, on a CPU: minutes, gigabytes"
	@echo "make test-vllm rollouts from real vLLM servers on the CPU, in an environment of their own (minutes, 3 GB)"
	@echo "make bench     the benchmarks, each printing its ratios"
	@echo "make soak      10,000 updates with kills, a faulty server and a full disk: about an hour (UPDATES=600: minutes)"
	@echo "make pictures  draw the pictures of the README again"
	@echo "make pins      write constraints.txt from the newest set that the ranges allow"
	@echo "make clean     remove .venv and caches"
	@echo "PYTHON=/path/to/python3.12 after any of them chooses the Python that .venv is made with"

demo: $(READY)
	@$(PY) -m text2grad demo --open

quick: $(READY)
	$(PY) -m ruff check .
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types fast-tests

types: $(READY)
	$(PY) -m mypy

# One thread: the tensors are tiny, and the other core checks types.
fast-tests: $(READY)
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -m 'not gpu and not vllm and not slow'

test: $(READY)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	@$(MAKE) --no-print-directory --jobs 2 --keep-going loop-tests types-and-other-tests

# `make test` runs two halves side by side, each on one core: the tensors are tiny.
LOOPS := tests/training tests/integration tests/models

loop-tests: $(READY)
	OMP_NUM_THREADS=1 $(PY) -m pytest $(LOOPS)

types-and-other-tests: types
	OMP_NUM_THREADS=1 $(PY) -m pytest $(addprefix --ignore=,$(LOOPS))

check: $(READY)
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .
	$(PY) -m mypy
	$(PY) -m pytest

test-gpu: $(READY)
	$(PY) -m pytest -m gpu

# ENGINES="tinker" runs one of them.
test-engines:
	sh scripts/engines/run.sh $(or $(ENGINES),verl skyrl tinker prime_rl)

test-vllm: $(READY)
	PYTHON='$(or $(PYTHON),$(PY))' sh scripts/vllm.sh .venv-vllm $(PY) -m pytest -m vllm tests/integration/test_vllm.py

bench: $(READY)
	@for script in benchmarks/*.py; do echo "== $$script"; $(PY) $$script || exit 1; done

# UPDATES=600 makes it short.
soak: $(READY)
	$(PY) scripts/soak.py --updates $(or $(UPDATES),10000)

pictures: $(READY)
	$(PY) scripts/pictures.py

pins:
	sh scripts/pins.sh

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The stamp is written last, so a set-up that was interrupted is done again.
$(READY): pyproject.toml constraints.txt scripts/setup.sh $(MOVED)
	@PYTHON='$(PYTHON)' sh scripts/setup.sh $(VENV)
	@touch $(READY)
