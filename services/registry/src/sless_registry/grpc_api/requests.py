"""Messages as what the application takes. What cannot be meant is refused here, with InvalidField."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from sless.registry.v1 import registry_pb2 as pb

from sless_registry.application.configuring import Change
from sless_registry.application.mutation import Request
from sless_registry.application.watching import Start
from sless_registry.domain.drafts import Draft, SecretDraft
from sless_registry.domain.lifecycle import Upload
from sless_registry.domain.reports import BuildReport, StatusReport
from sless_registry.domain.resources import Access, BuildError, Kind, Phase, Replicas, VersionState
from sless_registry.errors import InvalidField
from sless_registry.grpc_api.convert import ACCESSES, KINDS, PHASES, STATES
from sless_registry.ports import ResourceType

_KINDS: Final[Mapping[int, Kind]] = {number: kind for kind, number in KINDS.items()}
_ACCESSES: Final[Mapping[int, Access]] = {number: access for access, number in ACCESSES.items()}
_PHASES: Final[Mapping[int, Phase]] = {number: phase for phase, number in PHASES.items()}
_STATES: Final[Mapping[int, VersionState]] = {number: state for state, number in STATES.items()}
_TYPES: Final[Mapping[int, frozenset[ResourceType]]] = {
    pb.RESOURCE_TYPE_FUNCTION: frozenset({ResourceType.FUNCTION, ResourceType.PURGE}),
    pb.RESOURCE_TYPE_VERSION: frozenset({ResourceType.VERSION, ResourceType.VERSION_PURGE}),
}

T = TypeVar("T")


def repeatable(request_id: str, message: Message) -> Request:
    """What makes the message's mutation repeatable."""
    return Request(request_id, message.SerializeToString(deterministic=True) if request_id else b"")


def kind_asked(number: int) -> Kind | None:
    """The kind that a request asks for; None for either."""
    return None if number == pb.FUNCTION_KIND_UNSPECIFIED else _known(_KINDS, number, "kind")


def kind_required(number: int) -> Kind:
    """The kind that a request must say."""
    return _known(_KINDS, number, "kind")


def draft(function: pb.Function) -> Draft:
    """The configuration that a function message asks for."""
    access = function.access
    return Draft(
        display_name=function.display_name,
        description=function.description,
        runtime=function.runtime,
        entrypoint=function.entrypoint,
        memory_mb=function.memory_mb,
        timeout=duration(function.timeout, "timeout_sec") if function.HasField("timeout") else None,
        env_vars=dict(function.env_vars),
        secret_env={name: _secret(secret) for name, secret in function.secret_env.items()},
        replicas=_replicas(function.replicas) if function.HasField("replicas") else None,
        labels=dict(function.labels),
        access=None if access == pb.ACCESS_UNSPECIFIED else _known(_ACCESSES, access, "access"),
        idempotent=function.idempotent,
    )


def upload(request: pb.CreateVersionRequest) -> Upload:
    """The upload that a request tells of."""
    return Upload(request.code_sha256, request.size_bytes, printable(request.created_by), request.build_only)


def change(request: pb.CreateVersionRequest) -> Change | None:
    """The configuration that changes with an upload."""
    if not request.HasField("config"):
        return None
    return Change(draft(request.config), frozenset(request.config_mask.paths))


def build_report(request: pb.ReportBuildRequest) -> BuildReport:
    """What a builder reports."""
    return BuildReport(
        version_uid=request.version_uid,
        attempt=request.attempt,
        state=_known(_STATES, request.state, "state"),
        message=printable(request.message),
        error=_build_error(request.error) if request.HasField("error") else None,
        layers=tuple(printable(layer) for layer in request.layers),
        image_ref=printable(request.image_ref),
        started_at=_time(request.started_at, "started_at") if request.HasField("started_at") else None,
        finished_at=_time(request.finished_at, "finished_at") if request.HasField("finished_at") else None,
        cached=request.cached,
    )


def status_report(request: pb.ReportStatusRequest) -> StatusReport:
    """What a runtime-manager reports."""
    return StatusReport(
        function_uid=request.function_uid,
        generation=request.generation,
        version=request.version,
        phase=_known(_PHASES, request.phase, "phase"),
        message=printable(request.message),
    )


def start(message: pb.WatchStart) -> Start:
    """Where a watch begins. Without a place it begins with a snapshot: nothing is missed by mistake."""
    types = frozenset[ResourceType]().union(*map(_types, message.resource_types))
    place = message.WhichOneof("from")
    if place == "revision":
        return Start(types, revision=message.revision)
    return Start(types, snapshot=place != "tail")


def duration(message: Duration, field: str) -> timedelta:
    """The duration. Raises InvalidField for one that is out of all bounds."""
    try:
        return message.ToTimedelta()
    except (OverflowError, ValueError):
        raise InvalidField(f"{field} is out of range: {message.seconds} seconds", field=field) from None


def printable(text: str) -> str:
    """A text of a build's or a function's making, as it can be stored."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _known(values: Mapping[int, T], number: int, field: str) -> T:
    if number not in values:
        allowed = ", ".join(str(value) for value in values.values())
        raise InvalidField(f"{field} must be one of {allowed}, not {number}", field=field)
    return values[number]


def _types(number: int) -> frozenset[ResourceType]:
    if number not in _TYPES:
        raise InvalidField(
            f"resource_types must name resources that can be watched, not {number}", field="resource_types"
        )
    return _TYPES[number]


def _secret(secret: pb.SecretValue) -> SecretDraft:
    content = secret.WhichOneof("content")
    if content == "value":
        return SecretDraft(value=secret.value)
    return SecretDraft(digest=secret.sha256 if content == "sha256" else None)


def _replicas(replicas: pb.Replicas) -> Replicas:
    return Replicas(replicas.min, replicas.max, replicas.concurrency)


def _build_error(error: pb.BuildError) -> BuildError:
    return BuildError(
        reason=printable(error.reason),
        message=printable(error.message),
        file=printable(error.file),
        line=error.line,
        package=printable(error.package),
    )


def _time(timestamp: Timestamp, field: str) -> datetime:
    try:
        return timestamp.ToDatetime(UTC)
    except (OverflowError, ValueError):
        raise InvalidField(
            f"{field} must be within the years 1 to 9999, not {timestamp.seconds} seconds after 1970", field=field
        ) from None
