"""Settings: read once from the environment, frozen, every fault reported together and no secret ever shown.

A service writes a subclass of `ServiceSettings`; each field's `validation_alias` is the variable's name and its `description` says what
it is, with its unit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

T = TypeVar("T", bound="Settings")

_SHOWN_LENGTH = 80


class SettingsError(Exception):
    """The settings cannot be used. `faults`: one sentence a fault, each naming its variable; str() joins them by lines."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class Settings(BaseSettings):
    """Base of all settings. Unknown variables are ignored, an empty variable counts as absent."""

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", case_sensitive=True, env_ignore_empty=True, hide_input_in_errors=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` and `build` hand in: nothing is read behind their back."""
        return (init_settings,)

    @classmethod
    def build(cls, **values: object) -> Self:
        """Settings from values by variable name (`build(SLESS_LISTEN="unix:/run/x.sock")`), as texts or as ready objects.

        For a parent that hands settings to a child in memory, so that secrets stand in no environment. Raises SettingsError.
        """
        texts = {name: value for name, value in values.items() if isinstance(value, str)}
        objects = {name: value for name, value in values.items() if not isinstance(value, str)}
        return _validated(cls, {**_decoded(cls, texts), **objects})


def load(cls: type[T], environ: Mapping[str, str] | None = None) -> T:
    """The settings of this class from the environment (the process's own by default). Raises SettingsError."""
    return _validated(cls, _decoded(cls, os.environ if environ is None else environ))


def _decoded(cls: type[Settings], environ: Mapping[str, str]) -> dict[str, Any]:
    """The variables that the class has fields for; texts of maps and lists as what their JSON says."""
    source = _MappingSource(cls, environ)
    return source()


class _MappingSource(EnvSettingsSource):
    """pydantic-settings' reading of the environment, from a mapping, that leaves bad JSON to be reported with the other faults."""

    def __init__(self, settings_cls: type[BaseSettings], environ: Mapping[str, str]) -> None:
        super().__init__(settings_cls)
        self.env_vars = {name: value for name, value in environ.items() if value != ""}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


def _validated(cls: type[T], values: Mapping[str, Any]) -> T:
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        faults = [_sentence(cls, detail) for detail in error.errors(include_url=False, include_context=False)]
    # Outside the handler: pydantic's error holds the values and must not be chained into a traceback.
    raise SettingsError(faults)


def _sentence(cls: type[Settings], detail: ErrorDetails) -> str:
    name = str(detail["loc"][0]) if detail["loc"] else ""
    # What a default is at fault of is told under the field's own name.
    field = cls.model_fields.get(name) or next(
        (field for field in cls.model_fields.values() if field.validation_alias == name), None
    )
    if field is None:
        return detail["msg"].removeprefix("Value error, ")
    name = str(field.validation_alias)
    meaning = f" ({field.description})" if field.description else ""
    if detail["type"] == "missing":
        return f"{name} is not set{meaning}"
    if _is_secret(name, field):
        return f"{name} is not valid{meaning}"
    return f"{name}={_shown(detail['input'])} is not valid: {_lower_first(detail['msg'])}{meaning}"


def _is_secret(name: str, field: FieldInfo) -> bool:
    """A secret by its type, or by a name that says so where an author forgot the type."""
    if any(secret in str(field.annotation) for secret in (SecretStr.__name__, SecretBytes.__name__)):
        return True
    return any(word in name for word in ("DSN", "PASS", "SECRET", "TOKEN", "PRIVATE", "KEY"))


def _shown(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "…")


def _lower_first(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


class ServiceSettings(Settings):
    """What every service reads."""

    listen: str = Field(
        validation_alias="SLESS_LISTEN", description="where the gRPC server listens: unix:/path or host:port"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", validation_alias="SLESS_LOG_LEVEL", description="debug, info, warning or error"
    )
    log_json: bool | None = Field(
        None,
        validation_alias="SLESS_LOG_JSON",
        description="whether log lines are JSON; unset: JSON unless stderr is a terminal",
    )
    otlp_endpoint: str | None = Field(
        None,
        validation_alias="SLESS_OTLP_ENDPOINT",
        description="OTLP/gRPC address that takes spans; unset: none are made",
    )
    trace_ratio: float = Field(
        1.0,
        ge=0,
        le=1,
        validation_alias="SLESS_TRACE_RATIO",
        description="share of the traces that begin here whose spans are wanted, from 0 to 1; of others their caller decides",
    )
    identity_key: SecretStr = Field(
        validation_alias="SLESS_IDENTITY_KEY", description="this service's own Ed25519 private key, PKCS#8 PEM"
    )
    identity_public_keys: Mapping[str, str] = Field(
        validation_alias="SLESS_IDENTITY_PUBLIC_KEYS",
        description="JSON object: issuer → Ed25519 public key, PEM, of every service that may call",
    )
    ready_fd: int | None = Field(
        None,
        validation_alias="SLESS_READY_FD",
        description="file descriptor that gets READY when the service can be called",
    )
    faults: str = Field(
        "", validation_alias="SLESS_FAULTS", description="fault points to arm, for tests: name=kill|raise[@nth], …"
    )
    reflection: bool = Field(
        False, validation_alias="SLESS_GRPC_REFLECTION", description="whether the gRPC server answers reflection"
    )
