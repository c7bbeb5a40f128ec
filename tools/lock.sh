#!/bin/sh
# Compiles requirements/*.txt, with hashes and without the name of any index.
set -eu
members=$(ls -d libs/* services/* cli)
omit=$(for member in $members; do sed -n 's/^name = "\(.*\)"$/--no-emit-package \1/p' "$member/pyproject.toml"; done)
compile() {
    # shellcheck disable=SC2086
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
        --no-emit-index-url --custom-compile-command "make lock" $omit "$@"
}
# shellcheck disable=SC2046
compile $(for member in $members; do echo "$member/pyproject.toml"; done) --output-file requirements/platform.txt
compile --group build -c requirements/platform.txt --output-file requirements/build.txt
compile --group dev -c requirements/platform.txt -c requirements/build.txt --output-file requirements/dev.txt
echo uv | compile - --output-file requirements/bootstrap.txt
