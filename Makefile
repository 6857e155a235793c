# Short names for the commands of run.py. ARGS are passed on: make test ARGS="-k lease".
PYTHON ?= python3

.DEFAULT_GOAL := help
.PHONY: help demo test check docs lock bench clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo:  ## start Floodmark on SQLite and show it at work
	@$(PYTHON) run.py demo $(ARGS)

test:  ## run every check and every test, on real PostgreSQL and Valkey
	@$(PYTHON) run.py test $(ARGS)

check:  ## run format, lint, type and import checks and the fast tests
	@$(PYTHON) run.py check

docs:  ## build the docs site into dist/docs
	@$(PYTHON) run.py docs

lock:  ## write requirements.lock and requirements-dev.lock from pyproject.toml
	@$(PYTHON) run.py lock $(ARGS)

bench:  ## list the benchmarks and how to run them
	@$(PYTHON) run.py bench $(ARGS)

clean:  ## remove .venv and all caches
	@$(PYTHON) run.py clean
