"""The writing half of a connection's socket. Nothing waits here: what the socket does not take is kept.

`lock` guards it, together with the state of the connection's calls; every method is called with it held.
"""

from __future__ import annotations

import time
from _thread import allocate_lock

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable

HIGH_BYTES = 1024 * 1024
"""A backlog above this makes streams wait and lines be dropped."""
_CORK_SEC = 0.001
_PIECES = 64


class Outlet:
    """`want_write` is called when there is a backlog: `flush` is to be called when the socket takes more."""

    __slots__ = ("_corked_at", "_pieces", "_socket", "_want_write", "backlog", "lock", "shut_when_empty")

    def __init__(self, socket: socket, want_write: Callable[[], object]) -> None:
        self.lock = allocate_lock()
        self.backlog = 0
        self.shut_when_empty = False
        """Nothing is written any more; the socket's writing side is closed once the backlog is gone."""
        self._socket = socket
        self._want_write = want_write
        self._pieces: list[memoryview] = []
        self._corked_at = 0.0

    @property
    def is_high(self) -> bool:
        """The reader is too slow."""
        return self.backlog > HIGH_BYTES

    def write(self, data: bytes) -> None:
        """Send, or keep what the socket does not take."""
        if not data or self.shut_when_empty:
            return
        if self._corked_at:
            self._keep(memoryview(data))
            if time.monotonic() - self._corked_at > _CORK_SEC:
                self.uncork()
            return
        sent = 0 if self._pieces else self._try([data])
        if sent < len(data):
            self._keep(memoryview(data)[sent:])
            self._want_write()

    def cork(self) -> None:
        """Several frames follow each other at once: keep them for one write, for a millisecond at most."""
        if not self._corked_at:
            self._corked_at = time.monotonic()

    def uncork(self) -> None:
        """Write what was kept since `cork`."""
        if self._corked_at:
            self._corked_at = 0.0
            if self._pieces:
                self.flush()
            if self._pieces:
                self._want_write()

    def flush(self) -> None:
        """Write what is kept, as far as the socket takes it."""
        while self._pieces:
            size = sum(map(len, self._pieces[:_PIECES]))
            sent = self._try(self._pieces[:_PIECES])
            self.backlog -= sent
            self._forget(sent)
            if sent < size:
                return
        if self.shut_when_empty:
            self.shut(1)

    def shut(self, how: int) -> None:
        """Shut the writing side (1) or both (2)."""
        try:
            self._socket.shutdown(how)
        except OSError:
            return  # The caller is gone; reading finds that out and closes.

    def say_last(self, data: bytes) -> None:
        """Write `data`, nothing after it, and then shut the writing side."""
        self.uncork()
        self.write(data)
        self.shut_when_empty = True
        if not self._pieces:
            self.shut(1)

    def _keep(self, data: memoryview) -> None:
        self._pieces.append(data)
        self.backlog += len(data)

    def _forget(self, sent: int) -> None:
        count = 0
        while count < len(self._pieces) and sent >= len(self._pieces[count]):
            sent -= len(self._pieces[count])
            count += 1
        del self._pieces[:count]
        if sent:
            self._pieces[0] = self._pieces[0][sent:]

    def _try(self, pieces: list[bytes] | list[memoryview]) -> int:
        try:
            return self._socket.send(pieces[0]) if len(pieces) == 1 else self._socket.sendmsg(pieces)
        except BlockingIOError:
            return 0
        except OSError:
            return sum(map(len, pieces))  # The caller is gone; reading finds that out and closes.
