"""Registry over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from sless.registry.v1 import registry_pb2 as pb
from sless.registry.v1 import registry_pb2_grpc
from sless_platform.errors import NotFound
from sless_platform.rpc.client import RpcChannel

from sless_builder.domain.build import BuildState, FunctionUid, Problem, Report, Source, VersionUid
from sless_builder.domain.known import FunctionInfo, VersionInfo
from sless_builder.ports import Changes, CreatedVersion, NewVersion, Target

_STATES: Final = {
    pb.VERSION_STATE_PENDING: BuildState.PENDING,
    pb.VERSION_STATE_BUILDING: BuildState.BUILDING,
    pb.VERSION_STATE_BUILT: BuildState.BUILT,
    pb.VERSION_STATE_FAILED: BuildState.FAILED,
    pb.VERSION_STATE_CANCELLED: BuildState.CANCELLED,
}
_NUMBERS: Final = {state: number for number, state in _STATES.items()}
_FENCED: Final = 30.0
"""Seconds for what may be answered only once it holds everywhere."""
_FOLLOWED: Final = (pb.RESOURCE_TYPE_FUNCTION, pb.RESOURCE_TYPE_VERSION)


class RegistryClient:
    """See sless_builder.ports.Registry. `channel`: on which the builder speaks for itself."""

    def __init__(self, channel: RpcChannel) -> None:
        self._stub: registry_pb2_grpc.RegistryServiceAsyncStub = registry_pb2_grpc.RegistryServiceStub(channel.channel)

    async def function(self, target: Target) -> FunctionInfo:
        """See Registry."""
        request = pb.GetFunctionRequest(namespace=target.namespace, name=target.name, kind=_kind(target))
        function = (await self._stub.GetFunction(request)).function
        return FunctionInfo(FunctionUid(function.uid), function.runtime, function.entrypoint, function.active_version)

    async def version(self, target: Target, number: int) -> VersionInfo:
        """See Registry."""
        request = pb.GetVersionRequest(namespace=target.namespace, name=target.name, kind=_kind(target), version=number)
        version = (await self._stub.GetVersion(request)).version
        return VersionInfo(
            *(VersionUid(version.uid), _STATES[version.state], version.version),
            *(version.code_sha256, version.runtime, version.entrypoint, version.message),
        )

    async def create_version(self, version: NewVersion) -> CreatedVersion:
        """See Registry."""
        request = pb.CreateVersionRequest(
            namespace=version.target.namespace,
            name=version.target.name,
            kind=_kind(version.target),
            code_sha256=version.code_sha256,
            size_bytes=version.size_bytes,
            created_by=version.created_by,
            build_only=version.build_only,
            etag=version.etag,
            request_id=version.request_id,
        )
        if version.config is not None:
            request.config.ParseFromString(version.config.message)
            request.config_mask.paths.extend(version.config.fields)
        answer = await self._stub.CreateVersion(request, timeout=_FENCED)
        return CreatedVersion(VersionUid(answer.version.uid), answer.SerializeToString())

    async def report(self, report: Report) -> BuildState | None:
        """See Registry."""
        answer = await self._stub.ReportBuild(_request(report))
        return _STATES[answer.version.state] if answer.HasField("version") else None

    async def report_finalized(self, function_uid: FunctionUid) -> None:
        """See Registry."""
        try:
            await self._stub.ReportFinalized(pb.ReportFinalizedRequest(function_uid=function_uid))
        except NotFound:
            return  # it is gone for good already

    @asynccontextmanager
    async def watch(self, revision: int | None) -> AsyncIterator[RegistryFeed]:
        """See Registry."""
        call: Any = self._stub.Watch()
        try:
            start = pb.WatchStart(resource_types=_FOLLOWED)
            if revision is None:
                start.snapshot = True
            else:
                start.revision = revision
            await call.write(pb.WatchRequest(start=start))
            yield RegistryFeed(call)
        finally:
            call.cancel()


class RegistryFeed:
    """See sless_builder.ports.Feed."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def __aiter__(self) -> AsyncIterator[Changes]:
        async for batch in self._call:
            yield _changes(batch)

    async def acknowledge(self, revision: int) -> None:
        """See Feed."""
        await self._call.write(pb.WatchRequest(acknowledged_revision=revision))


def _kind(target: Target) -> pb.FunctionKind.ValueType:
    return pb.FunctionKind.ValueType(target.kind)


def _changes(batch: pb.WatchResponse) -> Changes:
    functions = [change.function for change in batch.changes if change.HasField("function")]
    versions = [change.version for change in batch.changes if change.HasField("version")]
    waiting = (pb.VERSION_STATE_PENDING, pb.VERSION_STATE_BUILDING)
    return Changes(
        revision=batch.revision,
        reset=batch.reset,
        more=batch.more,
        wanted=tuple((_source(version), version.attempt) for version in versions if version.state in waiting),
        cancelled=_version_uids(version for version in versions if version.state == pb.VERSION_STATE_CANCELLED),
        deleted=_function_uids(function.uid for function in functions if function.HasField("deleted_at")),
        purged=_function_uids(
            change.purged_function_uid for change in batch.changes if change.HasField("purged_function_uid")
        ),
        dropped=tuple(
            VersionUid(change.purged_version_uid) for change in batch.changes if change.HasField("purged_version_uid")
        ),
        functions=frozenset(FunctionUid(function.uid) for function in functions),
        versions=frozenset(VersionUid(version.uid) for version in versions),
    )


def _version_uids(versions: Iterable[pb.Version]) -> tuple[VersionUid, ...]:
    return tuple(VersionUid(version.uid) for version in versions)


def _function_uids(uids: Iterable[str]) -> tuple[FunctionUid, ...]:
    return tuple(FunctionUid(uid) for uid in uids)


def _source(version: pb.Version) -> Source:
    return Source(
        VersionUid(version.uid),
        FunctionUid(version.function_uid),
        version.namespace,
        version.name,
        version.version,
        version.code_sha256,
        version.runtime,
        version.entrypoint,
        version.traceparent,
    )


def _request(report: Report) -> pb.ReportBuildRequest:
    request = pb.ReportBuildRequest(
        version_uid=report.version_uid,
        attempt=report.attempt,
        # One that waits to be tried again has begun.
        state=_NUMBERS[BuildState.BUILDING if report.state is BuildState.PENDING else report.state],
        message=report.message,
        started_at=_time(report.started_at),
        finished_at=_time(report.finished_at),
    )
    if report.problem is not None:
        request.error.CopyFrom(_error(report.problem))
    if report.result is not None:
        request.layers.extend(report.result.layers)
        request.image_ref, request.cached = report.result.image_ref, report.result.cached
    return request


def _error(problem: Problem) -> pb.BuildError:
    return pb.BuildError(
        reason=problem.reason,
        message=problem.message,
        file=problem.file,
        line=problem.line,
        package=problem.package,
    )


def _time(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
