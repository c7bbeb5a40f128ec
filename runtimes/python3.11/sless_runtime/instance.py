"""The instance as a whole: who is connected, what runs, and how it ends."""

from __future__ import annotations

import time
from _thread import allocate_lock

from . import PROTOCOL, RUNTIME, TYPE_CHECKING, logs
from .overseer import Overseer

if TYPE_CHECKING:
    from typing import Protocol

    from .calls import Call
    from .connection import Connection
    from .settings import Settings

    class Engine(Protocol):
        """Runs handlers and moves bytes: `threads.ThreadEngine` or `aio.LoopEngine`."""

        def want_write(self, connection: Connection) -> None:
            """There is a backlog: call `connection.flush` when the socket takes more. Under its lock."""

        def unstick(self, now: float) -> float:
            """Calls that wait behind a handler that turned out to be long go elsewhere; gives when to look again."""

        def forget(self, connection: Connection) -> None:
            """The socket is about to be closed. Under its lock."""


_UNATTRIBUTED_BYTES = 256 * 1024
_TOLD_SEC = 0.5
"""How long an instance that could not load stays after it has told a caller so."""
_NEVER = float("inf")


class Instance:
    """State that all connections share. `engine` is set before the first connection is accepted."""

    engine: Engine

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.connections: set[Connection] = set()
        self.busy: set[Call] = set()
        """Calls that count against max_concurrency: not answered, or answered while their handler runs on."""
        self.turned_away: tuple[str, str, str] | None = None
        """GOAWAY for callers that connect: reason, message, detail."""
        self.overseer = Overseer(self)
        self.log = logs.LineLog(0, _UNATTRIBUTED_BYTES, self.lines_wait)
        """Lines that belong to no call, for callers of role runtime-manager."""
        self._admission = allocate_lock()
        self._draining = False
        self._ends_at = _NEVER

    def hello(self) -> dict[str, object]:
        """How the instance introduces itself."""
        settings = self.settings
        return {
            "protocol": PROTOCOL,
            "runtime": RUNTIME,
            "function": settings.function,
            "version": settings.version,
            "instance": settings.instance,
            "max_concurrency": settings.max_concurrency,
        }

    # Calls.

    def admit(self, call: Call) -> bool:
        """Whether there is room; the call then counts until `release`."""
        with self._admission:
            if self._draining or len(self.busy) >= self.settings.max_concurrency:
                return False
            self.busy.add(call)
            return True

    def release(self, call: Call) -> None:
        """The call's handler is done."""
        self.busy.discard(call)
        if self._draining:
            self.overseer.notice(0.0)

    def abandoned(self, call: Call) -> None:
        """The call is over, its handler may not be."""
        self.overseer.notice(call.abandoned_at)

    # Lines.

    def lines_wait(self, full: bool) -> None:
        """Lines were printed; `full`: enough to be sent at once. Called by printing code, takes no lock."""
        self.overseer.notice(0.0 if full else time.monotonic() + logs.FLUSH_SEC)

    def send_lines(self) -> bool:
        """Unattributed lines go to every runtime-manager; they wait, bounded, while there is none (False)."""
        readers = [connection for connection in list(self.connections) if connection.role == "runtime-manager"]
        if not readers:
            return False
        lines = self.log.take()
        self.log.refill(_UNATTRIBUTED_BYTES)
        for connection in readers:
            connection.send_droppable(lines)
        return True

    # Connections.

    def greeted(self, connection: Connection) -> None:
        """A caller has said HELLO and was answered."""
        if connection.role == "runtime-manager":
            self.send_lines()
        if self._draining:
            connection.drain()

    def left(self, connection: Connection) -> None:
        """A connection is closed."""
        self.connections.discard(connection)
        if self._draining:
            self.overseer.notice(0.0)

    # The end.

    def drain(self, reason: str) -> None:
        """Take no more calls, finish what runs, end within the grace. Repeating it changes nothing."""
        with self._admission:
            if self._draining:
                return
            self._draining = True
        self.turned_away = ("DRAINING", f"the instance takes no more callers: {reason}", "")
        self._ends_at = time.monotonic() + self.settings.grace_sec
        for connection in list(self.connections):
            connection.drain()
        self.overseer.notice(0.0)

    def turn_away(self, message: str, detail: str) -> None:
        """The code could not be loaded: tell every caller that comes, then end."""
        self.turned_away = ("LOAD_FAILED", message, detail)
        self._ends_at = time.monotonic() + self.settings.grace_sec
        self.overseer.notice(self._ends_at)

    def told(self) -> None:
        """A caller was turned away. Where nothing was loaded it is the last one, unless others follow soon."""
        if self._draining:
            return
        self._ends_at = time.monotonic() + _TOLD_SEC
        self.overseer.notice(self._ends_at)

    def finished(self, now: float) -> bool:
        """Whether the process may end."""
        if now >= self._ends_at:
            return True
        return self._draining and not self.busy and not self.connections

    @property
    def ends_at(self) -> float:
        """When `finished` becomes true by itself."""
        return self._ends_at
