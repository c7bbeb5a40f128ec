"""Resources as messages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from sless.registry.v1 import registry_pb2 as pb

from sless_registry.application.watching import Batch
from sless_registry.application.workloads import Workload
from sless_registry.domain.resources import (
    Access,
    BuildError,
    Function,
    Kind,
    Namespace,
    Phase,
    Replicas,
    Version,
    VersionState,
)

KINDS: Final = {Kind.FUNCTION: pb.FUNCTION_KIND_FUNCTION, Kind.SERVICE: pb.FUNCTION_KIND_SERVICE}
ACCESSES: Final = {Access.PUBLIC: pb.ACCESS_PUBLIC, Access.AUTHENTICATED: pb.ACCESS_AUTHENTICATED}
PHASES: Final = {
    Phase.PENDING: pb.PHASE_PENDING,
    Phase.BUILDING: pb.PHASE_BUILDING,
    Phase.DEPLOYING: pb.PHASE_DEPLOYING,
    Phase.READY: pb.PHASE_READY,
    Phase.FAILED: pb.PHASE_FAILED,
}
STATES: Final = {
    VersionState.PENDING: pb.VERSION_STATE_PENDING,
    VersionState.BUILDING: pb.VERSION_STATE_BUILDING,
    VersionState.BUILT: pb.VERSION_STATE_BUILT,
    VersionState.FAILED: pb.VERSION_STATE_FAILED,
    VersionState.CANCELLED: pb.VERSION_STATE_CANCELLED,
}

BATCH_BYTES: Final = 1024 * 1024
"""About how large a message of a watch gets; one resource may be larger."""

T = TypeVar("T")


def to_namespace(namespace: Namespace) -> pb.Namespace:
    """The namespace as a message."""
    return pb.Namespace(namespace=namespace.name, number=namespace.number, created_at=_timestamp(namespace.created_at))


def to_function(function: Function) -> pb.Function:
    """The function as a message; of secrets only their digests."""
    configuration = function.configuration
    secrets = {name: pb.SecretValue(sha256=secret.digest) for name, secret in configuration.secret_env.items()}
    return pb.Function(
        uid=function.uid,
        namespace=function.namespace,
        name=function.name,
        kind=KINDS[function.kind],
        display_name=configuration.display_name,
        description=configuration.description,
        runtime=configuration.runtime,
        entrypoint=configuration.entrypoint,
        memory_mb=configuration.memory_mb,
        timeout=_duration(configuration.timeout),
        env_vars=configuration.env_vars,
        secret_env=secrets,
        replicas=_replicas(configuration.replicas),
        labels=configuration.labels,
        access=ACCESSES[configuration.access],
        idempotent=configuration.idempotent,
        phase=PHASES[function.phase],
        message=function.message,
        generation=function.generation,
        observed_generation=function.observed_generation,
        active_version=function.active_version,
        desired_version=function.desired_version,
        image_ref=function.image_ref,
        last_built_at=_timestamp(function.last_built_at),
        created_at=_timestamp(function.created_at),
        updated_at=_timestamp(function.updated_at),
        deleted_at=_timestamp(function.deleted_at),
        etag=function.etag,
        revision=function.revision,
        has_served=function.has_served,
        traceparent=function.traceparent,
    )


def to_version(version: Version) -> pb.Version:
    """The version as a message."""
    return pb.Version(
        uid=version.uid,
        function_uid=version.function_uid,
        namespace=version.namespace,
        name=version.name,
        version=version.number,
        state=STATES[version.state],
        active=version.active,
        code_sha256=version.code_sha256,
        size_bytes=version.size_bytes,
        runtime=version.runtime,
        entrypoint=version.entrypoint,
        image_ref=version.image_ref,
        layers=version.layers,
        message=version.message,
        error=_build_error(version.error),
        created_by=version.created_by,
        created_at=_timestamp(version.created_at),
        build_started_at=_timestamp(version.build_started_at),
        build_finished_at=_timestamp(version.build_finished_at),
        cached=version.cached,
        activate=version.activate,
        revision=version.revision,
        attempt=version.attempt,
        traceparent=version.traceparent,
    )


def to_workload(workload: Workload) -> pb.Workload:
    """The workload as a message; secrets in clear."""
    function = workload.function
    return pb.Workload(
        function_uid=function.uid,
        namespace=function.namespace,
        namespace_number=workload.namespace_number,
        name=function.name,
        kind=KINDS[function.kind],
        generation=workload.generation,
        version=workload.number,
        runtime=workload.runtime,
        entrypoint=workload.entrypoint,
        layers=() if workload.version is None else workload.version.layers,
        memory_mb=workload.configuration.memory_mb,
        environment=workload.environment,
        replicas=_replicas(workload.configuration.replicas),
        template=workload.template,
        revision=workload.revision,
        deploying=function.deploying,
        traceparent=function.traceparent,
        serving=None if workload.serving is None else to_workload(workload.serving),
    )


def to_responses(batch: Batch) -> Iterator[pb.WatchResponse]:
    """The batch as messages of bounded size. All but the last say the revision of before, as not all changes are sent yet."""
    more = batch.more or batch.reset
    waiting = pb.WatchResponse(revision=batch.before, reset=batch.reset, more=more)
    size = 0
    for change in _changes(batch):
        size += change.ByteSize()
        if size > BATCH_BYTES and waiting.changes:
            yield waiting
            waiting, size = pb.WatchResponse(revision=batch.before, more=more), change.ByteSize()
        waiting.changes.append(change)
    waiting.revision, waiting.more = batch.revision, batch.more
    yield waiting


def _changes(batch: Batch) -> Iterator[pb.Change]:
    for resource in batch.changed:
        if isinstance(resource, Function):
            yield pb.Change(function=to_function(resource))
        else:
            yield pb.Change(version=to_version(resource))
    for uid in batch.purged:
        yield pb.Change(purged_function_uid=uid)
    for uid in batch.purged_versions:
        yield pb.Change(purged_version_uid=uid)


def _replicas(replicas: Replicas) -> pb.Replicas:
    return pb.Replicas(min=replicas.min, max=replicas.max, concurrency=replicas.concurrency)


def _build_error(error: BuildError | None) -> pb.BuildError | None:
    if error is None:
        return None
    return pb.BuildError(
        reason=error.reason, message=error.message, file=error.file, line=error.line, package=error.package
    )


def _timestamp(time: datetime | None) -> Timestamp | None:
    if time is None:
        return None
    timestamp = Timestamp()
    timestamp.FromDatetime(time)
    return timestamp


def _duration(time: timedelta | None) -> Duration | None:
    if time is None:
        return None
    duration = Duration()
    duration.FromTimedelta(time)
    return duration
