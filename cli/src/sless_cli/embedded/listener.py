"""The public TCP listener: held by the supervisor and inherited by gateways, so that their restarts refuse nobody."""

from __future__ import annotations

import errno
import ipaddress
import socket

from sless_cli.errors import StartFailed

_BACKLOG = 1024


def open_listener(host: str, port: int) -> socket.socket:
    """Listen on this host and port; 0 is a free one. Raises StartFailed."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise StartFailed(f"--host {host} is no address of this machine: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartFailed(_sentence(error, host, port)) from None
    return listener


def endpoint_of(listener: socket.socket, host: str) -> str:
    """The URL at which people on this machine reach the listener."""
    port = listener.getsockname()[1]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{port}"
    if address.is_unspecified:
        return f"http://127.0.0.1:{port}"
    return f"http://[{host}]:{port}" if address.version == 6 else f"http://{host}:{port}"


def _sentence(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken by another program: give another one with --port, or 0 for any free one"
    if error.errno == errno.EACCES:
        return f"port {port} of {host} may not be used by an ordinary user: give one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is no address of this machine: give one of its own, or 0.0.0.0 for all"
    return f"cannot listen on {host} port {port}: {error.strerror}"
