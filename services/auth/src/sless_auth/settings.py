"""Settings of auth."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo
from pydantic_core import PydanticCustomError
from sless_contracts import limits
from sless_platform.settings import ServiceSettings

JWKS: Final = "jwks"
REMOTE: Final = "remote"


def _of(kind: str, *, required: bool) -> Any:
    """A setting of one kind of issuer: refused with the other kind and, if it is required, missed with this one."""

    def check(value: object, info: ValidationInfo) -> object:
        chosen = info.data.get("issuer_kind")
        if chosen is None:
            return value  # that fault is told already
        if value is not None and chosen != kind:
            raise ValueError(f"it is read only with SLESS_ISSUER_KIND={kind}; there is one issuer, of one kind")
        if value is None and chosen == kind and required:
            raise PydanticCustomError("missing", "it is needed")
        return value

    return AfterValidator(check)


def _one_source_of_keys(value: str | None, info: ValidationInfo) -> str | None:
    if info.data.get("issuer_kind") == JWKS and "jwks" in info.data:
        if value is None and info.data["jwks"] is None:
            raise PydanticCustomError("missing", "one of the two is needed")
        if value is not None and info.data["jwks"] is not None:
            raise ValueError("it must not be set together with SLESS_JWKS")
    return value


def _with_admin_claim(value: str, info: ValidationInfo) -> str:
    if "admin_claim" in info.data and bool(info.data["admin_claim"]) != bool(value):
        raise ValueError("it must be set together with SLESS_ADMIN_CLAIM")
    return value


def _is_key_set(value: str | None) -> str | None:
    if value is not None:
        try:
            document = json.loads(value)
        except ValueError:
            document = None
        if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
            raise ValueError('it must be the JSON text of an object with a list "keys"')
    return value


def _is_url(value: str | None) -> str | None:
    if value is not None:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.password:
            raise ValueError("it must be a URL that begins with http:// or https://, without a user or password in it")
    return value


class AuthSettings(ServiceSettings):
    """Who issues the users' tokens, which of them are admins, and where API keys are kept."""

    postgres_dsn: SecretStr = Field(
        validation_alias="POSTGRES_DSN", description="PostgreSQL, as auth's own role: postgresql://…"
    )
    postgres_connections: int = Field(
        4, ge=1, le=200, validation_alias="SLESS_AUTH_CONNECTIONS", description="most connections to PostgreSQL"
    )
    api_keys_per_namespace: int = Field(
        limits.API_KEYS_PER_NAMESPACE.value,
        ge=1,
        validation_alias="SLESS_MAX_API_KEYS",
        description="most API keys of a namespace",
    )
    issuer_kind: Literal["jwks", "remote"] = Field(
        JWKS,
        validation_alias="SLESS_ISSUER_KIND",
        description="jwks: tokens are verified by keys that the issuer publishes; remote: by asking its API",
    )
    issuer: Annotated[str | None, _of(JWKS, required=True)] = Field(
        None,
        validate_default=True,
        validation_alias="SLESS_ISSUER",
        description="the iss that users' tokens must have",
    )
    jwks: Annotated[str | None, _of(JWKS, required=False), AfterValidator(_is_key_set)] = Field(
        None,
        validation_alias="SLESS_JWKS",
        description="the issuer's published keys, as JSON text; or give SLESS_JWKS_URL",
    )
    jwks_url: Annotated[
        str | None, _of(JWKS, required=False), AfterValidator(_is_url), AfterValidator(_one_source_of_keys)
    ] = Field(
        None,
        validate_default=True,
        validation_alias="SLESS_JWKS_URL",
        description="where the issuer publishes its keys; or give SLESS_JWKS",
    )
    audience: Annotated[str | None, _of(JWKS, required=False)] = Field(
        None,
        validation_alias="SLESS_AUDIENCE",
        description="the aud that users' tokens must have; unset: any",
    )
    remote_url: Annotated[str | None, _of(REMOTE, required=True), AfterValidator(_is_url)] = Field(
        None,
        validate_default=True,
        validation_alias="SLESS_REMOTE_URL",
        description="what is asked with a user's token: 2xx says that it holds, 401 and 403 that it doesn't",
    )
    remote_cache_sec: float = Field(
        30,
        ge=0,
        le=300,
        validation_alias="SLESS_REMOTE_CACHE_SEC",
        description="how long an answer of SLESS_REMOTE_URL is remembered, in seconds",
    )
    remote_timeout_sec: float = Field(
        5,
        gt=0,
        le=60,
        validation_alias="SLESS_REMOTE_TIMEOUT_SEC",
        description="how long an answer of SLESS_REMOTE_URL is waited for, in seconds",
    )
    admin_claim: str = Field(
        "",
        validation_alias="SLESS_ADMIN_CLAIM",
        description="the claim that makes an admin; unset: nobody is one",
    )
    admin_value: Annotated[str, AfterValidator(_with_admin_claim)] = Field(
        "",
        validate_default=True,
        validation_alias="SLESS_ADMIN_VALUE",
        description="the value that SLESS_ADMIN_CLAIM has for an admin",
    )
