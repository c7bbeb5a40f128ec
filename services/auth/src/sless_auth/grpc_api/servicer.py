"""AuthService over gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
from sless.auth.v1 import auth_pb2, auth_pb2_grpc
from sless_platform.rpc.access import Access, current_principal

from sless_auth.application import Authentication
from sless_auth.domain import Caller, Identity


class AuthServicer(auth_pb2_grpc.AuthServiceServicer):
    """Serves sless.auth.v1.AuthService."""

    ACCESS: Mapping[str, Access] = {
        "Authenticate": Access.services("registry", "builder", "runtime-manager", "invoker", "gateway"),
        "WhoAmI": Access.user(),
    }

    def __init__(self, authentication: Authentication) -> None:
        self._authentication = authentication

    async def Authenticate(  # noqa: N802
        self, request: auth_pb2.AuthenticateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> auth_pb2.AuthenticateResponse:
        """Verifies a token and mints identities."""
        caller = await self._authentication.authenticate(token=request.token)
        identities = self._authentication.identities(caller=caller, audiences=request.audiences)
        return auth_pb2.AuthenticateResponse(
            principal=_principal(caller), identities=[_identity(identity) for identity in identities]
        )

    async def WhoAmI(  # noqa: N802
        self, request: auth_pb2.WhoAmIRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> auth_pb2.WhoAmIResponse:
        """Tells the caller who it is."""
        principal = current_principal()
        return auth_pb2.WhoAmIResponse(
            principal=auth_pb2.Principal(
                sub=principal.subject, namespace=principal.namespace, roles=sorted(principal.roles)
            )
        )


def _principal(caller: Caller) -> auth_pb2.Principal:
    message = auth_pb2.Principal(
        sub=caller.principal.subject,
        namespace=caller.principal.namespace,
        roles=sorted(caller.principal.roles),
    )
    message.expires_at.FromDatetime(caller.expires_at)
    return message


def _identity(identity: Identity) -> auth_pb2.Identity:
    message = auth_pb2.Identity(audience=identity.audience, token=identity.token)
    message.expires_at.FromDatetime(identity.expires_at)
    return message
