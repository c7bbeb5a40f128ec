"""Servers and channels of this platform's services: the platform library's, with this platform's constants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sless.auth.v1 import auth_pb2, auth_pb2_grpc
from sless_platform.identity import IdentitySigner, IdentityVerifier, Principal
from sless_platform.rpc.bearer import AuthBearer, Bearer, VerifiedBearer
from sless_platform.rpc.client import RpcChannel, ServiceIdentity
from sless_platform.rpc.server import RpcServer
from sless_platform.settings import ServiceSettings

from sless_contracts.wire import ERROR_DOMAIN, IDENTITY_METADATA, USER_ISSUER


@dataclass(frozen=True)
class ServiceRpc:
    """How one service listens and calls, made from its settings."""

    service: str
    settings: ServiceSettings

    def server(self, bearer: Bearer | None) -> RpcServer:
        """A server that accepts internal identities meant for this service, and bearer tokens through `bearer`."""
        return RpcServer(
            self.settings.listen,
            verifier=IdentityVerifier(
                self.settings.identity_public_keys, audience=self.service, user_issuer=USER_ISSUER
            ),
            bearer=bearer,
            reflection=self.settings.reflection,
            identity_metadata=IDENTITY_METADATA,
            error_domain=ERROR_DOMAIN,
        )

    def channel(self, target: str, audience: str, *, timeout: timedelta = timedelta(seconds=10)) -> RpcChannel:
        """A channel on which this service speaks for itself to the service `audience`."""
        signer = IdentitySigner(self.settings.identity_key.get_secret_value(), self.service)
        return RpcChannel(
            target,
            identity=ServiceIdentity(signer, self.service, audience),
            timeout=timeout,
            identity_metadata=IDENTITY_METADATA,
        )


def auth_bearer(channel: RpcChannel) -> AuthBearer:
    """Verifies users' bearer tokens by asking auth on this channel, again when its answer may not be remembered any longer."""
    stub = auth_pb2_grpc.AuthServiceStub(channel.channel)

    async def ask(token: str) -> VerifiedBearer:
        asked = datetime.now(UTC)
        answer = await stub.Authenticate(auth_pb2.AuthenticateRequest(token=token))
        return VerifiedBearer(principal_of(answer.principal), remembered_until(answer, asked))

    return AuthBearer(ask)


def principal_of(who: auth_pb2.Principal) -> Principal:
    """The principal that auth's message names."""
    return Principal(who.sub, who.namespace, frozenset(who.roles), credential=who.api_key_id)


def remembered_until(answer: auth_pb2.AuthenticateResponse, asked: datetime) -> datetime:
    """Until when auth's answer to a question of the time `asked` may be believed without asking again."""
    ends = []
    if answer.principal.HasField("expires_at"):
        ends.append(answer.principal.expires_at.ToDatetime(tzinfo=UTC))
    if answer.HasField("remember_for"):
        ends.append(asked + answer.remember_for.ToTimedelta())
    # An answer that says neither may not be remembered at all.
    return min(ends, default=asked)
