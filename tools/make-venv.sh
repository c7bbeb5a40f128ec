#!/bin/sh
# Makes the virtual environment and puts uv into it; says what is missing when it can't.
set -eu
python=$1
venv=$2

if ! command -v "$python" >/dev/null 2>&1; then
    echo "make: no '$python' here. Install Python 3.11 or newer (Debian, Ubuntu: sudo apt-get install python3 python3-venv), or name one: make install PYTHON=/path/to/python3.11" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "make: $("$python" --version 2>&1) is too old: sless needs Python 3.11 or newer. Name one: make install PYTHON=/path/to/python3.11" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    echo "make: $python cannot make virtual environments: its module ensurepip is missing. On Debian and Ubuntu: sudo apt-get install python3-venv" >&2
    exit 1
fi
rm -rf "$venv"
"$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
