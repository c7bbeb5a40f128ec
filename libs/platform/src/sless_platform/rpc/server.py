"""A gRPC server on one address whose every method says who may call it."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection as grpc_reflection

from sless_platform.errors import FailedPrecondition, InvalidArgument
from sless_platform.health import HealthRegistry
from sless_platform.identity import IdentityVerifier, Principal
from sless_platform.rpc.access import Access
from sless_platform.rpc.guard import Guard, Handler
from sless_platform.rpc.health import SERVICE_NAME as HEALTH
from sless_platform.rpc.health import RegistryHealthServicer
from sless_platform.rpc.options import DEFAULT_IDENTITY_METADATA, MAX_MESSAGE_BYTES, server_options
from sless_platform.rpc.status import DEFAULT_DOMAIN

MAX_UNIX_PATH_BYTES = 107  # sun_path of unix(7), less its closing zero
_PREDECESSOR_LIMIT = timedelta(seconds=10)
_UNIX = "unix:"


@dataclass
class _Recorder:
    """Stands in for a server while generated code registers a servicer, so that the handlers can be wrapped first."""

    handlers: dict[str, Handler] = field(default_factory=dict)

    def add_generic_rpc_handlers(self, _handlers: Iterable[object]) -> None:
        """The same handlers as below, in the form that older servers took."""

    def add_registered_method_handlers(self, _service: str, handlers: Mapping[str, Handler]) -> None:
        self.handlers.update(handlers)


@dataclass(frozen=True)
class _Service:
    name: str
    handlers: Mapping[str, Handler]
    access: Mapping[str, Access] | None


class RpcServer:
    """Listens on `unix:/path` or `host:port` (port 0: a free one, see `port`).

    Identity comes from the metadata key `identity_metadata`, verified by `verifier`, else from `authorization: Bearer …` through
    `bearer`. Health is served to everyone from `health`; nothing is serving until the service says so.
    """

    def __init__(
        self,
        listen: str,
        *,
        verifier: IdentityVerifier,
        bearer: Callable[[str], Awaitable[Principal]] | None = None,
        reflection: bool = False,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        identity_metadata: str = DEFAULT_IDENTITY_METADATA,
        error_domain: str = DEFAULT_DOMAIN,
    ) -> None:
        self.health = HealthRegistry()
        self.port = 0
        """The TCP port that is listened on, once started; 0 for a unix socket."""
        self._listen = listen
        self._reflection = reflection
        self._max_message_bytes = max_message_bytes
        self._guard = Guard(verifier, bearer, identity_metadata, error_domain)
        self._services: list[_Service] = []
        self._server: grpc.aio.Server | None = None
        self._bound: os.stat_result | None = None

    def add(
        self,
        servicer: Any,
        add_fn: Callable[[Any, Any], None],
        service_name: str,
        access: Mapping[str, Access] | None = None,
    ) -> None:
        """Serve a servicer: `add(Servicer(), add_XServicer_to_server, "package.XService", Servicer.ACCESS)`.

        `access` has an entry for every method of the service; left out, it is the servicer's ACCESS.
        """
        rules = servicer.ACCESS if access is None else access
        self._services.append(_Service(service_name, _recorded(servicer, add_fn), rules))

    async def start(self) -> None:
        """Bind and serve. A unix path whose server is gone is taken over; one whose server is stopping is waited for (10 s).

        Raises InvalidArgument for a method without a rule and for an address that cannot be, FailedPrecondition for one in use.
        """
        for service in self._services:
            _check_rules(service)
        server = grpc.aio.server(options=server_options(self._max_message_bytes))
        health = _recorded(RegistryHealthServicer(self.health), add_HealthServicer_to_server)
        for service in (*self._services, _Service(HEALTH, health, None)):
            self._register(server, service)
        if self._reflection:
            names = [service.name for service in self._services]
            grpc_reflection.enable_server_reflection([*names, HEALTH, grpc_reflection.SERVICE_NAME], server)
        await self._bind(server)
        await server.start()
        self._server = server

    async def stop(self, grace: timedelta) -> None:
        """Take no new calls, let running ones end within `grace`, cancel the rest, give the address up. May be called twice."""
        server, self._server = self._server, None
        if server is None:
            return
        await server.stop(grace.total_seconds())
        self._unlink_own()

    def _register(self, server: grpc.aio.Server, service: _Service) -> None:
        rules = service.access
        handlers = {
            name: self._guard.wrap(handler, f"/{service.name}/{name}", None if rules is None else rules[name])
            for name, handler in service.handlers.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.name, handlers),))

    async def _bind(self, server: grpc.aio.Server) -> None:
        path = unix_path(self._listen)
        if path is not None:
            await _vacate(path)
        try:
            port = server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise FailedPrecondition(f"cannot listen on {self._listen}: {_cause(path)}") from error
        if path is None:
            self.port = port
            return
        path.chmod(0o600)
        self._bound = path.stat()

    def _unlink_own(self) -> None:
        """gRPC unlinks the path as a rule; a successor's socket under the same path is not ours to take."""
        path, bound = unix_path(self._listen), self._bound
        if path is None or bound is None:
            return
        with suppress(FileNotFoundError):
            now = path.stat()
            if (now.st_dev, now.st_ino) == (bound.st_dev, bound.st_ino):
                path.unlink()


def unix_path(address: str) -> Path | None:
    """The path of `unix:/path`; None for a TCP address. Raises InvalidArgument for a path that is too long for a socket."""
    if not address.startswith(_UNIX):
        return None
    path = address.removeprefix(_UNIX)
    if len(os.fsencode(path)) > MAX_UNIX_PATH_BYTES:
        raise InvalidArgument(
            f"socket path {path!r} is longer than {MAX_UNIX_PATH_BYTES} bytes: choose a shorter folder"
        )
    return Path(path)


def _recorded(servicer: Any, add_fn: Callable[[Any, Any], None]) -> dict[str, Handler]:
    recorder = _Recorder()
    add_fn(servicer, recorder)
    return recorder.handlers


def _check_rules(service: _Service) -> None:
    rules = set(service.access or ())
    methods = set(service.handlers)
    if missing := sorted(methods - rules):
        raise InvalidArgument(f"{service.name} does not say who may call {', '.join(missing)}: add it to ACCESS")
    if unknown := sorted(rules - methods):
        raise InvalidArgument(f"{service.name} has no method {', '.join(unknown)}: take it out of ACCESS")
    if not methods:
        raise InvalidArgument(f"{service.name} has no methods: was it given its own add function?")


async def _vacate(path: Path) -> None:
    """Wait until nobody listens on the path any more, then take a socket away that was left behind."""
    try:
        async with asyncio.timeout(_PREDECESSOR_LIMIT.total_seconds()):
            while await _answers(path):  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # another process's end gives no event
    except TimeoutError:
        raise FailedPrecondition(f"cannot listen on {path}: another process listens there") from None
    _unlink_socket(path)


def _unlink_socket(path: Path) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FailedPrecondition(f"cannot listen on {path}: a file that is no socket is there")
        path.unlink()


async def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(probe, str(path))
        except BlockingIOError:
            return True  # its backlog is full: it lives
        except OSError:
            return False
        return True


def _cause(path: Path | None) -> str:
    if path is not None and not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return "another process uses it, or it is not an address of this machine"
