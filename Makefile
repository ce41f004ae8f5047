# Everything a user or contributor runs. Each target sets up what it needs: a virtual environment in .venv with the tested set.

VENV ?= .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test check test-gpu bench pictures pins clean

help:
	@echo "make demo      see what text2grad does (sets everything up first)"
	@echo "make test      format, lint, types and all tests, changing nothing"
	@echo "make check     the same for contributors: fixes format and lint first"
	@echo "make test-gpu  the tests that need a CUDA device"
	@echo "make bench     the benchmarks, each printing its ratios"
	@echo "make pictures  draw the pictures of the README again"
	@echo "make pins      write constraints.txt anew, from the newest set that the ranges allow"
	@echo "make clean     remove .venv and caches"

demo: $(READY)
	@$(PY) -m text2grad align --examples --show

test: $(READY)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m pytest

check: $(READY)
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .
	$(PY) -m mypy
	$(PY) -m pytest

test-gpu: $(READY)
	$(PY) -m pytest -m gpu

bench: $(READY)
	@for script in benchmarks/*.py; do echo "== $$script"; $(PY) $$script || exit 1; done

pictures: $(READY)
	$(PY) scripts/pictures.py

pins:
	sh scripts/pins.sh

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The stamp is written last, so a set-up that was interrupted is done again; it is older than the files that say what to install
# when they change. `scripts/setup.sh` finds a Python and says what to do where there is none.
$(READY): pyproject.toml constraints.txt scripts/setup.sh
	@sh scripts/setup.sh $(VENV)
	@touch $(READY)
