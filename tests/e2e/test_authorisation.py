"""Every RPC of every service, as its descriptors tell them: without identity, with a forged one, with another user's."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from sless_contracts.wire import IDENTITY_METADATA, SERVICES
from sless_platform.errors import Kind, PlatformError
from sless_platform.rpc.client import RpcChannel

from tests.support.embedded import Platform, User

TAKES_NO_USERS = {"runtime-manager"}
"""Services that no user has any business with: they do not even look at bearer tokens."""

SERVED_TO_EVERY_USER = {"WhoAmI"}
"""RPCs that are about nobody but the caller."""


def rpcs() -> Iterator[tuple[str, MethodDescriptor]]:
    """Every method of every service that has a gRPC API."""
    for service in SERVICES:
        if service == "gateway":
            continue
        name = service.replace("-", "_")
        module = import_module(f"sless.{name}.v1.{name}_pb2")
        for descriptor in module.DESCRIPTOR.services_by_name.values():
            yield from ((service, method) for method in descriptor.methods)


RPCS = {f"{service}.{method.name}": (service, method) for service, method in rpcs()}


def request_for(kind: Descriptor, namespace: str) -> Message:
    """A request that names a namespace and a function wherever it can."""
    message: Message = GetMessageClass(kind)()
    chosen: set[str] = set()
    for field in kind.fields:
        oneof = field.containing_oneof
        if oneof is not None and oneof.name in chosen:
            continue
        if oneof is not None:
            chosen.add(oneof.name)
        inner = field.message_type if field.type == FieldDescriptor.TYPE_MESSAGE and not field.is_repeated else None
        if inner is not None and not inner.full_name.startswith("google."):
            getattr(message, field.name).CopyFrom(request_for(inner, namespace))
        elif field.name in {"namespace", "confirm"}:
            setattr(message, field.name, namespace)
        elif field.name == "name":
            setattr(message, field.name, "hello")
    return message


async def call(
    platform: Platform, service: str, method: MethodDescriptor, metadata: list[tuple[str, str]], namespace: str
) -> Kind | None:
    """How a call of a method with this metadata ends; None: it is served."""
    assert method.containing_service is not None
    assert method.input_type is not None
    request = request_for(method.input_type, namespace)
    path = f"/{method.containing_service.full_name}/{method.name}"
    answer_class = GetMessageClass(method.output_type)

    async def requests() -> AsyncIterator[Message]:
        yield request

    async with RpcChannel(f"unix:{platform.layout.service_socket(service)}") as channel:
        streaming: Any = channel.channel.stream_stream(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer_class.FromString,
        )
        running = streaming(requests(), metadata=metadata, timeout=20)
        try:
            async for _ in running:
                break
        except PlatformError as error:
            return error.kind
        finally:
            running.cancel()
    return None


def forged_bearer(genuine: str) -> str:
    """A token like the issuer's, signed by somebody else."""
    head, claims = jwt.get_unverified_header(genuine), jwt.decode(genuine, options={"verify_signature": False})
    return jwt.encode(claims, Ed25519PrivateKey.generate(), algorithm="EdDSA", headers={"kid": head.get("kid")})


def unsigned_bearer(genuine: str) -> str:
    """The same claims, unsigned."""
    kid = jwt.get_unverified_header(genuine).get("kid")
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": kid}).encode()).decode().rstrip("=")
    return f"{head}.{genuine.split('.')[1]}."


def forged_identity(service: str, speaker: str) -> str:
    """An internal identity in the name of a service, signed by somebody else."""
    now = int(time.time())
    claims = {"iss": speaker, "sub": speaker, "aud": service, "namespace": "", "roles": [], "iat": now, "exp": now + 60}
    return jwt.encode(claims, Ed25519PrivateKey.generate(), algorithm="EdDSA", headers={"kid": speaker})


@pytest.fixture(scope="module")
def victim(platform: Platform) -> User:
    """Whose resources are asked for."""
    return platform.user()


@pytest.mark.parametrize("rpc", RPCS)
async def test_no_rpc_is_served_without_identity(platform: Platform, victim: User, rpc: str) -> None:
    service, method = RPCS[rpc]

    assert await call(platform, service, method, [], victim.namespace) is Kind.UNAUTHENTICATED


@pytest.mark.fault(21)
@pytest.mark.parametrize("rpc", RPCS)
async def test_no_rpc_is_served_to_a_forged_identity(platform: Platform, victim: User, rpc: str) -> None:
    service, method = RPCS[rpc]
    forgeries: list[list[tuple[str, str]]] = [
        [("authorization", f"Bearer {forged_bearer(victim.token)}")],
        [("authorization", f"Bearer {unsigned_bearer(victim.token)}")],
        *([(IDENTITY_METADATA, forged_identity(service, speaker))] for speaker in ("gateway", "auth", "stranger")),
        [(IDENTITY_METADATA, "x"), ("authorization", f"Bearer {victim.token}")],
    ]

    for metadata in forgeries:
        assert await call(platform, service, method, metadata, victim.namespace) is Kind.UNAUTHENTICATED


@pytest.mark.parametrize("rpc", RPCS)
async def test_no_rpc_is_served_to_another_user(platform: Platform, victim: User, user: User, rpc: str) -> None:
    service, method = RPCS[rpc]

    code = await call(platform, service, method, [("authorization", f"Bearer {user.token}")], victim.namespace)

    if method.name in SERVED_TO_EVERY_USER:
        assert code is None
    elif service in TAKES_NO_USERS:
        assert code is Kind.UNAUTHENTICATED
    else:
        assert code is Kind.PERMISSION_DENIED


READS = ("auth.WhoAmI", "registry.ListFunctions", "builder.GetBuildLog", "invoker.Invoke")
"""An RPC of each service that users call."""


async def used(platform: Platform, victim: User, key: str) -> None:
    """Have every service verify a key, so that each that remembers it does."""
    for rpc in READS:
        service, method = RPCS[rpc]
        code = await call(platform, service, method, [("authorization", f"Bearer {key}")], victim.namespace)
        assert code is not Kind.UNAUTHENTICATED


@pytest.fixture(scope="module")
def revoked(platform: Platform, victim: User) -> str:
    """An API key of the victim's own namespace that every service has verified, and that was revoked five seconds ago."""
    key = victim.api_key()
    assert platform.request("GET", "/v1/whoami", key["secret"]).status_code == 200
    asyncio.run(used(platform, victim, key["secret"]))
    assert victim.request("DELETE", f"/api-keys/{key['id']}").status_code == 204
    time.sleep(5)  # the time itself is what is promised
    return str(key["secret"])


@pytest.mark.parametrize("rpc", RPCS)
async def test_no_rpc_is_served_to_a_revoked_api_key(platform: Platform, victim: User, revoked: str, rpc: str) -> None:
    service, method = RPCS[rpc]

    metadata = [("authorization", f"Bearer {revoked}")]

    assert await call(platform, service, method, metadata, victim.namespace) is Kind.UNAUTHENTICATED


@pytest.mark.parametrize("rpc", RPCS)
async def test_no_rpc_is_served_to_an_api_key_of_another_namespace(platform: Platform, victim: User, rpc: str) -> None:
    service, method = RPCS[rpc]
    stranger = platform.user("stranger")
    metadata = [("authorization", f"Bearer {stranger.api_key()['secret']}")]

    code = await call(platform, service, method, metadata, victim.namespace)

    if method.name in SERVED_TO_EVERY_USER:
        assert code is None
    else:
        assert code is (Kind.UNAUTHENTICATED if service in TAKES_NO_USERS else Kind.PERMISSION_DENIED)


@pytest.mark.parametrize("rpc", ["auth.CreateApiKey", "auth.DeleteApiKey", "auth.DeleteNamespaceApiKeys"])
async def test_no_api_key_governs_api_keys(platform: Platform, victim: User, rpc: str) -> None:
    service, method = RPCS[rpc]
    metadata = [("authorization", f"Bearer {victim.api_key()['secret']}")]

    assert await call(platform, service, method, metadata, victim.namespace) is Kind.PERMISSION_DENIED
