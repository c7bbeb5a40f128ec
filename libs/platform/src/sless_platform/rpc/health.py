"""grpc.health.v1 over a HealthRegistry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer

from sless_platform.errors import NotFound
from sless_platform.health import HealthRegistry

SERVICE_NAME = "grpc.health.v1.Health"
_STATUS = {
    True: HealthCheckResponse.SERVING,
    False: HealthCheckResponse.NOT_SERVING,
    None: HealthCheckResponse.SERVICE_UNKNOWN,
}


class RegistryHealthServicer(HealthServicer):  # type: ignore[misc]
    """Answers from the registry (github.com/grpc/grpc/blob/master/doc/health-checking.md)."""

    def __init__(self, registry: HealthRegistry) -> None:
        self._registry = registry

    async def Check(  # noqa: N802
        self, request: HealthCheckRequest, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> HealthCheckResponse:
        """NotFound for a name that the service never spoke of."""
        serving = self._registry.get(request.service)
        if serving is None:
            raise NotFound(f"no health is kept under the name {request.service!r}")
        return HealthCheckResponse(status=_STATUS[serving])

    async def Watch(  # noqa: N802
        self, request: HealthCheckRequest, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[HealthCheckResponse]:
        """The state now and every change; SERVICE_UNKNOWN for a name not spoken of yet."""
        async for serving in self._registry.watch(request.service):
            yield HealthCheckResponse(status=_STATUS[serving])
