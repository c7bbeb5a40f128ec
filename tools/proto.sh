#!/bin/sh
# Makes the stubs of proto/ in libs/contracts/src/sless (not committed).
set -eu
out=libs/contracts/src
rm -rf "$out/sless"
# shellcheck disable=SC2046
PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m grpc_tools.protoc -Iproto \
    --python_out="$out" --grpc_python_out="$out" --mypy_out="quiet:$out" --mypy_grpc_out="quiet:$out" \
    $(cd proto && find sless -name '*.proto' | sort)
