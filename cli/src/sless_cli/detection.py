"""What `sless deploy` makes of code that says nothing about itself: its runtime and its entrypoint."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import PurePosixPath

from sless_cli.errors import UsageFault

PYTHON = "python3.11"
NODE = "nodejs20"
GO = "go1.23"

_PREFERRED = ("handler.py", "main.py")
_HANDLERS = ("handle", "handler")
_EXAMPLES = {NODE: "index.handle", GO: "handler.Handle", PYTHON: "handler.handle"}


def detect_runtime(files: Mapping[str, bytes]) -> str:
    """package.json or a .js file → Node.js; go.mod or a .go file → Go; else Python. `files`: path → content; top folder only."""
    names = _top(files)
    if "package.json" in names or any(name.endswith(".js") for name in names):
        return NODE
    if "go.mod" in names or any(name.endswith(".go") for name in names):
        return GO
    return PYTHON


def detect_entrypoint(files: Mapping[str, bytes], runtime: str) -> str:
    """For Python the first of handler.py, main.py, the only .py file, and in it `handle`, then `handler`.

    Raises UsageFault, naming `--entrypoint`, when the code leaves it open.
    """
    if runtime != PYTHON:
        raise UsageFault(f"name the handler of this {runtime} code: {_example(runtime)}")
    module = _python_module(_top(files))
    defined = _top_level_names(files[module])
    for handler in _HANDLERS:
        if defined is None or handler in defined:
            return f"{module.removesuffix('.py')}.{handler}"
    raise UsageFault(f"{module} defines neither `handle` nor `handler`: name the handler, {_example(PYTHON)}")


def _python_module(names: list[str]) -> str:
    for name in _PREFERRED:
        if name in names:
            return name
    modules = [name for name in names if name.endswith(".py")]
    if len(modules) == 1:
        return modules[0]
    found = f"several .py files ({', '.join(sorted(modules)[:5])})" if modules else "no .py file"
    raise UsageFault(
        f"the top folder has {found} and neither handler.py nor main.py: name the handler, {_example(PYTHON)}"
    )


def _top_level_names(source: bytes) -> set[str] | None:
    """Names that the module binds at its top level; None when it cannot be parsed (the build will say where)."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _top(files: Mapping[str, bytes]) -> list[str]:
    return [name for name in files if len(PurePosixPath(name).parts) == 1]


def _example(runtime: str) -> str:
    return f"for example --entrypoint {_EXAMPLES.get(runtime, 'module.function')}"
