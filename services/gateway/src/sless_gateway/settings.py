"""Settings of the gateway."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from sless_contracts import limits
from sless_platform.settings import ServiceSettings


class GatewaySettings(ServiceSettings):
    """Where the gateway listens, whom it asks, and the bounds it keeps.

    It has no gRPC server: what listens on SLESS_LISTEN is HTTP too, for whoever stands before it on this machine.
    """

    auth_target: str = Field(validation_alias="SLESS_AUTH_TARGET", description="where auth listens")
    registry_target: str = Field(validation_alias="SLESS_REGISTRY_TARGET", description="where registry listens")
    builder_target: str = Field(validation_alias="SLESS_BUILDER_TARGET", description="where builder listens")
    invoker_target: str = Field(validation_alias="SLESS_INVOKER_TARGET", description="where invoker listens")
    public_fd: int | None = Field(
        None,
        ge=3,
        validation_alias="SLESS_PUBLIC_FD",
        description="an inherited socket that listens for the public; unset: SLESS_API_HOST and API_PORT are bound",
    )
    api_host: str = Field("127.0.0.1", validation_alias="SLESS_API_HOST", description="the address for the public")
    api_port: int = Field(
        9090, ge=0, le=65535, validation_alias="API_PORT", description="the port for the public; 0: a free one"
    )
    external_url: str | None = Field(
        None,
        pattern=r"^https?://[^/\s?#]+(/[^\s?#]*)?$",
        validation_alias="EXTERNAL_URL",
        description="how clients reach the gateway, such as https://api.example.org; unset: the public listener",
    )
    archive_bytes: int = Field(
        limits.ARCHIVE_BYTES.value,
        ge=1,
        validation_alias="SLESS_MAX_ARCHIVE_BYTES",
        description="the most bytes of an uploaded zip",
    )
    request_bytes: int = Field(
        limits.REQUEST_BODY_BYTES.value,
        ge=1,
        validation_alias="SLESS_MAX_REQUEST_BYTES",
        description="the most bytes of a call's body",
    )
    gateway_calls: int = Field(
        limits.GATEWAY_CALLS.value,
        ge=1,
        validation_alias="SLESS_MAX_GATEWAY_CALLS",
        description="calls that may be in flight at once",
    )

    @model_validator(mode="after")
    def _listens_on_a_unix_socket(self) -> Self:
        if not self.listen.startswith("unix:/"):
            raise ValueError(f"SLESS_LISTEN must be unix:/path, not {self.listen}")
        return self
