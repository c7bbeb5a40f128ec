"""The gateway's sockets: the public one, inherited or bound, and one for this machine."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sless_platform.errors import FailedPrecondition
from sless_platform.rpc.server import unix_path

_BACKLOG: Final = 1_024


@dataclass
class Listeners:
    """Sockets that hand their connections to one HTTP server."""

    protocol_factory: Any
    _servers: list[asyncio.Server] = field(default_factory=list)
    _paths: list[tuple[Path, os.stat_result]] = field(default_factory=list)

    async def add(self, listener: socket.socket) -> None:
        """Take connections from a socket that is bound."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        make = loop.create_unix_server if listener.family == socket.AF_UNIX else loop.create_server
        self._servers.append(await make(self.protocol_factory, sock=listener, backlog=_BACKLOG))
        if listener.family == socket.AF_UNIX:
            self._paths.append(_bound_path(listener))

    async def close(self) -> None:
        """Take no more connections; those that are open stay. A path is given up only while it is still ours."""
        for path, bound in self._paths:
            with suppress(FileNotFoundError):
                now = path.stat()
                if (now.st_dev, now.st_ino) == (bound.st_dev, bound.st_ino):
                    path.unlink()
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._paths.clear()


def _bound_path(listener: socket.socket) -> tuple[Path, os.stat_result]:
    path = Path(listener.getsockname())
    return path, path.stat()


def inherited(descriptor: int) -> socket.socket:
    """The parent's listening socket. Raises FailedPrecondition when it is none."""
    with _closed_on_error() as opened:
        try:
            listener = opened(socket.socket(fileno=descriptor))
            listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise FailedPrecondition(f"SLESS_PUBLIC_FD={descriptor} is not a socket: {error.strerror}") from error
        if not listening:
            raise FailedPrecondition(f"SLESS_PUBLIC_FD={descriptor} is a socket that does not listen")
        return listener


def public(host: str, port: int) -> socket.socket:
    """A TCP socket of our own. Raises FailedPrecondition when the address is in use, or not ours."""
    with _closed_on_error() as opened:
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = opened(socket.socket(family, kind))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError as error:
            raise FailedPrecondition(
                f"cannot listen on {host} port {port}: {error.strerror}; choose another"
            ) from error
        return listener


def local(address: str) -> socket.socket:
    """A unix socket at `unix:/path`; one that a predecessor left behind is replaced."""
    path = unix_path(address)
    assert path is not None, "the settings see to it"  # noqa: S101
    with _closed_on_error() as opened:
        listener = opened(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            with suppress(FileNotFoundError):
                path.unlink()
            listener.bind(str(path))
            path.chmod(0o600)
        except OSError as error:
            raise FailedPrecondition(f"cannot listen on {path}: {error.strerror}") from error
        return listener


@contextmanager
def _closed_on_error() -> Iterator[Callable[[socket.socket], socket.socket]]:
    """A block whose socket, once handed in, is closed when the block fails."""
    with ExitStack() as stack:
        yield stack.enter_context
        stack.pop_all()


def url_of(listener: socket.socket) -> str:
    """How a client on this machine reaches a TCP listener."""
    host, port = listener.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - read, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
