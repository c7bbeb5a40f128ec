"""AuthService over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import grpc
from sless.auth.v1 import auth_pb2 as pb
from sless.auth.v1 import auth_pb2_grpc
from sless_platform.rpc.access import Access, current_principal

from sless_auth.application.api_keys import ApiKeys
from sless_auth.application.authentication import Authentication
from sless_auth.grpc_api import convert

# A text, because this class is generic for type checkers alone.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class AuthServicer(auth_pb2_grpc.AuthServiceServicer):
    """Serves sless.auth.v1.AuthService."""

    ACCESS: Mapping[str, Access] = {
        "Authenticate": Access.services("registry", "builder", "runtime-manager", "invoker", "gateway"),
        "WhoAmI": Access.user(),
        "CreateApiKey": Access.user(),
        "ListApiKeys": Access.user(),
        "DeleteApiKey": Access.user(),
        "DeleteNamespaceApiKeys": Access.services("registry"),
    }

    def __init__(self, authentication: Authentication, keys: ApiKeys, *, now: Callable[[], datetime]) -> None:
        self._authentication = authentication
        self._keys = keys
        self._now = now

    async def Authenticate(self, request: pb.AuthenticateRequest, context: Context) -> pb.AuthenticateResponse:  # noqa: N802
        """Verifies a token and mints identities."""
        caller = await self._authentication.authenticate(token=request.token)
        identities = self._authentication.identities(caller=caller, audiences=request.audiences)
        return convert.authenticated(caller, identities, self._now())

    async def WhoAmI(self, request: pb.WhoAmIRequest, context: Context) -> pb.WhoAmIResponse:  # noqa: N802
        """Tells the caller who it is."""
        return pb.WhoAmIResponse(principal=convert.principal(current_principal()))

    async def CreateApiKey(self, request: pb.CreateApiKeyRequest, context: Context) -> pb.CreateApiKeyResponse:  # noqa: N802
        """Makes a key."""
        key, secret = await self._keys.create(
            principal=current_principal(),
            namespace=request.namespace,
            name=request.name,
            expires_at=convert.moment(request, "expires_at"),
            request_id=request.request_id,
        )
        return pb.CreateApiKeyResponse(api_key=convert.api_key(key), secret=secret)

    async def ListApiKeys(self, request: pb.ListApiKeysRequest, context: Context) -> pb.ListApiKeysResponse:  # noqa: N802
        """Gives a page of keys."""
        page = await self._keys.page(
            principal=current_principal(),
            namespace=request.namespace,
            size=request.page_size,
            token=request.page_token,
        )
        return pb.ListApiKeysResponse(
            api_keys=[convert.api_key(key) for key in page.keys], next_page_token=page.next_token
        )

    async def DeleteApiKey(self, request: pb.DeleteApiKeyRequest, context: Context) -> pb.DeleteApiKeyResponse:  # noqa: N802
        """Revokes a key."""
        await self._keys.delete(principal=current_principal(), namespace=request.namespace, key_id=request.id)
        return pb.DeleteApiKeyResponse()

    async def DeleteNamespaceApiKeys(  # noqa: N802
        self, request: pb.DeleteNamespaceApiKeysRequest, context: Context
    ) -> pb.DeleteNamespaceApiKeysResponse:
        """Revokes all keys of a namespace."""
        await self._keys.delete_all(principal=current_principal(), namespace=request.namespace)
        return pb.DeleteNamespaceApiKeysResponse()
