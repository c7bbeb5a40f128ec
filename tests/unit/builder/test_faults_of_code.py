"""Which failed builds the registry does not repeat."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from sless_contracts import catalog


@pytest.mark.parametrize("reason", sorted(catalog.FAULTS_OF_CODE))
def test_every_fault_of_code_is_one_that_a_build_tells(reason: str) -> None:
    sources = Path(str(files("sless_builder"))).rglob("*.py")

    assert any(f'"{reason}"' in path.read_text() for path in sources)
