"""A small service with all four kinds of RPC, whose messages are plain bytes, and a server and channel to run it."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
from sless_platform.identity import IdentitySigner, IdentityVerifier, Principal
from sless_platform.rpc.access import Access
from sless_platform.rpc.client import RpcChannel, ServiceIdentity
from sless_platform.rpc.server import RpcServer

from tests.support.identity import IdentityKeys, new_identity_keys

SERVICE = "test.v1.EchoService"
AUDIENCE = "echo"
METHODS = ("Unary", "Answers", "Requests", "Duplex")

KEYS = new_identity_keys("auth", "caller", "stranger")
"""One set for all tests: `auth` speaks for users."""

Behaviour = Callable[..., Any]


@dataclass
class Echo:
    """The servicer: each test hands in what its methods do."""

    Unary: Behaviour | None = None
    Answers: Behaviour | None = None
    Requests: Behaviour | None = None
    Duplex: Behaviour | None = None


def add_echo(servicer: Echo, server: Any) -> None:
    """As generated code does it."""
    handlers: dict[str, Any] = {
        "Unary": grpc.unary_unary_rpc_method_handler(servicer.Unary or _unused),
        "Answers": grpc.unary_stream_rpc_method_handler(servicer.Answers or _unused),
        "Requests": grpc.stream_unary_rpc_method_handler(servicer.Requests or _unused),
        "Duplex": grpc.stream_stream_rpc_method_handler(servicer.Duplex or _unused),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_registered_method_handlers(SERVICE, handlers)


async def _unused(_request: Any, _context: Any) -> bytes:
    raise AssertionError("this method is not part of the test")


class EchoStub:
    """As generated code does it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.Unary: Any = channel.unary_unary(f"/{SERVICE}/Unary")
        self.Answers: Any = channel.unary_stream(f"/{SERVICE}/Answers")
        self.Requests: Any = channel.stream_unary(f"/{SERVICE}/Requests")
        self.Duplex: Any = channel.stream_stream(f"/{SERVICE}/Duplex")


def verifier(keys: IdentityKeys = KEYS) -> IdentityVerifier:
    """What the server trusts: `auth` for users, `caller` and `stranger` for themselves."""
    return IdentityVerifier(keys.public, AUDIENCE, user_issuer="auth")


def service_identity(service: str = "caller") -> ServiceIdentity:
    """A service that speaks for itself to the echo service."""
    return ServiceIdentity(IdentitySigner(KEYS.private[service], service), service, AUDIENCE)


@dataclass
class Running:
    """A started server and where it is."""

    server: RpcServer
    target: str

    def channel(self, **options: Any) -> RpcChannel:
        """A channel that speaks as the service `caller` unless told otherwise."""
        options.setdefault("identity", service_identity())
        return RpcChannel(self.target, **options)


ANYONE = dict.fromkeys(METHODS, Access.anyone())


@asynccontextmanager
async def running_echo(
    servicer: Echo,
    folder: Path,
    *,
    access: Mapping[str, Access] = ANYONE,
    bearer: Callable[[str], Awaitable[Principal]] | None = None,
    **options: Any,
) -> AsyncIterator[Running]:
    """The servicer on a unix socket in `folder`."""
    address = f"unix:{folder}/echo.sock"
    server = RpcServer(address, verifier=verifier(), bearer=bearer, **options)
    server.add(servicer, add_echo, SERVICE, access)
    await server.start()
    try:
        yield Running(server, address)
    finally:
        await server.stop(timedelta())


async def outcome(stub: EchoStub, method: str, **options: Any) -> Any:
    """Call a method of whatever kind with b"x" and give its (last) answer."""
    call = getattr(stub, method)
    if method == "Unary":
        return await call(b"x", **options)
    if method == "Requests":
        return await call(_one_request(), **options)
    stream = call(b"x", **options) if method == "Answers" else call(_one_request(), **options)
    return (await drained(stream))[-1]


async def drained(stream: AsyncIterable[Any], into: list[Any] | None = None) -> list[Any]:
    """All answers of a stream; `into` keeps what came before an error."""
    answers: list[Any] = [] if into is None else into
    async for answer in stream:
        answers.append(answer)
    return answers


async def _one_request() -> AsyncIterator[bytes]:
    yield b"x"


def everywhere(act: Callable[[], Any]) -> Echo:
    """A servicer whose every method answers with what `act()` returns, or raises what it raises."""

    async def single(_request: Any, _context: Any) -> Any:
        return act()

    async def stream(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield act()

    return Echo(Unary=single, Requests=single, Answers=stream, Duplex=stream)
