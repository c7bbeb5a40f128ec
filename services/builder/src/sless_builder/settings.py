"""Settings of the builder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, SecretStr
from sless_contracts import limits
from sless_platform.settings import ServiceSettings


class BuilderSettings(ServiceSettings):
    """Where code is kept, with what it is built, and how large it may be."""

    postgres_dsn: SecretStr = Field(validation_alias="POSTGRES_DSN", description="the builder's own role and database")
    auth_target: str = Field(
        validation_alias="SLESS_AUTH_TARGET", description="where auth listens: unix:/path or host:port"
    )
    registry_target: str = Field(
        validation_alias="SLESS_REGISTRY_TARGET", description="where the registry listens: unix:/path or host:port"
    )
    objects_dir: Path = Field(validation_alias="SLESS_OBJECTS_DIR", description="the folder of stored objects")
    layers_dir: Path = Field(
        validation_alias="SLESS_LAYERS_DIR", description="the folder of unpacked layers, by digest"
    )
    spool_dir: Path | None = Field(
        None,
        validation_alias="SLESS_SPOOL_DIR",
        description="the folder of uploads and builds under way; unset: `spool` beside SLESS_OBJECTS_DIR",
    )
    runtimes_dir: Path = Field(
        validation_alias="SLESS_RUNTIMES_DIR", description="the folder of runtimes, by their names"
    )
    python311: Path | None = Field(
        None,
        validation_alias="SLESS_PYTHON311",
        description="the Python 3.11 that functions run on; unset: none here, builds for it fail",
    )
    uid_base: int = Field(
        200_000,
        validation_alias="SLESS_UID_BASE",
        ge=1_000,
        description="the first user id of functions; the last but one before it compiles code, when run as root",
    )
    build_uid: int | None = Field(
        None,
        validation_alias="SLESS_BUILD_UID",
        ge=1,
        description="the user id that compiles code when run as root; unset: SLESS_UID_BASE - 2",
    )
    build_sandbox_file: Path | None = Field(
        None,
        validation_alias="SLESS_BUILD_SANDBOX_FILE",
        description="the file that tells what untrusted steps of builds may do here; unset: none is written",
    )
    builds_at_once: int = Field(
        2, validation_alias="SLESS_BUILDS_AT_ONCE", ge=1, le=64, description="builds that run at the same time here"
    )
    max_archive_bytes: int = Field(
        limits.ARCHIVE_BYTES.value,
        validation_alias="SLESS_MAX_ARCHIVE_BYTES",
        ge=1_024,
        description="the most bytes of an uploaded zip",
    )
    max_unpacked_bytes: int = Field(
        limits.UNPACKED_BYTES.value,
        validation_alias="SLESS_MAX_UNPACKED_BYTES",
        ge=1_024,
        description="the most bytes of the files in a zip, unpacked",
    )
    max_build_sec: int = Field(
        limits.BUILD_SEC.value,
        validation_alias="SLESS_MAX_BUILD_SEC",
        ge=1,
        description="how long a build may take, in seconds",
    )

    layers_kept_sec: int = Field(
        limits.LAYERS_KEPT_SEC.value,
        validation_alias="SLESS_LAYERS_KEPT_SEC",
        ge=0,
        description="how long layers of a deleted function are kept, in seconds, in case its code comes back",
    )
    max_dependencies_bytes: int = Field(
        limits.DEPENDENCIES_BYTES.value,
        validation_alias="SLESS_MAX_DEPENDENCIES_BYTES",
        ge=1_024,
        description="the most bytes of a version's dependencies, unpacked",
    )
    max_build_memory_bytes: int = Field(
        limits.BUILD_MEMORY_BYTES.value,
        validation_alias="SLESS_MAX_BUILD_MEMORY_BYTES",
        ge=64 << 20,
        description="the most memory of one step of a build, all its processes together",
    )
    max_build_disk_bytes: int = Field(
        limits.BUILD_DISK_BYTES.value,
        validation_alias="SLESS_MAX_BUILD_DISK_BYTES",
        ge=1 << 20,
        description="the most bytes that one step of a build may write",
    )
    package_cache_dir: Path | None = Field(
        None,
        validation_alias="SLESS_PACKAGE_CACHE_DIR",
        description="the folder of downloaded packages; unset: `packages` beside SLESS_OBJECTS_DIR",
    )
    package_cache_bytes: int = Field(
        2 << 30,
        validation_alias="SLESS_PACKAGE_CACHE_BYTES",
        ge=0,
        description="how large the folder of downloaded packages may be before it is begun anew",
    )
    install_env: Mapping[str, SecretStr] = Field(
        default_factory=dict,
        validation_alias="SLESS_INSTALL_ENV",
        description="variables of package installers, as a JSON object: package index, proxies, certificates; unset: those of "
        "the environment of `sless up` that docs/builds.md lists",
    )
    allow_index_options: bool = Field(
        default=False,
        validation_alias="SLESS_ALLOW_INDEX_OPTIONS",
        description="whether a requirements.txt may name another package index",
    )
    allow_source_builds: bool | None = Field(
        None,
        validation_alias="SLESS_ALLOW_SOURCE_BUILDS",
        description="whether packages without a wheel are built; unset: where that code can read neither the platform's files nor "
        "a password of the index",
    )

    @property
    def package_cache(self) -> Path:
        """The folder of downloaded packages."""
        return self.package_cache_dir or self.objects_dir.parent / "packages"

    build_retry_sec: int = Field(
        limits.BUILD_RETRY_SEC.value,
        validation_alias="SLESS_BUILD_RETRY_SEC",
        ge=0,
        description="how long a build is tried again while the platform fails, in seconds",
    )

    @property
    def spool(self) -> Path:
        """The folder of uploads and builds under way."""
        return self.spool_dir or self.objects_dir.parent / "spool"

    def compiler_uid(self, own_uid: int) -> int | None:
        """The user that compiles code; None for this process's own, which only root can leave."""
        if own_uid != 0:
            return None
        return self.build_uid or self.uid_base - 2
