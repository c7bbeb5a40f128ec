"""Whether the services that calls need are there, by grpc.health.v1."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from sless_platform.errors import PlatformError
from sless_platform.rpc.client import RpcChannel

_LIMIT_SEC: Final = 1.0


class HealthPeers:
    """The port Peers. `channels`: by the services' names."""

    def __init__(self, channels: Mapping[str, RpcChannel]) -> None:
        self._stubs = {name: HealthStub(channel.channel) for name, channel in channels.items()}

    async def reachable(self) -> Mapping[str, bool]:
        """See Peers."""
        answers = await asyncio.gather(*(self._serves(stub) for stub in self._stubs.values()))
        return dict(zip(self._stubs, answers, strict=True))

    async def _serves(self, stub: HealthStub) -> bool:
        try:
            answer = await stub.Check(HealthCheckRequest(service=""), timeout=_LIMIT_SEC)
        except PlatformError:
            return False
        return bool(answer.status == HealthCheckResponse.SERVING)
