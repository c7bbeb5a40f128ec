"""The registry's settings, read once at start."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final

from pydantic import AfterValidator, Field, SecretStr
from sless_contracts import limits
from sless_platform.settings import ServiceSettings

_KEY_BYTES: Final = 32


def _is_key(value: SecretStr) -> SecretStr:
    try:
        key = base64.b64decode(value.get_secret_value(), validate=True)
    except binascii.Error:
        raise ValueError("it must be base64") from None
    if len(key) != _KEY_BYTES:
        raise ValueError(f"it must be base64 of {_KEY_BYTES} bytes, not of {len(key)}")
    return value


Key = Annotated[SecretStr, AfterValidator(_is_key)]


class RegistrySettings(ServiceSettings):
    """See ServiceSettings for what every service reads."""

    postgres_dsn: SecretStr = Field(
        validation_alias="POSTGRES_DSN", description="PostgreSQL, as the registry's own role: postgresql://…"
    )
    postgres_connections: int = Field(
        16, ge=2, le=200, validation_alias="SLESS_REGISTRY_CONNECTIONS", description="most connections to PostgreSQL"
    )
    auth_target: str = Field(
        validation_alias="SLESS_AUTH_TARGET", description="where auth listens: unix:/path or host:port"
    )
    secret_env_key: Key = Field(
        validation_alias="SLESS_SECRET_ENV_KEY",
        description="seals secret variables: base64 of 32 random bytes; who loses it loses them",
    )
    secret_env_old_keys: tuple[Key, ...] | None = Field(
        None,
        validation_alias="SLESS_SECRET_ENV_OLD_KEYS",
        description="JSON list of former values of SLESS_SECRET_ENV_KEY; they open what they sealed",
    )
    functions_per_namespace: int = Field(
        limits.FUNCTIONS_PER_NAMESPACE.value,
        ge=1,
        validation_alias="SLESS_MAX_FUNCTIONS",
        description="most functions and services of a namespace",
    )
    versions_kept: int = Field(
        limits.VERSIONS_KEPT.value,
        ge=1,
        validation_alias="SLESS_VERSIONS_KEPT",
        description="versions kept of a function",
    )
    events_kept: int = Field(
        100_000,
        ge=1_000,
        validation_alias="SLESS_EVENTS_KEPT",
        description="revisions that a watcher may be behind before it must begin anew",
    )
