#!/bin/sh
# Everything that can be judged without running the product.
set -eu
PATH="$PWD/.venv/bin:$PATH"
ruff check .
ruff format --check --quiet .
lint-imports --no-logo --no-cache
mypy
(cd proto && buf lint && buf format --diff --exit-code)
python tools/secret_scan.py
