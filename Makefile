# Every command of this repository. `make` alone lists them.
# Environments are made from hash-checked pins, which no installer resolves: docs/supply-chain.md.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
CORE := .venv-core
LOCK := .venv-lock
TRY := .venv-try
PY := $(VENV)/bin/python
CODE := $(wildcard src tests bench tools examples deploy)
MATRIX := memory,websocket,http,sdk
CORE_TESTS := tests/protocol tests/model tests/messages/test_protocol.py tests/view tests/requirements tests/testing

# The first Python that is new enough. `make setup PYTHON=/path/to/python` overrides it.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$python" && break; done)

# $(call environment,<folder>): an environment that holds exactly its pins. tools/environments/table.py has it.
# A Python that the caller named makes the environment again, if another one made it.
define environment
	@python="$(PYTHON)"; \
	if [ -z "$$python" ] || ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "make: Python 3.11 or newer is needed and was not found; name one with PYTHON=/path/to/python" >&2; \
		exit 1; \
	fi; \
	"$$python" -I tools/environments $(1) $(if $(filter file,$(origin PYTHON)),,--this-python)
endef

.PHONY: help
help: ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-12s%s\n", $$1, $$2 }'

.PHONY: setup
setup: ## make .venv from the pins and install the project into it, once
	$(call environment,$(VENV))

.PHONY: $(CORE) $(LOCK) $(TRY)
$(CORE) $(LOCK) $(TRY):
	$(call environment,$@)

.PHONY: demo
demo: setup ## see a space at work, and what Spark finds in its journal; the gateway stays: make demo KEEP=1
	@$(PY) -m tools.demo $(if $(KEEP),--keep)

.PHONY: try
try: $(TRY) ## look at a space at work with nothing but the gateway's own libraries; Ctrl-C ends it
	@PYTHONPATH=src $(TRY)/bin/python -m tools.demo --endless

.PHONY: screenshots
screenshots: setup ## take the pictures of the documents again, in a real browser
	@$(PY) -m tools.screenshots

.PHONY: test
test: setup ## run every part of the tests, or one: make test PART=core
	@$(PY) -m tools.parts $(PART)

.PHONY: test-fast
test-fast: $(CORE) ## test the core with nothing but its own libraries, in a minute
	@$(CORE)/bin/python -m pytest $(CORE_TESTS) -q -n 2

.PHONY: check
check: setup ## style, types, who imports whom, dependencies, documents
	@echo "── ruff"; $(PY) -m ruff check . && $(PY) -m ruff format --check .
	@echo "── mypy"; $(PY) -m mypy $(CODE)
	@echo "── import-linter"; $(VENV)/bin/lint-imports --no-logo
	@echo "── deptry"; $(PY) -m deptry src
	@echo "── documents"; $(PY) -m pytest tests/docs -q --ignore=tests/docs/test_blocks.py --ignore=tests/docs/test_notebook.py

.PHONY: docs
docs: setup ## build the documents as a site in build/site; serve it as well: make docs SERVE=1
	@$(PY) -m tools.site $(if $(SERVE),--serve)

.PHONY: bench
bench: setup ## measure; one thing only: make bench NAME=core
	@$(PY) -m bench $(NAME)

.PHONY: torture
torture: setup ## the long tests: many histories, the whole matrix, properties with new examples, every mutant of the core
	@trap 'exit 130' INT; failed=; \
	$(PY) -m pytest tests/torture -q --timeout=3600 || failed+=" histories"; \
	$(PY) -m pytest tests/requirements --transport $(MATRIX) --whole-matrix -q -n 2 || failed+=" matrix"; \
	$(PY) -m pytest tests -m hypothesis --hypothesis-profile=torture -q -n 2 --timeout=3600 || failed+=" properties"; \
	$(PY) -m tools.mutants || failed+=" mutants"; \
	if [ -n "$$failed" ]; then echo "make torture: failed in$$failed" >&2; exit 1; fi

.PHONY: format
format: setup ## rewrite the code in the house's format
	@$(PY) -m ruff check --fix . && $(PY) -m ruff format .

.PHONY: lock
lock: $(LOCK) ## remake the pins; newer versions too: make lock UPGRADE=1
	@compile="$(LOCK)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade)"; \
	for name in core dev lock build pip-oldest pip-newest; do \
		echo "── requirements/$$name.txt"; \
		$$compile requirements/$$name.in --output-file requirements/$$name.txt; \
	done; \
	echo "── requirements/server.txt, requirements/pipeline.txt: what the images and make try hold"; \
	images="$$compile --constraint requirements/dev.txt pyproject.toml --extra server --extra bridge"; \
	$$images --output-file requirements/server.txt; \
	$$images --extra pipeline --output-file requirements/pipeline.txt; \
	echo "── tests/tools/bounds: the lowest and the highest versions that pyproject.toml allows"; \
	bounds="$$compile pyproject.toml --all-extras"; \
	$$bounds --resolution lowest-direct --output-file tests/tools/bounds/lowest.txt; \
	$$bounds --output-file tests/tools/bounds/highest.txt

.PHONY: clean
clean: ## remove environments, caches and what builds made
	rm -rf .venv .venv-core .venv-lock .venv-try build dist htmlcov mutants .coverage .coverage.*
	rm -rf .mew/demo
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
