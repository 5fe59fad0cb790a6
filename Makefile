# The two commands that matter: `make demo` and `make test`. Both set up everything they need.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.ready

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## prepare .venv (demo and test do it by themselves)

$(STAMP): requirements.lock pyproject.toml scripts/setup.sh
	@scripts/setup.sh $(VENV)
	@touch $@

demo: setup  ## one lake routed live into several tenants' lakes, one killed half-way
	@$(VENV)/bin/truecut demo

test: setup lint  ## everything that must hold, with real parts
	@$(PYTHON) -m pytest -m "not soak"

lint: setup  ## format, lint, strict types
	@$(VENV)/bin/ruff format --check --quiet . && $(VENV)/bin/ruff check --quiet . && $(VENV)/bin/mypy --no-error-summary

specs: setup  ## the large TLA+ models
	@$(PYTHON) -m specs.run --large

soak: setup  ## long runs: hundreds of kills, thousands of random polls
	@$(PYTHON) -m pytest -m soak

bench: setup  ## speed and memory, against the plain way
	@$(PYTHON) -m benchmarks

lock:  ## renew requirements.lock from pyproject.toml
	@$(VENV)/bin/python -m uv pip compile --quiet --universal --python-version 3.11 --extra dev \
	  --generate-hashes --no-header --no-annotate --output-file requirements.lock pyproject.toml

.PHONY: help setup demo test lint specs soak bench lock
