"""Settings."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, Literal

import pytest
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from sless_platform.settings import ServiceSettings, Settings, SettingsError, load

from tests.support.identity import new_identity_keys


class MailSettings(Settings):
    """As a service writes its own."""

    dsn: SecretStr = Field(validation_alias="MAIL_DSN", description="where letters are kept")
    size_mb: int = Field(16, validation_alias="MAIL_SIZE_MB", description="size of a letter, MiB", ge=1, le=64)
    mode: Literal["fast", "safe"] = Field("safe", validation_alias="MAIL_MODE", description="fast or safe")
    routes: Mapping[str, str] = Field({}, validation_alias="MAIL_ROUTES", description="JSON object: domain → host")
    plain_token: str = Field("", validation_alias="MAIL_TOKEN", description="an untyped secret")

    @field_validator("dsn")
    @classmethod
    def _check_dsn(cls, value: SecretStr) -> SecretStr:
        if "://" not in value.get_secret_value():
            raise ValueError(f"{value.get_secret_value()} is no address")
        return value

    @field_validator("plain_token")
    @classmethod
    def _check_token(cls, value: str) -> str:
        if " " in value:
            raise ValueError(f"{value} has a blank")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> MailSettings:
        if self.mode == "fast" and self.size_mb > 32:
            raise ValueError("MAIL_MODE=fast takes letters of at most 32 MiB: lower MAIL_SIZE_MB")
        return self


GOOD = {"MAIL_DSN": "pg://hunter2@host/db"}


def test_values_come_from_the_variables_and_their_defaults() -> None:
    settings = load(MailSettings, GOOD | {"MAIL_ROUTES": '{"a": "b"}', "OTHER": "x", "mail_size_mb": "3"})
    assert settings.dsn.get_secret_value() == "pg://hunter2@host/db"
    assert (settings.size_mb, settings.mode, settings.routes) == (16, "safe", {"a": "b"})


def test_the_processs_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_DSN", "pg://x")
    monkeypatch.setenv("MAIL_SIZE_MB", "2")
    assert load(MailSettings).size_mb == 2


def test_a_given_environment_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_SIZE_MB", "2")
    assert load(MailSettings, GOOD).size_mb == 16
    assert MailSettings.build(**GOOD).size_mb == 16


def test_an_empty_variable_counts_as_absent() -> None:
    assert load(MailSettings, GOOD | {"MAIL_SIZE_MB": ""}).size_mb == 16
    with pytest.raises(SettingsError, match="MAIL_DSN is not set"):
        load(MailSettings, {"MAIL_DSN": ""})


def test_all_faults_are_reported_together_one_line_each() -> None:
    with pytest.raises(SettingsError) as raised:
        load(MailSettings, {"MAIL_SIZE_MB": "many", "MAIL_MODE": "odd", "MAIL_ROUTES": "{not json"})
    faults = raised.value.faults
    assert len(faults) == 4
    assert str(raised.value) == "\n".join(faults)
    assert all("\n" not in fault for fault in faults)
    assert faults[0] == "MAIL_DSN is not set (where letters are kept)"
    assert faults[1].startswith("MAIL_SIZE_MB='many' is not valid: input should be a valid integer")
    assert faults[1].endswith("(size of a letter, MiB)")
    assert faults[2].startswith("MAIL_MODE='odd' is not valid: input should be 'fast' or 'safe'")
    assert faults[3].startswith("MAIL_ROUTES='{not json' is not valid")


@pytest.mark.parametrize("value", ["0", "65"])
def test_a_value_out_of_range_is_named(value: str) -> None:
    with pytest.raises(SettingsError, match=f"MAIL_SIZE_MB='{value}' is not valid: input should be"):
        load(MailSettings, GOOD | {"MAIL_SIZE_MB": value})


def test_faults_of_values_together_are_sentences() -> None:
    with pytest.raises(SettingsError) as raised:
        load(MailSettings, GOOD | {"MAIL_MODE": "fast", "MAIL_SIZE_MB": "64"})
    assert str(raised.value) == "MAIL_MODE=fast takes letters of at most 32 MiB: lower MAIL_SIZE_MB"


@pytest.mark.fault(39)
@pytest.mark.parametrize(
    "environment",
    [{"MAIL_DSN": "hunter2"}, GOOD | {"MAIL_TOKEN": "hunter2 hunter2"}, GOOD | {"MAIL_SIZE_MB": "many"}],
    ids=["typed", "by its name", "beside another fault"],
)
def test_no_fault_shows_a_secret_anywhere(environment: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as raised:
        load(MailSettings, environment)
    text = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    assert "hunter2" not in text
    assert "MAIL_" in text


def test_settings_do_not_show_their_secrets() -> None:
    assert "hunter2" not in repr(load(MailSettings, GOOD)) + str(load(MailSettings, GOOD))


def test_settings_are_frozen() -> None:
    settings = load(MailSettings, GOOD)
    with pytest.raises(ValidationError):
        settings.size_mb = 1


def test_settings_can_be_built_in_memory_from_texts_and_objects() -> None:
    settings = MailSettings.build(
        MAIL_DSN=SecretStr("pg://x"), MAIL_SIZE_MB=3, MAIL_ROUTES={"a": "b"}, MAIL_MODE="fast", NOBODYS="x"
    )
    assert (settings.size_mb, settings.mode, settings.routes) == (3, "fast", {"a": "b"})
    assert MailSettings.build(MAIL_DSN="pg://x", MAIL_ROUTES='{"c": "d"}').routes == {"c": "d"}
    with pytest.raises(SettingsError, match="MAIL_DSN is not set"):
        MailSettings.build(MAIL_SIZE_MB=3)


KEYS = new_identity_keys("mail")


def service_environment(**changes: str) -> dict[str, str]:
    return {
        "SLESS_LISTEN": "unix:/run/mail.sock",
        "SLESS_IDENTITY_KEY": KEYS.private["mail"],
        "SLESS_IDENTITY_PUBLIC_KEYS": '{"mail": "PEM"}',
    } | changes


def test_what_every_service_reads_has_safe_defaults() -> None:
    settings = load(ServiceSettings, service_environment())
    assert settings.listen == "unix:/run/mail.sock"
    assert settings.identity_public_keys == {"mail": "PEM"}
    assert settings.identity_key.get_secret_value() == KEYS.private["mail"]
    others: dict[str, Any] = {
        "log_level": "info",
        "log_json": None,
        "otlp_endpoint": None,
        "ready_fd": None,
        "faults": "",
        "reflection": False,
    }
    assert {name: getattr(settings, name) for name in others} == others


@pytest.mark.fault(39)
def test_no_secret_has_a_default() -> None:
    with pytest.raises(SettingsError) as raised:
        load(ServiceSettings, {})
    assert [fault.split()[0] for fault in raised.value.faults] == [
        "SLESS_LISTEN",
        "SLESS_IDENTITY_KEY",
        "SLESS_IDENTITY_PUBLIC_KEYS",
    ]


def test_every_field_has_a_variable_and_says_what_it_is() -> None:
    for name, field in ServiceSettings.model_fields.items():
        assert isinstance(field.validation_alias, str), name
        assert field.description, name
