"""The registry: asked for functions, and watched for what changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

from sless.registry.v1 import registry_pb2, registry_pb2_grpc
from sless_platform.errors import NotFound
from sless_platform.rpc.client import NO_DEADLINE, RpcChannel

from sless_invoker.adapters.following import follow
from sless_invoker.domain import Kind, Target
from sless_invoker.ports import Lookup

_KINDS: Final = {
    registry_pb2.FUNCTION_KIND_FUNCTION: Kind.FUNCTION,
    registry_pb2.FUNCTION_KIND_SERVICE: Kind.SERVICE,
}


class FunctionChanges(Protocol):
    """Who is told of changed functions."""

    def changed(self, functions: Sequence[tuple[Target, bool]], revision: int) -> None:
        """Functions as they are now, with whether each is deleted; everything up to `revision` has been told."""
        ...

    def missed(self) -> None:
        """Changes may have been missed: what is remembered of functions must be forgotten."""
        ...


class RegistryDirectory:
    """Directory, over gRPC."""

    def __init__(self, channel: RpcChannel) -> None:
        self._stub = registry_pb2_grpc.RegistryServiceStub(channel.channel)

    async def find(self, namespace: str, name: str) -> Lookup:
        """See Directory."""
        request = registry_pb2.GetFunctionRequest(namespace=namespace, name=name)
        try:
            answer = await self._stub.GetFunction(request)
        except NotFound as error:
            return Lookup(None, int(error.metadata.get("read_revision", 0)))
        return Lookup(target_of(answer.function), answer.read_revision)


class RegistryWatch:
    """Follows functions. A revision is acknowledged once everything up to it has been applied."""

    def __init__(self, channel: RpcChannel, changes: FunctionChanges) -> None:
        self._stub = registry_pb2_grpc.RegistryServiceStub(channel.channel)
        self._changes = changes
        self._applied: int | None = None
        self.following = asyncio.Event()
        """Set while the watch runs and has caught up at least once."""

    async def run(self) -> None:
        """Follows until cancelled; begins again when the registry was away."""
        await follow(self._follow, following=self.following, what="functions")

    async def _follow(self) -> None:
        stream: Any = self._stub.Watch(timeout=NO_DEADLINE)
        try:
            await stream.write(registry_pb2.WatchRequest(start=self._start()))
            async for batch in stream:
                self._apply(batch)
                if not batch.more:
                    await stream.write(registry_pb2.WatchRequest(acknowledged_revision=batch.revision))
                    self.following.set()
        finally:
            stream.cancel()

    def _start(self) -> registry_pb2.WatchStart:
        functions = [registry_pb2.RESOURCE_TYPE_FUNCTION]
        if self._applied is None:
            # Nothing is remembered yet, so nothing of before matters.
            return registry_pb2.WatchStart(resource_types=functions, tail=True)
        return registry_pb2.WatchStart(resource_types=functions, revision=self._applied)

    def _apply(self, batch: registry_pb2.WatchResponse) -> None:
        if batch.reset:
            self._changes.missed()
        changed = [
            (target_of(change.function), change.function.HasField("deleted_at"))
            for change in batch.changes
            if change.HasField("function")
        ]
        self._changes.changed(changed, batch.revision)
        if not batch.more:
            self._applied = batch.revision


def target_of(function: registry_pb2.Function) -> Target:
    """What a call needs to know of a function."""
    return Target(
        uid=function.uid,
        namespace=function.namespace,
        name=function.name,
        kind=_KINDS[function.kind],
        access_public=function.access == registry_pb2.ACCESS_PUBLIC,
        timeout=function.timeout.ToTimedelta() if function.HasField("timeout") else None,
        max_replicas=function.replicas.max,
        concurrency=function.replicas.concurrency,
        idempotent=function.idempotent,
        served=function.has_served,
        message=function.message,
        revision=function.revision,
    )
