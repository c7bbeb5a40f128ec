"""Probes by the instance protocol: HELLO says that an instance is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sless_calls import Connection, LoadFailed, NotReachable, ProtocolMismatch
from sless_calls import LogLine as WireLine

from sless_runtime_manager.errors import HandlerNotLoaded, InstanceUnreachable
from sless_runtime_manager.ports import InstanceHandle, LogLine

_ROLE: Final = "runtime-manager"
_WITHOUT_BOUND: Final = timedelta(days=1)
_UNIX: Final = "unix:"
_LOOKS_A_PING: Final = 2


class ProtocolLink:
    """InstanceLink over a connection of sless_calls."""

    def __init__(self, look_every: timedelta, silence: timedelta) -> None:
        """See ProtocolProber."""
        loop = asyncio.get_running_loop()
        self._look_every = look_every
        self._silence = silence
        self.max_concurrency = 0
        self.departing: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._connection: Connection | None = None
        self._address = ""

    async def open(self, handle: InstanceHandle, on_lines: Callable[[Sequence[LogLine]], None]) -> None:
        """See Prober."""
        try:
            connection = await Connection.open(
                handle.address,
                role=_ROLE,
                open_timeout=_WITHOUT_BOUND,
                on_log=lambda lines: on_lines([_line(line) for line in lines]),
                on_drain=lambda _connection: _settle(self.departing),
                on_close=lambda _connection: _settle(self.closed),
            )
        except LoadFailed as error:
            raise HandlerNotLoaded(error.message, error.detail) from error
        except (NotReachable, ProtocolMismatch) as error:
            raise InstanceUnreachable(str(error)) from error
        if connection.hello.instance != handle.instance_id:
            connection.abort()
            raise InstanceUnreachable(
                f"the instance at {handle.address} calls itself {connection.hello.instance!r}, not {handle.instance_id!r}"
            )
        self._connection = connection
        self._address = handle.address
        self.max_concurrency = connection.hello.max_concurrency

    async def lost(self) -> str:
        """See InstanceLink. Nothing tells of a socket that was removed, or of a process that hangs: both are looked for."""
        looks = 0
        while True:
            await asyncio.sleep(self._look_every.total_seconds())
            looks += 1
            if not _exists(self._address):
                return f"its socket {self._address} is gone"
            if looks % _LOOKS_A_PING == 0 and not await self._answers():
                return f"no sign of life for {self._silence.total_seconds():g} s"

    def close(self) -> None:
        """See InstanceLink."""
        if self._connection is not None:
            self._connection.abort()

    async def _answers(self) -> bool:
        """Whether it answers in time; a connection that is closed is told of by `closed`."""
        if self._connection is None:
            return True
        try:
            async with asyncio.timeout(self._silence.total_seconds()):
                await self._connection.ping()
        except TimeoutError:
            return False
        except NotReachable:
            await self.closed
        return True


class ProtocolProber:
    """Prober over the instance protocol."""

    def __init__(
        self, look_every: timedelta = timedelta(seconds=2), silence: timedelta = timedelta(seconds=12)
    ) -> None:
        """How often a ready instance's socket is looked for (every fifth time it is asked for a sign of life as well), and how
        long it may take to give one before it is lost."""
        self._look_every = look_every
        self._silence = silence

    async def open(self, handle: InstanceHandle, on_lines: Callable[[Sequence[LogLine]], None]) -> ProtocolLink:
        """See Prober."""
        link = ProtocolLink(self._look_every, self._silence)
        await link.open(handle, on_lines)
        return link


def _exists(address: str) -> bool:
    """Only unix sockets can be looked at."""
    return not address.startswith(_UNIX) or Path(address.removeprefix(_UNIX)).exists()


def _line(line: WireLine) -> LogLine:
    return LogLine(datetime.fromtimestamp(line.ts / 1000, UTC), line.stream, line.text)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
