"""auth over gRPC."""

from __future__ import annotations

from sless.auth.v1 import auth_pb2, auth_pb2_grpc
from sless_platform.rpc.client import RpcChannel


class AuthApiKeys:
    """The port ApiKeys."""

    def __init__(self, channel: RpcChannel) -> None:
        self._stub = auth_pb2_grpc.AuthServiceStub(channel.channel)

    async def delete_all(self, namespace: str) -> None:
        """See ApiKeys."""
        await self._stub.DeleteNamespaceApiKeys(auth_pb2.DeleteNamespaceApiKeysRequest(namespace=namespace))
