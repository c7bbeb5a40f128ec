"""docs/limits.md is made from the tables in the code; every adjustable limit has a setting that reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sless_contracts import limits
from sless_contracts.wire import SERVICES

from tests.unit.repository.test_settings import settings_class
from tools.limits_doc import document

ROOT = Path(__file__).parents[3]


def test_the_document_of_limits_is_up_to_date() -> None:
    assert (ROOT / "docs/limits.md").read_text() == document(), "run `make docs`"


@pytest.mark.fault(43)
def test_every_adjustable_limit_has_its_setting_with_its_default() -> None:
    defaults = {
        str(field.validation_alias): field.default
        for service in SERVICES
        for field in settings_class(service).model_fields.values()
    }
    for name, limit in limits.table().items():
        if limit.setting is not None:
            assert defaults.get(limit.setting) == limit.value, f"{name}: {limit.setting}"
