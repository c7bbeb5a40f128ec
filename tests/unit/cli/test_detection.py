"""What `sless deploy` finds out by itself."""

from __future__ import annotations

import pytest
from sless_cli.detection import detect_entrypoint, detect_runtime
from sless_cli.errors import UsageFault

HANDLE = b"def handle(event):\n    return event\n"


@pytest.mark.parametrize(
    ("names", "runtime"),
    [
        (["handler.py"], "python3.11"),
        (["package.json"], "nodejs20"),
        (["index.js", "tool.py"], "nodejs20"),
        (["go.mod"], "go1.23"),
        (["handler.go"], "go1.23"),
        (["package.json", "go.mod"], "nodejs20"),
        (["web/app.js", "handler.py"], "python3.11"),
        ([], "python3.11"),
    ],
)
def test_the_files_of_the_top_folder_tell_the_runtime(names: list[str], runtime: str) -> None:
    assert detect_runtime(dict.fromkeys(names, b"")) == runtime


@pytest.mark.parametrize(
    ("files", "entrypoint"),
    [
        ({"main.py": HANDLE, "handler.py": HANDLE}, "handler.handle"),
        ({"main.py": HANDLE, "other.py": HANDLE}, "main.handle"),
        ({"greet-all.py": HANDLE}, "greet-all.handle"),
        ({"handler.py": b"async def handler(event): ...\ndef handle(event): ...\n"}, "handler.handle"),
        ({"handler.py": b"async def handler(event): ...\n"}, "handler.handler"),
        ({"handler.py": b"handle = print\n"}, "handler.handle"),
        ({"handler.py": b"handle: object = print\n"}, "handler.handle"),
        ({"handler.py": b"from app import run as handler\n"}, "handler.handler"),
        ({"handler.py": b"def handle(:\n"}, "handler.handle"),
    ],
)
def test_python_entrypoints_are_found_in_the_order_of_the_rule(files: dict[str, bytes], entrypoint: str) -> None:
    assert detect_entrypoint(files, "python3.11") == entrypoint


@pytest.mark.parametrize(
    ("files", "runtime"),
    [
        ({"a.py": HANDLE, "b.py": HANDLE}, "python3.11"),
        ({"readme.txt": b""}, "python3.11"),
        ({"handler.py": b"def run(event): ...\n"}, "python3.11"),
        ({"handler.py": b"def outer():\n    def handle(event): ...\n"}, "python3.11"),
        ({"index.js": b"exports.handle = 1"}, "nodejs20"),
        ({"handler.go": b"package handler"}, "go1.23"),
    ],
)
def test_what_the_code_leaves_open_is_asked_for(files: dict[str, bytes], runtime: str) -> None:
    with pytest.raises(UsageFault, match="--entrypoint"):
        detect_entrypoint(files, runtime)
