"""Settings of the runtime-manager."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from sless_contracts import limits
from sless_platform.settings import ServiceSettings


class RuntimeManagerSettings(ServiceSettings):
    """Whom the runtime-manager asks, where instances and their code are, and the bounds it keeps."""

    registry_target: str = Field(validation_alias="SLESS_REGISTRY_TARGET", description="where registry listens")
    launcher_socket: Path = Field(validation_alias="SLESS_LAUNCHER_SOCKET", description="where the launcher listens")
    run_dir: Path = Field(validation_alias="SLESS_RUN_DIR", description="the launcher's folder of instances")
    layers_dir: Path = Field(
        validation_alias="SLESS_LAYERS_DIR", description="the folder of unpacked layers, by digest"
    )
    python311: Path | None = Field(
        None, validation_alias="SLESS_PYTHON311", description="the Python 3.11 that runs functions; unset: none here"
    )
    logs_dir: Path = Field(validation_alias="SLESS_LOGS_DIR", description="the folder of functions' logs")
    idle_sec: float = Field(
        limits.IDLE_SEC.value,
        gt=0,
        le=86_400,
        validation_alias="SLESS_IDLE_SEC",
        description="how long a function without calls keeps instances beyond its least, in seconds",
    )
    start_slots: int = Field(
        4,
        ge=1,
        le=1_000,
        validation_alias="SLESS_START_SLOTS",
        description="instances that may be starting at once",
    )
