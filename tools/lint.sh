#!/bin/sh
# Everything that can be judged without running the product.
set -eu
PATH="$PWD/.venv/bin:$PATH"
ruff check --quiet .
ruff format --check --quiet .
lint-imports --no-logo --no-cache
mypy
(cd proto && buf lint && buf format --diff --exit-code)
released=$(git tag --list 'proto-v*' --sort=-version:refname | head -1)
if [ -n "$released" ]; then
    (cd proto && buf breaking --against "../.git#tag=$released,subdir=proto")
else
    echo "contracts: no release (tag proto-v*) to compare with yet, so breaking changes are not looked for"
fi
python tools/secret_scan.py
