# Verbs only; `make help` lists them. The work is done by the programs named in each line.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MEMBERS := $(wildcard libs/* services/* cli)
PROTOS := $(wildcard proto/sless/*/v1/*.proto)
STUBS := libs/contracts/src/sless
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help install dev up test bench lint fmt proto lock docs openapi clean

help: ## what each verb does
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  \033[1m%-10s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## install the platform and the sless command into .venv (nothing to do when done)

dev: $(VENV)/.installed-dev ## install what tests and lint need as well

up: install ## start the platform here, deploy examples/hello-python, print its URL; Ctrl-C stops it all
	@$(BIN)/sless up --deploy examples/hello-python $(ARGS)

test: dev ## lint, unit, contract, integration and end-to-end tests
	@tools/lint.sh
	@$(BIN)/pytest $(ARGS)

bench: dev ## figures beside their peers, as docs/performance.md shows them (wrk is needed; ARGS names single ones)
	@$(BIN)/python -m tests.bench.figures $(ARGS)

lint: dev ## import contracts, ruff, mypy --strict, buf, secret scan
	@tools/lint.sh

fmt: dev ## format the code
	@$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format --quiet .

proto: $(STUBS)/.generated ## make the gRPC stubs from proto/

lock: dev ## compile requirements/*.txt anew from the members' pyproject.toml
	@tools/lock.sh

docs: install ## make docs/limits.md from the tables in the code
	@$(BIN)/python -m tools.limits_doc

openapi: install ## make docs/openapi.json from the routes and the types of requests and answers
	@$(BIN)/python -m tools.openapi_doc

clean: ## remove everything that was made here (not the data of a platform)
	rm -rf $(VENV) $(STUBS) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(VENV)/.python:
	@echo "installing into $(VENV): once, about half a minute"
	@tools/make-venv.sh $(PYTHON) $(VENV)
	@touch $@

$(VENV)/.requirements: $(VENV)/.python requirements/platform.txt requirements/build.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --compile-bytecode -r requirements/platform.txt -r requirements/build.txt
	@touch $@

$(STUBS)/.generated: $(VENV)/.requirements $(PROTOS) tools/proto.sh
	@tools/proto.sh
	@touch $@

$(VENV)/.installed: $(STUBS)/.generated $(MEMBERS:=/pyproject.toml)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation $(foreach m,$(MEMBERS),-e $(m))
	@$(BIN)/python -m compileall -q $(MEMBERS)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements/dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	@touch $@
