"""Every setting is read by something (fault 43), and none has a secret for a default (fault 39)."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from pydantic import SecretBytes, SecretStr
from pydantic_core import PydanticUndefined
from sless_contracts.wire import SERVICES
from sless_platform.settings import ServiceSettings, Settings

ROOT = Path(__file__).parents[3]


def settings_class(service: str) -> type[Settings]:
    """The one settings class of a service."""
    package = "sless_" + service.replace("-", "_")
    module = import_module(f"{package}.settings")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Settings) and value.__module__ == module.__name__
    ]
    assert len(found) == 1, f"{package}.settings must define one settings class, not {len(found)}"
    return found[0]


FIELDS = [(service, name) for service in SERVICES for name in settings_class(service).model_fields]


def reading_code(service: str) -> str:
    """Where the settings of a service may be read."""
    package = "sless_" + service.replace("-", "_")
    sources = [
        path for path in (ROOT / "services" / service / "src" / package).rglob("*.py") if path.name != "settings.py"
    ]
    return "\n".join(path.read_text() for path in [*sources, ROOT / "libs/contracts/src/sless_contracts/rpc.py"])


@pytest.mark.fault(43)
@pytest.mark.parametrize(("service", "field"), FIELDS, ids=str)
def test_every_setting_is_read(service: str, field: str) -> None:
    derived = inspect.getsource(settings_class(service))

    assert re.search(rf"settings\.{field}\b", reading_code(service)) or re.search(rf"self\.{field}\b", derived)


@pytest.mark.fault(39)
@pytest.mark.parametrize("service", SERVICES)
def test_no_setting_has_a_secret_for_a_default(service: str) -> None:
    for name, field in settings_class(service).model_fields.items():
        if any(secret.__name__ in str(field.annotation) for secret in (SecretStr, SecretBytes)):
            assert field.default in {None, PydanticUndefined}, name


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_has_a_name_and_a_meaning(service: str) -> None:
    for name, field in settings_class(service).model_fields.items():
        assert isinstance(field.validation_alias, str), name
        assert field.description, name


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_that_owns_tables_has_a_database(service: str) -> None:
    package = "sless_" + service.replace("-", "_")
    has_tables = bool(list((ROOT / "services" / service / "src" / package).glob("migrations/*.sql")))
    aliases = {str(field.validation_alias) for field in settings_class(service).model_fields.values()}

    assert has_tables == ("POSTGRES_DSN" in aliases)
    assert issubclass(settings_class(service), ServiceSettings)
