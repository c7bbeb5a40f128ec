"""Every fault that is due has a test that is marked with it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
DUE = (*range(1, 15), *range(16, 22), 27, 29, 31, 32, 34, 38, 39, 40, 42, 43, 44)


def marked_faults(source: str) -> set[int]:
    """The numbers in `@pytest.mark.fault(n)` of one file."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return {
        argument.value
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "fault"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, int)
    }


def test_every_fault_that_is_due_has_a_marked_test() -> None:
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("runtimes/contract/**/test_*.py")]
    shown = set[int]().union(*(marked_faults(path.read_text()) for path in files))

    assert sorted(set(DUE) - shown) == []
