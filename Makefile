# The two commands that matter: `make demo` and `make test`. Both set up everything they need.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Many images set it. Without compiled modules every start of a command, a node or a worker costs thrice as much.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.ready
TWO := -n 2 --dist loadfile --no-loadscope-reorder

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## prepare .venv (demo and test do it by themselves)

$(STAMP): requirements.lock pyproject.toml scripts/setup.sh
	@scripts/setup.sh $(VENV)
	@touch $@

demo: setup  ## a live PostgreSQL into a lake and another one: killed, verified, tampered with, repaired
	@$(VENV)/bin/truecut demo

test: setup coq  ## everything that must hold, with real parts; lint beside it
	@said=$$(mktemp); $(MAKE) --no-print-directory lint >$$said 2>&1 & lint=$$!; \
	$(PYTHON) -m pytest $(TWO) -m "not soak"; tests=$$?; \
	wait $$lint; lint=$$?; cat $$said; rm -f $$said; exit $$(( tests ? tests : lint ))

lint: setup  ## format, lint, layers, strict types
	@$(VENV)/bin/ruff format --check --quiet . && $(VENV)/bin/ruff check --quiet .
	@said=$$($(VENV)/bin/lint-imports --no-cache --no-logo) || { echo "$$said"; exit 1; }
	@$(VENV)/bin/mypy --no-error-summary

coq:
	@scripts/coq.sh

specs: setup  ## the large TLA+ models
	@$(PYTHON) -m specs.run --large

soak: setup  ## long runs: hundreds of kills, thousands of random polls
	@$(PYTHON) -m pytest $(TWO) -m soak

bench: setup  ## speed and memory, against the plain way
	@$(PYTHON) -m benchmarks

lock:  ## renew requirements.lock from pyproject.toml
	@$(VENV)/bin/python -m uv pip compile --quiet --universal --python-version 3.11 --extra dev \
	  --generate-hashes --no-header --no-annotate --output-file requirements.lock pyproject.toml

.PHONY: help setup demo test lint coq specs soak bench lock
