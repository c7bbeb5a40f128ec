"""The runtime-manager: asked for instances, and watched for which there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from sless.runtime_manager.v1 import runtime_manager_pb2, runtime_manager_pb2_grpc
from sless_calls.pool import InstanceAddress
from sless_platform.errors import PlatformError
from sless_platform.rpc.client import NO_DEADLINE, RpcChannel

from sless_invoker.adapters.following import follow
from sless_invoker.application.instances import ServingSet

_ACTIVITY_SEC: Final = 1.0


class RuntimeManagerSupply:
    """Supply, over gRPC."""

    def __init__(self, channel: RpcChannel) -> None:
        self._stub = runtime_manager_pb2_grpc.RuntimeManagerServiceStub(channel.channel)

    async def ensure(self, function_uid: str, concurrency: int) -> None:
        """See Supply."""
        request = runtime_manager_pb2.EnsureInstancesRequest(function_uid=function_uid, concurrency=concurrency)
        await self._stub.EnsureInstances(request)


class InstanceWatch:
    """Follows instances, acknowledges what has been applied, and reports activity every second."""

    def __init__(
        self,
        channel: RpcChannel,
        *,
        apply: Callable[[Sequence[ServingSet], bool], None],
        activity: Callable[[], Sequence[tuple[str, int]]],
    ) -> None:
        """`apply(sets, reset)` takes changed sets; `activity()` gives calls since it was last asked."""
        self._stub = runtime_manager_pb2_grpc.RuntimeManagerServiceStub(channel.channel)
        self._apply = apply
        self._activity = activity
        self._unreported: dict[str, int] = {}
        self.following = asyncio.Event()
        """Set while the watch runs and all instances are known."""

    async def run(self) -> None:
        """Follows until cancelled; begins again when the runtime-manager was away. Its instances go on serving."""
        await follow(self._follow, following=self.following, what="instances")

    async def _follow(self) -> None:
        stream: Any = self._stub.WatchInstances(timeout=NO_DEADLINE)
        upstream = _Upstream(stream)
        try:
            async with asyncio.TaskGroup() as tasks:
                reporting = tasks.create_task(self._report(upstream))
                await self._receive(stream, upstream)
                reporting.cancel()
        except* PlatformError as errors:
            raise errors.exceptions[0] from None
        finally:
            stream.cancel()

    async def _receive(self, stream: Any, upstream: _Upstream) -> None:
        async for batch in stream:
            self._apply([_serving_set(found) for found in batch.sets], batch.reset)
            upstream.acknowledge(batch.revision)
            self.following.set()

    async def _report(self, upstream: _Upstream) -> None:
        """The one writer of the stream: acknowledgements at once, activity every second."""
        await upstream.send({})
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await upstream.wait(due)
            if loop.time() >= due:
                due = loop.time() + _ACTIVITY_SEC
                self._unreported |= dict(self._activity())
            await upstream.send(self._unreported)
            self._unreported = {}


class _Upstream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._acknowledged = 0
        self._changed = asyncio.Event()

    def acknowledge(self, revision: int) -> None:
        self._acknowledged = revision
        self._changed.set()

    async def wait(self, until: float) -> None:
        """Waits for an acknowledgement to send, at most until the loop's time `until`."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._changed.wait()

    async def send(self, activity: dict[str, int]) -> None:
        self._changed.clear()
        await self._stream.write(
            runtime_manager_pb2.WatchInstancesRequest(
                acknowledged_revision=self._acknowledged,
                activities=[
                    runtime_manager_pb2.Activity(function_uid=uid, concurrency=concurrency)
                    for uid, concurrency in activity.items()
                ],
            )
        )


def _serving_set(found: runtime_manager_pb2.InstanceSet) -> ServingSet:
    instances = tuple(
        InstanceAddress(instance.instance_id, instance.address, instance.max_concurrency)
        # A connection to one that is starting is open when it is ready, which saves the way of that news.
        for instance in (*found.instances, *found.starting)
    )
    return ServingSet(found.function_uid, instances, found.failure)
