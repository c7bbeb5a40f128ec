"""auth over gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC

from sless.auth.v1 import auth_pb2, auth_pb2_grpc
from sless_platform.identity import Principal
from sless_platform.rpc.client import RpcChannel

from sless_gateway.domain import Caller


class AuthClient:
    """The port Authority."""

    def __init__(self, channel: RpcChannel) -> None:
        self._stub = auth_pb2_grpc.AuthServiceStub(channel.channel)

    async def authenticate(self, token: str, audiences: Sequence[str]) -> Caller:
        """See Authority."""
        answer = await self._stub.Authenticate(auth_pb2.AuthenticateRequest(token=token, audiences=audiences))
        who = answer.principal
        ends = [who.expires_at, *(identity.expires_at for identity in answer.identities)]
        return Caller(
            principal=Principal(who.sub, who.namespace, frozenset(who.roles)),
            identities={identity.audience: identity.token for identity in answer.identities},
            until=min(end.ToDatetime(tzinfo=UTC) for end in ends),
        )
