"""The inherited listening socket and what it accepts, by `_socket`: `socket` brings `enum` and `selectors`."""

from __future__ import annotations

import os
from _socket import socket

_AF_UNIX, _IPPROTO_TCP, _TCP_NODELAY = 1, 6, 1


def listener(fd: int) -> socket:
    """The launcher's listening socket; programs that the handler starts don't inherit it."""
    os.set_inheritable(fd, False)
    found = socket(fileno=fd)
    found.setblocking(False)
    return found


def accept(listening: socket) -> socket | None:
    """The next caller's socket, not blocking; None when there is none.

    That a caller has gone again, or that the handler has opened too many files, concerns that caller alone.
    """
    try:
        fd, _ = listening._accept()  # type: ignore[attr-defined]
    except OSError:
        return None
    accepted = socket(fileno=fd)
    accepted.setblocking(False)
    if accepted.family != _AF_UNIX:
        accepted.setsockopt(_IPPROTO_TCP, _TCP_NODELAY, 1)
    return accepted
