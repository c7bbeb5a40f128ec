"""Settings of the invoker."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from sless_contracts import limits
from sless_platform.settings import ServiceSettings


class InvokerSettings(ServiceSettings):
    """Whom the invoker asks, and the bounds it keeps."""

    auth_target: str = Field(validation_alias="SLESS_AUTH_TARGET", description="where auth listens")
    registry_target: str = Field(validation_alias="SLESS_REGISTRY_TARGET", description="where registry listens")
    runtime_manager_target: str = Field(
        validation_alias="SLESS_RUNTIME_MANAGER_TARGET", description="where runtime-manager listens"
    )
    logs_dir: Path = Field(validation_alias="SLESS_LOGS_DIR", description="the folder of functions' logs")
    instance_wait_sec: int = Field(
        limits.INSTANCE_WAIT_SEC.value,
        ge=1,
        le=3600,
        validation_alias="SLESS_INSTANCE_WAIT_SEC",
        description="how long a call waits for an instance, in seconds",
    )
    namespace_calls: int = Field(
        limits.NAMESPACE_CALLS.value,
        ge=1,
        validation_alias="SLESS_MAX_NAMESPACE_CALLS",
        description="calls of a namespace that may run or wait at once",
    )
    queued_calls_per_replica: int = Field(
        limits.QUEUED_CALLS_PER_REPLICA.value,
        ge=1,
        validation_alias="SLESS_MAX_QUEUED_CALLS",
        description="calls of a function that may wait for an instance, for each replica it may have",
    )
