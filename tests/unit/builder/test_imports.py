"""Imports that nothing satisfies."""

from __future__ import annotations

import pytest
from sless_builder.domain.imports import Import, Imports, Wanted, imports_of

PATHS = ["handler.py", "other.py", "pkg/__init__.py", "pkg/deep.py", "tests/test_x.py"]


def plain(line: int, module: str, *names: str, level: int = 0, guarded: bool = False) -> Import:
    return Import(line, level, module, names, guarded)


def unsatisfied(found: dict[str, list[Import]], *installed: str) -> list[tuple[str, int, str]]:
    imports = Imports.of_facts(imports_of(found, PATHS).facts())
    return [(item.file, item.line, item.module) for item in imports.unsatisfied("handler.py", installed)]


def test_what_the_library_the_code_or_the_dependencies_have_is_satisfied() -> None:
    items = [plain(1, "json"), plain(2, "distutils.core"), plain(3, "pkg.deep"), plain(4, "six.moves")]
    assert unsatisfied({"handler.py": items}, "six") == []
    assert unsatisfied({"handler.py": items}) == [("handler.py", 4, "six")]


def test_an_import_whose_absence_is_expected_is_not_told() -> None:
    assert unsatisfied({"handler.py": [plain(1, "fast", guarded=True)]}) == []


@pytest.mark.parametrize(
    "leads",
    [plain(1, "pkg.deep"), plain(1, "pkg", "deep"), plain(1, "pkg", "deep", level=1), plain(1, "", "pkg", level=1)],
)
def test_files_that_the_entrypoint_leads_to_count_and_others_do_not(leads: Import) -> None:
    found = {
        "handler.py": [leads],
        "pkg/__init__.py": [plain(1, "", "deep", level=1)],
        "pkg/deep.py": [plain(7, "absent")],
        "tests/test_x.py": [plain(1, "pytest")],
    }
    assert unsatisfied(found) == [("pkg/deep.py", 7, "absent")]


def test_a_module_is_told_once_a_file_by_its_first_line() -> None:
    assert unsatisfied({"handler.py": [plain(9, "absent"), plain(2, "absent.x")]}) == [("handler.py", 2, "absent")]


def test_the_warning_is_a_sentence() -> None:
    assert Wanted("handler.py", 3, "foo").warning() == (
        "warning: handler.py line 3 imports 'foo', which neither the standard library nor the dependencies have"
    )
