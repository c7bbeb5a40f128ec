"""The instances of one function: kept connections, and the choice of one for the next call."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sless_calls.call import LogTaker
from sless_calls.connection import Connection
from sless_calls.errors import CallError

_FIRST_RETRY_SEC: Final = 0.1
_LAST_RETRY_SEC: Final = 5.0


@dataclass(frozen=True, slots=True)
class InstanceAddress:
    """Where an instance listens, and how many calls it takes at once."""

    instance_id: str
    address: str
    """`unix:/path` or `host:port`."""
    max_concurrency: int


class InstanceSet:
    """Connections to the instances of one function, opened when first wanted and shared by all calls.

    `acquire` gives the least loaded connection with room, or None; `acquire_opening` waits for connections
    that have to be opened first. Nothing is reserved: `Connection.call` follows without an await between.

    `on_room` is called whenever there may be room that was not there before (a call over, a connection
    opened, instances added): what queues above this asks `acquire` again. `on_unreachable(instance, error)`
    is told of each failed attempt to connect; further ones follow with growing pauses, when wanted.
    """

    def __init__(
        self,
        *,
        role: str,
        open_timeout: timedelta,
        on_room: Callable[[], None] | None = None,
        on_unreachable: Callable[[InstanceAddress, CallError], None] | None = None,
        on_log: LogTaker | None = None,
    ) -> None:
        self._role = role
        self._open_timeout = open_timeout
        self._on_room = on_room
        self._on_unreachable = on_unreachable
        self._on_log = on_log
        self._members: dict[str, _Member] = {}
        self._leaving: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._members)

    @property
    def in_flight(self) -> int:
        """Calls that run on any of the connections, those of removed instances included."""
        open_ones = [member.connection for member in self._members.values() if member.connection is not None]
        return sum(connection.in_flight for connection in (*open_ones, *self._leaving))

    def update(self, instances: Sequence[InstanceAddress]) -> None:
        """These are the instances now. One that is no more among them finishes its calls and gets no new one."""
        wanted = {instance.instance_id: instance for instance in instances}
        for instance_id, member in list(self._members.items()):
            instance = wanted.get(instance_id)
            if instance is None or instance.address != member.instance.address:
                self._remove(instance_id)
            else:
                member.instance = instance
        for instance_id, instance in wanted.items():
            if instance_id not in self._members:
                self._members[instance_id] = _Member(instance)
        self._room()

    def acquire(self) -> Connection | None:
        """The least loaded open connection with room, or None.

        Where an instance without a connection would be the better choice, one is opened in the background.
        """
        best: Connection | None = None
        least = math.inf
        for member in self._members.values():
            connection = member.connection
            if connection is None or connection.draining or connection.doubted:
                continue
            load = connection.in_flight
            if load < least and load < member.instance.max_concurrency:
                best, least = connection, load
        if least > 0:
            self._open_one()
        return best

    async def acquire_opening(self) -> Connection | None:
        """As `acquire`, but waits for connections that are being opened while none has room.

        None: every instance is full, draining or unreachable.
        """
        while (connection := self.acquire()) is None and self._tasks:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return connection

    async def close(self) -> None:
        """Close every connection; calls in flight fail."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for instance_id in list(self._members):
            self._remove(instance_id)
        await asyncio.gather(*(connection.close() for connection in list(self._leaving)))

    def _open_one(self) -> None:
        now = asyncio.get_running_loop().time()
        for member in self._members.values():
            if member.connection is None and not member.opening and member.retry_at <= now and not self._closed:
                member.opening = True
                task = asyncio.create_task(self._open(member))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return

    async def _open(self, member: "_Member") -> None:
        try:
            connection = await Connection.open(
                member.instance.address,
                role=self._role,
                open_timeout=self._open_timeout,
                on_log=self._on_log,
                on_drain=self._on_drain,
                on_close=self._on_close,
            )
        except CallError as error:
            member.failed()
            if self._on_unreachable is not None:
                self._on_unreachable(member.instance, error)
            return
        finally:
            member.opening = False
        if self._members.get(member.instance.instance_id) is not member:
            self._leave(connection)
            return
        member.opened(connection)
        connection.on_free = self._room
        self._room()

    def _remove(self, instance_id: str) -> None:
        connection = self._members.pop(instance_id).connection
        if connection is not None:
            self._leave(connection)

    def _leave(self, connection: Connection) -> None:
        if not connection.closed:
            self._leaving.add(connection)
            connection.retire()

    def _on_drain(self, connection: Connection) -> None:
        """The instance is about to end. A new connection to it is worth trying later only: it may be refused."""
        for member in self._members.values():
            if member.connection is connection:
                member.connection = None
                member.failed()
                if not connection.closed:
                    self._leaving.add(connection)

    def _on_close(self, connection: Connection) -> None:
        self._leaving.discard(connection)
        for member in self._members.values():
            if member.connection is connection:
                member.connection = None
                member.failed()

    def _room(self) -> None:
        if self._on_room is not None and not self._closed:
            self._on_room()


class _Member:
    """One instance and its connection, if there is one."""

    __slots__ = ("connection", "instance", "opening", "pause", "retry_at")

    def __init__(self, instance: InstanceAddress) -> None:
        self.instance = instance
        self.connection: Connection | None = None
        self.opening = False
        self.pause = 0.0
        self.retry_at = 0.0

    def opened(self, connection: Connection) -> None:
        self.connection = connection
        self.pause = 0.0

    def failed(self) -> None:
        """Wait before the next attempt, twice as long each time."""
        self.pause = min(max(self.pause * 2, _FIRST_RETRY_SEC), _LAST_RETRY_SEC)
        self.retry_at = asyncio.get_running_loop().time() + self.pause
