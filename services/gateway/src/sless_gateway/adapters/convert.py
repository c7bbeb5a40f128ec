"""Between the contracts' messages and the gateway's own types. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from sless.auth.v1 import auth_pb2
from sless.registry.v1 import registry_pb2 as pb

from sless_gateway.domain import (
    Access,
    BuildError,
    Function,
    FunctionConfig,
    FunctionKey,
    KeptSecret,
    Kind,
    Namespace,
    Phase,
    Replicas,
    SecretValue,
    Version,
    VersionState,
)

KIND_TO_PROTO: Final = {Kind.FUNCTION: pb.FUNCTION_KIND_FUNCTION, Kind.SERVICE: pb.FUNCTION_KIND_SERVICE}
KINDS: Final = {value: kind for kind, value in KIND_TO_PROTO.items()}
_ACCESS_TO_PROTO: Final = {Access.PUBLIC: pb.ACCESS_PUBLIC, Access.AUTHENTICATED: pb.ACCESS_AUTHENTICATED}
ACCESSES: Final = {value: access for access, value in _ACCESS_TO_PROTO.items()}
PHASES: Final = {
    pb.PHASE_PENDING: Phase.PENDING,
    pb.PHASE_BUILDING: Phase.BUILDING,
    pb.PHASE_DEPLOYING: Phase.DEPLOYING,
    pb.PHASE_READY: Phase.READY,
    pb.PHASE_FAILED: Phase.FAILED,
}
STATES: Final = {
    pb.VERSION_STATE_PENDING: VersionState.PENDING,
    pb.VERSION_STATE_BUILDING: VersionState.BUILDING,
    pb.VERSION_STATE_BUILT: VersionState.BUILT,
    pb.VERSION_STATE_FAILED: VersionState.FAILED,
    pb.VERSION_STATE_CANCELLED: VersionState.CANCELLED,
}


def namespace(message: pb.Namespace) -> Namespace:
    """A namespace as the registry tells of it."""
    return Namespace(message.namespace, message.number, moment(message, "created_at"))


def function(message: pb.Function) -> Function:
    """A function as the registry tells of it."""
    return Function(
        key=FunctionKey(message.namespace, message.name, KINDS[message.kind]),
        config=_config(message),
        phase=PHASES[message.phase],
        message=message.message,
        generation=message.generation,
        observed_generation=message.observed_generation,
        active_version=message.active_version or None,
        image_ref=message.image_ref or None,
        last_built_at=moment(message, "last_built_at"),
        created_at=moment(message, "created_at"),
        updated_at=moment(message, "updated_at"),
        etag=message.etag,
    )


def _config(message: pb.Function) -> FunctionConfig:
    replicas = message.replicas
    return FunctionConfig(
        runtime=message.runtime,
        entrypoint=message.entrypoint,
        display_name=message.display_name,
        description=message.description,
        memory_mb=message.memory_mb,
        timeout_sec=round(message.timeout.ToTimedelta().total_seconds()) if message.HasField("timeout") else None,
        env_vars=dict(message.env_vars),
        secret_env={name: KeptSecret(value.sha256) for name, value in message.secret_env.items()},
        replicas=Replicas(replicas.min, replicas.max, replicas.concurrency),
        labels=dict(message.labels),
        access=ACCESSES[message.access],
        idempotent=message.idempotent,
    )


def function_message(key: FunctionKey, config: FunctionConfig) -> pb.Function:
    """A function as the registry takes it."""
    return pb.Function(
        namespace=key.namespace,
        name=key.name,
        kind=KIND_TO_PROTO[key.kind],
        display_name=config.display_name,
        description=config.description,
        runtime=config.runtime,
        entrypoint=config.entrypoint,
        memory_mb=config.memory_mb,
        timeout=None if config.timeout_sec is None else duration(timedelta(seconds=config.timeout_sec)),
        env_vars=config.env_vars,
        secret_env={name: _secret(value) for name, value in config.secret_env.items()},
        replicas=pb.Replicas(min=config.replicas.min, max=config.replicas.max, concurrency=config.replicas.concurrency),
        labels=config.labels,
        access=_ACCESS_TO_PROTO[config.access],
        idempotent=config.idempotent,
    )


def paths(fields: Iterable[str]) -> list[str]:
    """The fields of a FunctionConfig by their names in the message."""
    return sorted("timeout" if field == "timeout_sec" else field for field in fields)


def _secret(value: SecretValue) -> pb.SecretValue:
    if isinstance(value, KeptSecret):
        return pb.SecretValue(sha256=value.sha256)
    return pb.SecretValue(value=value)


def version(message: pb.Version) -> Version:
    """A version as the registry tells of it."""
    return Version(
        number=message.version,
        state=STATES[message.state],
        active=message.active,
        code_sha256=message.code_sha256,
        size_bytes=message.size_bytes,
        image_ref=message.image_ref or None,
        message=message.message,
        error=_build_error(message.error) if message.HasField("error") else None,
        created_by=message.created_by,
        created_at=moment(message, "created_at"),
        build_started_at=moment(message, "build_started_at"),
        build_finished_at=moment(message, "build_finished_at"),
        cached=message.cached,
        # A version's state is written anew with each change of it, under a revision of its own.
        etag=f"{message.uid[:8]}-{message.revision}{'a' if message.active else ''}",
    )


def _build_error(message: pb.BuildError) -> BuildError:
    return BuildError(
        message.reason, message.message, message.file or None, message.line or None, message.package or None
    )


def moment(message: pb.Namespace | pb.Function | pb.Version | auth_pb2.ApiKey, name: str) -> datetime | None:
    """A timestamp field; None when it isn't set."""
    if not message.HasField(name):  # type: ignore[arg-type] # the stubs know each message's names alone
        return None
    value: Timestamp = getattr(message, name)
    return value.ToDatetime(tzinfo=UTC)


def duration(value: timedelta) -> Duration:
    """A Duration message."""
    message = Duration()
    message.FromTimedelta(value)
    return message
