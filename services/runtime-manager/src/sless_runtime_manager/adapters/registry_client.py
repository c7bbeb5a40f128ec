"""The registry over gRPC: what should run, and how that goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final

from sless.registry.v1 import registry_pb2, registry_pb2_grpc
from sless_platform.backoff import Backoff
from sless_platform.errors import NotFound, PlatformError
from sless_platform.logging import get_logger
from sless_platform.rpc.client import NO_DEADLINE, RpcChannel

from sless_runtime_manager.domain import Function, Kind, Limits, Outcome, Phase, Workload
from sless_runtime_manager.errors import WorkloadNotFound
from sless_runtime_manager.ports import FunctionChanges

log = get_logger(__name__)

_PAUSES: Final = Backoff(initial=timedelta(milliseconds=50), maximum=timedelta(seconds=1))
_KINDS: Final = {
    registry_pb2.FUNCTION_KIND_FUNCTION: Kind.FUNCTION,
    registry_pb2.FUNCTION_KIND_SERVICE: Kind.SERVICE,
}
_PHASES: Final = {
    Phase.DEPLOYING: registry_pb2.PHASE_DEPLOYING,
    Phase.READY: registry_pb2.PHASE_READY,
    Phase.FAILED: registry_pb2.PHASE_FAILED,
}


class RegistryClient:
    """Registry, over gRPC."""

    def __init__(self, channel: RpcChannel) -> None:
        self._stub = registry_pb2_grpc.RegistryServiceStub(channel.channel)
        self._applied: int | None = None

    async def watch(self) -> AsyncIterator[FunctionChanges]:
        """See Registry."""
        pauses = _PAUSES.delays()
        while True:
            try:
                async for changes in self._follow():
                    pauses = _PAUSES.delays()
                    yield changes
            except PlatformError as error:
                log.info("the watch of the registry ended and begins again", reason=error.reason, error=error.message)
            await asyncio.sleep(next(pauses).total_seconds())

    async def get_function(self, function_uid: str) -> Function:
        """See Registry."""
        try:
            answer = await self._stub.GetFunction(registry_pb2.GetFunctionRequest(uid=function_uid))
        except NotFound as error:
            raise WorkloadNotFound(error.message) from error
        return _function(answer.function)

    async def get_workload(self, function_uid: str) -> Workload:
        """See Registry."""
        try:
            answer = await self._stub.GetWorkload(registry_pb2.GetWorkloadRequest(function_uid=function_uid))
        except NotFound as error:
            raise WorkloadNotFound(error.message) from error
        return _workload(answer.workload)

    async def report_status(self, function_uid: str, outcome: Outcome) -> bool:
        """See Registry."""
        answer = await self._stub.ReportStatus(
            registry_pb2.ReportStatusRequest(
                function_uid=function_uid,
                generation=outcome.generation,
                version=outcome.version,
                phase=_PHASES[outcome.phase],
                message=outcome.message,
            )
        )
        return answer.accepted

    async def report_finalized(self, function_uid: str) -> None:
        """See Registry."""
        await self._stub.ReportFinalized(registry_pb2.ReportFinalizedRequest(function_uid=function_uid))

    async def _follow(self) -> AsyncIterator[FunctionChanges]:
        stream: Any = self._stub.Watch(timeout=NO_DEADLINE)
        try:
            await stream.write(registry_pb2.WatchRequest(start=self._start()))
            async for batch in stream:
                yield _changes(batch)
                if not batch.more:
                    self._applied = batch.revision
                    await stream.write(registry_pb2.WatchRequest(acknowledged_revision=batch.revision))
        finally:
            stream.cancel()

    def _start(self) -> registry_pb2.WatchStart:
        types = [registry_pb2.RESOURCE_TYPE_FUNCTION]
        if self._applied is None:
            return registry_pb2.WatchStart(resource_types=types, snapshot=True)
        return registry_pb2.WatchStart(resource_types=types, revision=self._applied)


def _changes(batch: registry_pb2.WatchResponse) -> FunctionChanges:
    return FunctionChanges(
        reset=batch.reset,
        complete=not batch.more,
        functions=tuple(_function(change.function) for change in batch.changes if change.HasField("function")),
        purged=tuple(change.purged_function_uid for change in batch.changes if change.HasField("purged_function_uid")),
    )


def _function(function: registry_pb2.Function) -> Function:
    return Function(
        uid=function.uid,
        generation=function.generation,
        version=function.desired_version,
        deploying=function.phase == registry_pb2.PHASE_DEPLOYING,
        failed=function.phase == registry_pb2.PHASE_FAILED,
        deleted=function.HasField("deleted_at"),
        least=function.replicas.min,
        most=function.replicas.max,
        timeout=function.timeout.ToTimedelta() if function.HasField("timeout") else None,
        revision=function.revision,
    )


def _workload(workload: registry_pb2.Workload) -> Workload:
    replicas = workload.replicas
    return Workload(
        function_uid=workload.function_uid,
        namespace=workload.namespace,
        namespace_number=workload.namespace_number,
        name=workload.name,
        kind=_KINDS[workload.kind],
        generation=workload.generation,
        version=workload.version,
        runtime=workload.runtime,
        entrypoint=workload.entrypoint,
        layers=tuple(workload.layers),
        memory_mb=workload.memory_mb,
        environment=dict(workload.environment),
        limits=Limits(least=replicas.min, most=replicas.max, concurrency=max(replicas.concurrency, 1)),
        template=workload.template,
        deploying=workload.deploying,
        revision=workload.revision,
        traceparent=workload.traceparent,
        serving=_workload(workload.serving) if workload.HasField("serving") else None,
    )
