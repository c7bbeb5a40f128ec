"""What resources look like to clients: names, order and forms of fields as the REST API has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from sless_gateway.application.uploads import Progress, Uploaded
from sless_gateway.domain import BuildError, Caller, Function, KeptSecret, Kind, Namespace, Replicas, Version


class ReplicasShape(msgspec.Struct):
    """Bounds on instances."""

    min: int
    max: int
    concurrency: int


class SecretShape(msgspec.Struct):
    """What is known of a secret variable."""

    sha256: str


class FunctionShape(msgspec.Struct, kw_only=True):
    """A function or service."""

    name: str
    namespace: str
    kind: str
    display_name: str
    description: str
    runtime: str
    entrypoint: str
    memory_mb: int
    timeout_sec: int | None
    env_vars: dict[str, str]
    replicas: ReplicasShape
    labels: dict[str, str]
    access: str
    idempotent: bool
    secret_env: dict[str, SecretShape]
    status: str
    phase: str
    message: str
    generation: int
    observed_generation: int
    active_version: int | None
    image_ref: str | None
    url: str | None
    invoke_url: str
    last_built_at: str | None
    created_at: str | None
    updated_at: str | None


class BuildErrorShape(msgspec.Struct):
    """Why a build failed."""

    reason: str
    message: str
    file: str | None
    line: int | None
    package: str | None


class BuildShape(msgspec.Struct):
    """How a build went."""

    started_at: str | None
    finished_at: str | None
    cached: bool


class VersionShape(msgspec.Struct, kw_only=True):
    """A version."""

    version: int
    state: str
    active: bool
    code_sha256: str
    size_bytes: int
    image_ref: str | None
    message: str
    error: BuildErrorShape | None
    created_by: str
    created_at: str | None
    build: BuildShape


class UploadShape(msgspec.Struct):
    """What an upload is answered with."""

    message: str
    phase: str
    version: int
    code_sha256: str


class NamespaceShape(msgspec.Struct):
    """A namespace."""

    namespace: str
    created_at: str | None


class WhoAmIShape(msgspec.Struct):
    """Who is calling."""

    sub: str
    namespace: str
    roles: list[str]


_MESSAGES: Final = {
    Progress.READY: "ready",
    Progress.UNDER_WAY: "build queued",
}


@dataclass(frozen=True, slots=True)
class Shapes:
    """Makes shapes. `external_url`: where clients reach the gateway, without a slash at its end."""

    external_url: str

    def function(self, function: Function) -> FunctionShape:
        """A function or service."""
        config, key = function.config, function.key
        url = f"{self.external_url}/fn/{key.namespace}/{key.name}" if key.kind is Kind.SERVICE else None
        return FunctionShape(
            name=key.name,
            namespace=key.namespace,
            kind=key.kind.value,
            display_name=config.display_name,
            description=config.description,
            runtime=config.runtime,
            entrypoint=config.entrypoint,
            memory_mb=config.memory_mb,
            timeout_sec=config.timeout_sec,
            env_vars=dict(sorted(config.env_vars.items())),
            replicas=_replicas(config.replicas),
            labels=dict(sorted(config.labels.items())),
            access=config.access.value,
            idempotent=config.idempotent,
            secret_env={
                name: SecretShape(value.sha256)
                for name, value in sorted(config.secret_env.items())
                if isinstance(value, KeptSecret)
            },
            status=function.phase.value,
            phase=function.phase.value,
            message=function.message,
            generation=function.generation,
            observed_generation=function.observed_generation,
            active_version=function.active_version,
            image_ref=function.image_ref,
            url=url,
            invoke_url=url or f"{self._path(function)}/invoke",
            last_built_at=moment(function.last_built_at),
            created_at=moment(function.created_at),
            updated_at=moment(function.updated_at),
        )

    def functions(self, functions: Sequence[Function]) -> list[FunctionShape]:
        """A list."""
        return [self.function(function) for function in functions]

    def _path(self, function: Function) -> str:
        key = function.key
        return f"{self.external_url}/v1/namespaces/{key.namespace}/{key.kind.collection}/{key.name}"


def version(version: Version) -> VersionShape:
    """A version."""
    return VersionShape(
        version=version.number,
        state=version.state.value,
        active=version.active,
        code_sha256=version.code_sha256,
        size_bytes=version.size_bytes,
        image_ref=version.image_ref,
        message=version.message,
        error=None if version.error is None else _build_error(version.error),
        created_by=version.created_by,
        created_at=moment(version.created_at),
        build=BuildShape(moment(version.build_started_at), moment(version.build_finished_at), version.cached),
    )


def upload(uploaded: Uploaded) -> UploadShape:
    """What became of an upload."""
    if uploaded.progress is Progress.QUEUED:
        message = "build queued" if uploaded.upload.created else "unchanged: this version has the same content already"
    else:
        message = _MESSAGES[uploaded.progress]
    version = uploaded.upload.version
    return UploadShape(message, uploaded.function.phase.value, version.number, version.code_sha256)


def namespace(namespace: Namespace) -> NamespaceShape:
    """A namespace."""
    return NamespaceShape(namespace.name, moment(namespace.created_at))


def whoami(caller: Caller) -> WhoAmIShape:
    """Who is calling."""
    principal = caller.principal
    return WhoAmIShape(principal.subject, principal.namespace, sorted(principal.roles))


def moment(value: datetime | None) -> str | None:
    """A time as RFC 3339 in UTC with milliseconds; None stays None."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _replicas(replicas: Replicas) -> ReplicasShape:
    return ReplicasShape(replicas.min, replicas.max, replicas.concurrency)


def _build_error(error: BuildError) -> BuildErrorShape:
    return BuildErrorShape(error.reason, error.message, error.file, error.line, error.package)
