"""Settings of auth."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from sless_platform.settings import ServiceSettings


class AuthSettings(ServiceSettings):
    """Who issues the users' tokens, and which of them are admins."""

    issuer: str = Field(validation_alias="SLESS_ISSUER", description="the iss that users' tokens must have")
    jwks: str | None = Field(
        None,
        validation_alias="SLESS_JWKS",
        description="the issuer's published keys, as JSON text; or give SLESS_JWKS_URL",
    )
    jwks_url: str | None = Field(
        None,
        validation_alias="SLESS_JWKS_URL",
        description="where the issuer publishes its keys; or give SLESS_JWKS",
    )
    audience: str | None = Field(
        None,
        validation_alias="SLESS_AUDIENCE",
        description="the aud that users' tokens must have; unset: any",
    )
    admin_claim: str = Field(
        "",
        validation_alias="SLESS_ADMIN_CLAIM",
        description="the claim that makes an admin; unset: nobody is one",
    )
    admin_value: str = Field(
        "",
        validation_alias="SLESS_ADMIN_VALUE",
        description="the value that SLESS_ADMIN_CLAIM has for an admin",
    )

    @model_validator(mode="after")
    def _one_source_of_keys(self) -> Self:
        if (self.jwks is None) == (self.jwks_url is None):
            raise ValueError("exactly one of SLESS_JWKS and SLESS_JWKS_URL must be set")
        if bool(self.admin_claim) != bool(self.admin_value):
            raise ValueError("SLESS_ADMIN_CLAIM and SLESS_ADMIN_VALUE must be set together")
        return self
