"""registry over gRPC, in the caller's name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from sless.registry.v1 import registry_pb2 as pb
from sless.registry.v1 import registry_pb2_grpc
from sless_platform.rpc.client import RpcChannel, with_identity

from sless_gateway.adapters import convert
from sless_gateway.adapters.paging import all_pages
from sless_gateway.domain import Caller, Function, FunctionConfig, FunctionKey, Kind, Namespace, Version

_PAGE: Final = 1_000
_FENCED: Final = 30.0
"""Seconds for writes that answer only once they hold everywhere."""
_WAIT_MARGIN: Final = 10.0


class RegistryClient:
    """The port Registry."""

    def __init__(self, channel: RpcChannel) -> None:
        self._stub = registry_pb2_grpc.RegistryServiceStub(channel.channel)

    async def ensure_namespace(self, caller: Caller, namespace: str) -> Namespace:
        """See Registry."""
        request = pb.EnsureNamespaceRequest(namespace=namespace)
        answer = await self._stub.EnsureNamespace(request, metadata=_identity(caller))
        return convert.namespace(answer.namespace)

    async def get_namespace(self, caller: Caller, namespace: str) -> Namespace:
        """See Registry."""
        request = pb.GetNamespaceRequest(namespace=namespace)
        answer = await self._stub.GetNamespace(request, metadata=_identity(caller))
        return convert.namespace(answer.namespace)

    async def delete_namespace(self, caller: Caller, namespace: str, *, confirm: str, request_id: str) -> None:
        """See Registry."""
        request = pb.DeleteNamespaceRequest(namespace=namespace, confirm=confirm, request_id=request_id)
        await self._stub.DeleteNamespace(request, metadata=_identity(caller), timeout=_FENCED)

    async def create(self, caller: Caller, key: FunctionKey, config: FunctionConfig, *, request_id: str) -> Function:
        """See Registry."""
        request = pb.CreateFunctionRequest(function=convert.function_message(key, config), request_id=request_id)
        answer = await self._stub.CreateFunction(request, metadata=_identity(caller), timeout=_FENCED)
        return convert.function(answer.function)

    async def get(self, caller: Caller, key: FunctionKey) -> Function:
        """See Registry."""
        request = pb.GetFunctionRequest(**_named(key))
        answer = await self._stub.GetFunction(request, metadata=_identity(caller))
        return convert.function(answer.function)

    async def functions(self, caller: Caller, namespace: str, kind: Kind) -> Sequence[Function]:
        """See Registry."""

        async def page(token: str) -> tuple[Sequence[pb.Function], str]:
            request = pb.ListFunctionsRequest(
                namespace=namespace, kind=convert.KIND_TO_PROTO[kind], page_size=_PAGE, page_token=token
            )
            answer = await self._stub.ListFunctions(request, metadata=_identity(caller))
            return answer.functions, answer.next_page_token

        return [convert.function(message) for message in await all_pages(page)]

    async def update(
        self, caller: Caller, key: FunctionKey, config: FunctionConfig, *, etag: str, request_id: str
    ) -> Function:
        """See Registry."""
        request = pb.UpdateFunctionRequest(
            function=convert.function_message(key, config), etag=etag, request_id=request_id
        )
        answer = await self._stub.UpdateFunction(request, metadata=_identity(caller), timeout=_FENCED)
        return convert.function(answer.function)

    async def delete(self, caller: Caller, key: FunctionKey, *, etag: str, request_id: str) -> None:
        """See Registry."""
        request = pb.DeleteFunctionRequest(**_named(key), etag=etag, request_id=request_id)
        await self._stub.DeleteFunction(request, metadata=_identity(caller), timeout=_FENCED)

    async def wait(self, caller: Caller, key: FunctionKey, wait: timedelta) -> Function:
        """See Registry."""
        request = pb.WaitFunctionRequest(**_named(key), wait=convert.duration(wait))
        limit = wait.total_seconds() + _WAIT_MARGIN
        answer = await self._stub.WaitFunction(request, metadata=_identity(caller), timeout=limit)
        return convert.function(answer.function)

    async def version(self, caller: Caller, key: FunctionKey, number: int) -> Version:
        """See Registry."""
        request = pb.GetVersionRequest(**_named(key), version=number)
        answer = await self._stub.GetVersion(request, metadata=_identity(caller))
        return convert.version(answer.version)

    async def versions(self, caller: Caller, key: FunctionKey) -> Sequence[Version]:
        """See Registry."""

        async def page(token: str) -> tuple[Sequence[pb.Version], str]:
            request = pb.ListVersionsRequest(**_named(key), page_size=_PAGE, page_token=token)
            answer = await self._stub.ListVersions(request, metadata=_identity(caller))
            return answer.versions, answer.next_page_token

        return [convert.version(message) for message in await all_pages(page)]

    async def activate(self, caller: Caller, key: FunctionKey, number: int, *, etag: str, request_id: str) -> Function:
        """See Registry."""
        request = pb.ActivateVersionRequest(**_named(key), version=number, etag=etag, request_id=request_id)
        answer = await self._stub.ActivateVersion(request, metadata=_identity(caller), timeout=_FENCED)
        return convert.function(answer.function)


def _identity(caller: Caller) -> tuple[tuple[str, str], ...]:
    return with_identity(caller.identities["registry"])


def _named(key: FunctionKey) -> dict[str, Any]:
    return {"namespace": key.namespace, "name": key.name, "kind": convert.KIND_TO_PROTO[key.kind]}
