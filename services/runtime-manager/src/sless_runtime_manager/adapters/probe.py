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


class ProtocolLink:
    """InstanceLink over a connection of sless_calls."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.max_concurrency = 0
        self.departing: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._connection: Connection | None = None

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
        self.max_concurrency = connection.hello.max_concurrency

    def close(self) -> None:
        """See InstanceLink."""
        if self._connection is not None:
            self._connection.abort()


class ProtocolProber:
    """Prober over the instance protocol."""

    async def open(self, handle: InstanceHandle, on_lines: Callable[[Sequence[LogLine]], None]) -> ProtocolLink:
        """See Prober."""
        link = ProtocolLink()
        await link.open(handle, on_lines)
        return link

    def reachable(self, address: str) -> bool:
        """See Prober. Only unix sockets can be looked at."""
        return not address.startswith(_UNIX) or Path(address.removeprefix(_UNIX)).exists()


def _line(line: WireLine) -> LogLine:
    return LogLine(datetime.fromtimestamp(line.ts / 1000, UTC), line.stream, line.text)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
