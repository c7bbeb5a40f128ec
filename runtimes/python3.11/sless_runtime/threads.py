"""The engine of sync handlers: threads that wait in one epoll, so that no call is handed from one to another.

Every idle thread waits in `epoll.poll`; the kernel wakes one. It reads from the connection (one-shot events keep
others away from it) and runs the handler itself. A thread is always left waiting, also when as many handlers run
as may.

Where several calls came at once, the thread that has read them would have to wake another for each; for short
handlers that costs more than the handlers do. So it runs them one after the other, their answers in one write, as
long as handlers have been short lately; when one is not, the overseer lets the others go within two milliseconds.
"""

from __future__ import annotations

import os
import select
import time
from _thread import LockType, allocate_lock, start_new_thread

from . import TYPE_CHECKING
from .connection import Connection
from .driving import drive
from .sockets import accept

if TYPE_CHECKING:
    from _socket import socket
    from contextvars import Context

    from .calls import Call
    from .instance import Instance
    from .loader import Handler

_IN, _OUT, _ONCE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLONESHOT
_SHORT_SEC = 0.002
_LATELY_SEC = 1.0
_NEVER = float("inf")


class ThreadEngine:
    """Accepts, reads and writes in its threads, and runs `handler` in them, each call in a copy of `context`."""

    def __init__(self, instance: Instance, listener: socket, handler: Handler, context: Context) -> None:
        self._instance = instance
        self._listener = listener
        self._handler = handler
        self._context = context
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        self._connections: dict[int, Connection] = {}
        self._waiting: list[Connection] = []
        """Connections with frames that were read and not looked at; nobody reads from them meanwhile."""
        self._moved_at = 0.0
        """Monotonic time at which the last of them was looked at."""
        self._long_until = 0.0
        """Monotonic time until which handlers count as long."""
        self._running: set[Call] = set()
        self._threads = 0
        self._hiring = allocate_lock()
        self._gate: LockType | None = allocate_lock()
        self._gate.acquire()

    def start(self) -> None:
        """Serve callers from now on. Handlers wait for `open`."""
        self._epoll.register(self._bell, _IN | _ONCE)
        self._epoll.register(self._listener.fileno(), _IN | _ONCE)
        self._hire()

    def open(self) -> None:
        """Let handlers run."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.release()

    def want_write(self, connection: Connection) -> None:
        """See instance.Engine."""
        if not connection.reading:
            self._arm(connection)

    def forget(self, connection: Connection) -> None:
        """See instance.Engine."""
        self._connections.pop(connection.fd, None)
        self._epoll.unregister(connection.fd)

    def unstick(self, now: float) -> float:
        """See instance.Engine."""
        if not self._waiting:
            return _NEVER
        if now < self._moved_at + _SHORT_SEC:
            return self._moved_at + _SHORT_SEC
        self._long_until = now + _LATELY_SEC
        for connection in list(self._waiting):
            connection.uncork()
            os.eventfd_write(self._bell, 1)
        return _NEVER

    def close_in_child(self) -> None:
        """In a forked child: the sockets are the parent's."""
        for connection in self._connections.values():
            connection.socket.close()
        self._listener.close()
        self._epoll.close()

    def _hire(self) -> None:
        """One more thread, if all are running handlers."""
        with self._hiring:
            if self._threads <= len(self._running):
                self._threads += 1
                start_new_thread(self._work, ())

    def _work(self) -> None:
        while True:
            connection = self._waiting_one()
            if connection is not None:
                self._guarded(connection, 0)
                continue
            for fd, events in self._epoll.poll(maxevents=1):
                if fd == self._bell:
                    self._hear_bell()
                elif fd == self._listener.fileno():
                    self._accept()
                elif (connection := self._connections.get(fd)) is not None:
                    self._guarded(connection, events)

    def _waiting_one(self) -> Connection | None:
        try:
            return self._waiting.pop(0)
        except IndexError:
            return None

    def _hear_bell(self) -> None:
        """Rung once for each connection that waits; what is left of the count wakes the next thread."""
        os.eventfd_read(self._bell)
        self._epoll.modify(self._bell, _IN | _ONCE)

    def _accept(self) -> None:
        accepted = accept(self._listener)
        self._epoll.modify(self._listener.fileno(), _IN | _ONCE)
        if accepted is not None:
            connection = Connection(self._instance, accepted)
            self._instance.connections.add(connection)
            self._connections[connection.fd] = connection
            self._epoll.register(connection.fd, _IN | _ONCE)

    def _guarded(self, connection: Connection, events: int) -> None:
        try:
            call = self._read(connection, events)
            if call is not None:
                self._run(call)
        except Exception as error:  # noqa: BLE001 - a fault in here costs one connection
            connection.fault(error)

    def _read(self, connection: Connection, events: int) -> Call | None:
        """Do what the events ask for; without any, go on with frames that wait. Gives a call to run."""
        if events & _OUT:
            connection.flush()
        if events and not self._claim(connection):
            return None
        call = None
        try:
            if events & ~_OUT:
                connection.receive()
            call = connection.incoming.next_call()
        finally:
            self._let_go(connection)
        return call

    def _claim(self, connection: Connection) -> bool:
        """Become the reading thread. Where there is one, it arms the connection again when it has read."""
        with connection.lock:
            if connection.reading:
                return False
            connection.reading = True
            return True

    def _let_go(self, connection: Connection) -> None:
        if connection.incoming.has_frames:
            self._moved_at = time.monotonic()
            self._wait_turn(connection)
            return
        with connection.lock:
            connection.reading = False
            if not connection.closed:
                connection.outlet.uncork()
                self._arm(connection)

    def _wait_turn(self, connection: Connection) -> None:
        """More frames were read: another thread looks at them now, or this one after its handler."""
        if self._moved_at < self._long_until:
            self._waiting.append(connection)
            os.eventfd_write(self._bell, 1)
        else:
            connection.cork()
            self._waiting.append(connection)
            self._instance.overseer.notice(self._moved_at + _SHORT_SEC)

    def _arm(self, connection: Connection) -> None:
        wanted = _IN | _OUT | _ONCE if connection.outlet.backlog else _IN | _ONCE
        self._epoll.modify(connection.fd, wanted)

    def _run(self, call: Call) -> None:
        self._running.add(call)
        if self._threads <= len(self._running):
            self._hire()
        if (gate := self._gate) is not None:
            with gate:
                pass
        started = time.monotonic()
        try:
            self._context.copy().run(drive, call, self._handler)
        finally:
            self._running.discard(call)
            ended = time.monotonic()
            if ended - started > _SHORT_SEC:
                self._long_until = ended + _LATELY_SEC
