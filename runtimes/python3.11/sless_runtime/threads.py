"""The engine of sync handlers: threads that wait in one epoll, so that no call is handed from one to another.

Every idle thread waits in `epoll.poll`; the kernel wakes one. It reads from the connection (one-shot events keep
others away from it), and when a call is complete it lets the connection go and runs the handler itself. A thread
is always left waiting, also when as many handlers run as may.
"""

from __future__ import annotations

import select
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

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class ThreadEngine:
    """Accepts, reads and writes in its threads, and runs `handler` in them, each call in a copy of `context`."""

    def __init__(self, instance: Instance, listener: socket, handler: Handler, context: Context) -> None:
        self._instance = instance
        self._listener = listener
        self._handler = handler
        self._context = context
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._running: set[Call] = set()
        self._threads = 0
        self._hiring = allocate_lock()
        self._gate: LockType | None = allocate_lock()
        self._gate.acquire()

    def start(self) -> None:
        """Serve callers from now on. Handlers wait for `open`."""
        self._epoll.register(self._listener.fileno(), _IN | select.EPOLLONESHOT)
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
            for fd, events in self._epoll.poll(maxevents=1):
                if fd == self._listener.fileno():
                    self._accept()
                elif (connection := self._connections.get(fd)) is not None:
                    try:
                        self._serve(connection, events)
                    except Exception as error:  # noqa: BLE001 - a fault in here costs one connection
                        connection.fault(error)

    def _accept(self) -> None:
        accepted = accept(self._listener)
        self._epoll.modify(self._listener.fileno(), _IN | select.EPOLLONESHOT)
        if accepted is not None:
            connection = Connection(self._instance, accepted)
            self._instance.connections.add(connection)
            self._connections[connection.fd] = connection
            self._epoll.register(connection.fd, _IN | select.EPOLLONESHOT)

    def _serve(self, connection: Connection, events: int) -> None:
        call = None
        if events & _OUT:
            connection.flush()
        with connection.lock:
            if connection.reading:
                return  # Another thread reads, and arms the connection again when it has done so.
            connection.reading = True
        if events & ~_OUT:
            connection.receive()
        call = connection.next_call()
        with connection.lock:
            connection.reading = False
            if not connection.closed:
                self._arm(connection)
        if call is not None:
            self._run(call)

    def _arm(self, connection: Connection) -> None:
        """Wait for what comes next; frames already read are "writable at once", so that another thread wakes."""
        wanted = _IN | select.EPOLLONESHOT
        if connection.backlog or connection.has_frames:
            wanted |= _OUT
        self._epoll.modify(connection.fd, wanted)

    def _run(self, call: Call) -> None:
        self._running.add(call)
        if self._threads <= len(self._running):
            self._hire()
        if (gate := self._gate) is not None:
            with gate:
                pass
        try:
            self._context.copy().run(drive, call, self._handler)
        finally:
            self._running.discard(call)
