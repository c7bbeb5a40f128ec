"""RuntimeManagerService over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import grpc
from sless.runtime_manager.v1 import runtime_manager_pb2 as pb
from sless.runtime_manager.v1 import runtime_manager_pb2_grpc
from sless_platform.rpc.access import Access

from sless_runtime_manager.application.board import Watcher
from sless_runtime_manager.application.manager import RuntimeManager
from sless_runtime_manager.grpc_api.convert import batch_message

SERVICE_NAME: Final = "sless.runtime_manager.v1.RuntimeManagerService"

Context = grpc.aio.ServicerContext[Any, Any]


class RuntimeManagerServicer(runtime_manager_pb2_grpc.RuntimeManagerServiceServicer):
    """Serves sless.runtime_manager.v1.RuntimeManagerService to the invoker."""

    ACCESS: Mapping[str, Access] = {
        "EnsureInstances": Access.services("invoker"),
        "WatchInstances": Access.services("invoker"),
    }

    def __init__(self, manager: RuntimeManager) -> None:
        self._manager = manager

    async def EnsureInstances(  # noqa: N802
        self, request: pb.EnsureInstancesRequest, context: Context
    ) -> pb.EnsureInstancesResponse:
        """Notes that calls wait for a function."""
        await self._manager.ensure_instances(function_uid=request.function_uid, concurrency=max(request.concurrency, 1))
        return pb.EnsureInstancesResponse()

    async def WatchInstances(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.WatchInstancesRequest], context: Context
    ) -> AsyncIterator[pb.WatchInstancesResponse]:
        """Streams instance sets until the watcher ends its side."""
        with self._manager.watch_instances() as watcher:
            async with self._listening(watcher, request_iterator), aclosing(watcher.batches()) as batches:
                async for batch in batches:
                    yield batch_message(batch)

    @asynccontextmanager
    async def _listening(
        self, watcher: Watcher, requests: AsyncIterator[pb.WatchInstancesRequest]
    ) -> AsyncIterator[None]:
        listening = asyncio.create_task(self._listen(watcher, requests))
        listening.add_done_callback(lambda _task: watcher.end())
        try:
            yield
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        if not listening.cancelled():
            listening.result()

    async def _listen(self, watcher: Watcher, requests: AsyncIterator[pb.WatchInstancesRequest]) -> None:
        async for request in requests:
            watcher.acknowledge(request.acknowledged_revision)
            for activity in request.activities:
                self._manager.note_activity(
                    watcher=watcher, function_uid=activity.function_uid, concurrency=activity.concurrency
                )
