"""auth over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp
from sless.auth.v1 import auth_pb2 as pb
from sless.auth.v1 import auth_pb2_grpc
from sless_contracts.rpc import principal_of, remembered_until
from sless_platform.rpc.client import RpcChannel, with_identity

from sless_gateway.adapters import convert
from sless_gateway.adapters.paging import all_pages
from sless_gateway.domain import ApiKey, Caller, NewApiKey

_PAGE = 1_000


class AuthClient:
    """The ports Authority and ApiKeyKeeper."""

    def __init__(self, channel: RpcChannel, *, now: Callable[[], datetime]) -> None:
        self._stub = auth_pb2_grpc.AuthServiceStub(channel.channel)
        self._now = now

    async def authenticate(self, token: str, audiences: Sequence[str]) -> Caller:
        """See Authority."""
        asked = self._now()
        answer = await self._stub.Authenticate(pb.AuthenticateRequest(token=token, audiences=audiences))
        ends = [identity.expires_at for identity in answer.identities]
        if answer.principal.HasField("expires_at"):
            ends.append(answer.principal.expires_at)
        return Caller(
            principal=principal_of(answer.principal),
            identities={identity.audience: identity.token for identity in answer.identities},
            until=min((end.ToDatetime(tzinfo=UTC) for end in ends), default=asked),
            remember_until=remembered_until(answer, asked),
        )

    async def create(
        self, caller: Caller, namespace: str, *, name: str, expires_at: datetime | None, request_id: str
    ) -> NewApiKey:
        """See ApiKeyKeeper."""
        request = pb.CreateApiKeyRequest(namespace=namespace, name=name, request_id=request_id)
        if expires_at is not None:
            stamp = Timestamp()
            stamp.FromDatetime(expires_at)
            request.expires_at.CopyFrom(stamp)
        answer = await self._stub.CreateApiKey(request, metadata=_identity(caller))
        return NewApiKey(_key(answer.api_key), answer.secret)

    async def all(self, caller: Caller, namespace: str) -> Sequence[ApiKey]:
        """See ApiKeyKeeper."""

        async def page(token: str) -> tuple[Sequence[pb.ApiKey], str]:
            request = pb.ListApiKeysRequest(namespace=namespace, page_size=_PAGE, page_token=token)
            answer = await self._stub.ListApiKeys(request, metadata=_identity(caller))
            return answer.api_keys, answer.next_page_token

        return [_key(message) for message in await all_pages(page)]

    async def delete(self, caller: Caller, namespace: str, key_id: str) -> None:
        """See ApiKeyKeeper."""
        request = pb.DeleteApiKeyRequest(namespace=namespace, id=key_id)
        await self._stub.DeleteApiKey(request, metadata=_identity(caller))


def _identity(caller: Caller) -> tuple[tuple[str, str], ...]:
    return with_identity(caller.identities["auth"])


def _key(message: pb.ApiKey) -> ApiKey:
    return ApiKey(
        id=message.id,
        name=message.name,
        hint=message.hint,
        created_by=message.created_by,
        created_at=convert.moment(message, "created_at"),
        expires_at=convert.moment(message, "expires_at"),
        last_used_at=convert.moment(message, "last_used_at"),
    )
