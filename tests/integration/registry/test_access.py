"""Who may call each RPC: cases are made from the API's descriptor, so that none can be forgotten."""

from __future__ import annotations

from typing import Any, Final

import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from sless.registry.v1 import registry_pb2 as pb
from sless_contracts import wire
from sless_platform.errors import PermissionDenied, PlatformError, Unauthenticated
from sless_platform.identity import IdentitySigner
from sless_platform.rpc.client import ServiceIdentity, UserIdentity
from sless_registry.grpc_api.servicer import RegistryServicer

from tests.support.registry import NAMESPACE, OTHER_SUB, RunningRegistry, a_function, running_registry

METHODS: Final = {method.name: method for method in pb.DESCRIPTOR.services_by_name["RegistryService"].methods}
PREFIX: Final = "/sless.registry.v1.RegistryService/"


def a_request(method: str) -> Message:
    """A request for NAMESPACE's function `hello`, as far as the RPC's request has fields for that."""
    message: Any = GetMessageClass(METHODS[method].input_type)()
    fields = {field.name for field in METHODS[method].input_type.fields}
    if "function" in fields:
        message.function.CopyFrom(a_function())
    for name, value in {"namespace": NAMESPACE, "name": "hello", "confirm": NAMESPACE}.items():
        if name in fields:
            setattr(message, name, value)
    assert isinstance(message, Message)
    return message


async def call(registry: RunningRegistry, method: str, identity: Any) -> None:
    """Call an RPC of any kind."""
    types = METHODS[method]
    async with registry.channel(identity, tries=1) as channel:
        kind = "stream_stream" if types.server_streaming else "unary_unary"
        made = getattr(channel.channel, kind)(
            PREFIX + method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(types.output_type).FromString,
        )
        if types.server_streaming:
            stream = made(iter([a_request(method)]), timeout=5)
            await stream.read()
        else:
            await made(a_request(method), timeout=5)


@pytest.mark.parametrize("method", METHODS)
async def test_nobody_calls_without_an_identity(method: str) -> None:
    async with running_registry() as registry:
        with pytest.raises(Unauthenticated):
            await call(registry, method, None)


@pytest.mark.fault(21)
@pytest.mark.parametrize("method", METHODS)
async def test_a_forged_identity_is_refused(method: str) -> None:
    async with running_registry() as registry:
        stolen = IdentitySigner(registry.keys.private["stranger"], "stranger")
        forged = IdentitySigner(registry.keys.private["stranger"], "auth")
        for_another = ServiceIdentity(IdentitySigner(registry.keys.private["builder"], "builder"), "builder", "gateway")
        for identity in (
            UserIdentity("x.y.z"),
            UserIdentity(registry.user_token()[:-4] + "AAAA"),
            ServiceIdentity(forged, "auth", "registry"),
            for_another,
        ):
            with pytest.raises(Unauthenticated):
                await call(registry, method, identity)
        with pytest.raises(PermissionDenied):
            await call(registry, method, ServiceIdentity(stolen, "stranger", "registry"))


USERS: Final = [name for name, access in RegistryServicer.ACCESS.items() if access.users]
SERVICES: Final = [name for name, access in RegistryServicer.ACCESS.items() if not access.users]


@pytest.mark.parametrize("method", USERS)
async def test_another_users_namespace_is_refused(method: str) -> None:
    async with running_registry() as registry:
        await registry.create()
        with pytest.raises(PermissionDenied, match=f"namespace '{NAMESPACE}' is not yours"):
            await call(registry, method, UserIdentity(registry.user_token(OTHER_SUB)))


@pytest.mark.parametrize("method", USERS)
async def test_an_admin_acts_in_every_namespace(method: str) -> None:
    async with running_registry() as registry, registry.invoker():
        await registry.create()
        try:
            await call(registry, method, UserIdentity(registry.user_token(OTHER_SUB, "admin")))
        except PlatformError as error:
            assert not isinstance(error, PermissionDenied | Unauthenticated)  # noqa: PT017 - other outcomes are no matter


@pytest.mark.parametrize("method", SERVICES)
@pytest.mark.parametrize("roles", [(), ("admin",)])
async def test_what_is_for_services_is_not_for_users(method: str, roles: tuple[str, ...]) -> None:
    async with running_registry() as registry:
        with pytest.raises(PermissionDenied, match="is not for users"):
            await call(registry, method, UserIdentity(registry.user_token("sub", *roles)))


@pytest.mark.parametrize("service", wire.SERVICES)
@pytest.mark.parametrize("method", METHODS)
async def test_a_service_calls_only_what_is_for_it(method: str, service: str) -> None:
    async with running_registry() as registry, registry.invoker():
        identity = ServiceIdentity(IdentitySigner(registry.keys.private[service], service), service, "registry")
        allowed = service in RegistryServicer.ACCESS[method].callers
        try:
            await call(registry, method, identity)
        except (PermissionDenied, Unauthenticated):
            assert not allowed
        except PlatformError:
            assert allowed
        else:
            assert allowed


def test_only_the_owner_of_each_report_may_make_it() -> None:
    assert {name: RegistryServicer.ACCESS[name].callers for name in SERVICES} == {
        "CreateVersion": {"builder"},
        "ReportBuild": {"builder"},
        "ReportStatus": {"runtime-manager"},
        "ReportFinalized": {"builder", "runtime-manager"},
        "GetWorkload": {"runtime-manager"},
        "Watch": {"gateway", "builder", "runtime-manager", "invoker"},
    }


async def test_a_user_finds_nothing_by_identity() -> None:
    async with running_registry() as registry:
        function = await registry.create()
        with pytest.raises(PermissionDenied):
            await registry.user().GetFunction(pb.GetFunctionRequest(uid=function.uid))
        found = await registry.service("invoker").GetFunction(pb.GetFunctionRequest(uid=function.uid))
        assert found.function == function
        assert found.read_revision == 1
