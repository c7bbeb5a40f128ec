"""The kept connection to the launcher."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path

from sless_platform.backoff import Backoff
from sless_platform.errors import InvalidArgument, PlatformError

from sless_runtime_manager.errors import InstancesExhausted, LauncherUnavailable, MemoryExhausted, StartFailed

Message = dict[str, object]

_LONGEST_LINE = 8 << 20
_CONNECT = timedelta(seconds=5)
_RECONNECT = Backoff(initial=timedelta(milliseconds=20), maximum=timedelta(seconds=1))
_ERRORS: dict[str, type[PlatformError]] = {
    "START_FAILED": StartFailed,
    "EXHAUSTED": InstancesExhausted,
    "NO_MEMORY": MemoryExhausted,
    "STOPPING": LauncherUnavailable,
    "INVALID": InvalidArgument,
}


class LauncherLink:
    """Requests and events over one connection, made anew whenever it is lost, from the first call until `close`."""

    def __init__(
        self,
        path: Path,
        *,
        on_event: Callable[[Message], None],
        on_connected: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        """`on_connected` runs after each connect, beside the reading of answers and events."""
        self._path = path
        self._on_event = on_event
        self._on_connected = on_connected
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._connected = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to keep the connection."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="launcher link")

    async def call(self, op: str, *, within: timedelta, **fields: object) -> Message:
        """One request's result. Raises LauncherUnavailable, and what the launcher answers as typed errors."""
        self.open()
        await self._wait_connected()
        number = next(self._numbers)
        answer = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"id": number, "op": op, **fields})
            async with asyncio.timeout(within.total_seconds()):
                return _result(await answer)
        except TimeoutError:
            raise LauncherUnavailable(f"the launcher did not answer {op} within {within.total_seconds():g} s") from None
        finally:
            self._pending.pop(number, None)

    def tell(self, op: str, **fields: object) -> None:
        """A request whose answer nobody waits for; nothing while there is no connection."""
        if self._writer is not None:
            self._send({"id": next(self._numbers), "op": op, **fields})

    async def close(self) -> None:
        """Give the connection up; what waits for answers gets LauncherUnavailable."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None

    async def _wait_connected(self) -> None:
        try:
            async with asyncio.timeout(_CONNECT.total_seconds()):
                await self._connected.wait()
        except TimeoutError:
            raise LauncherUnavailable(f"no launcher answers at {self._path}") from None

    def _send(self, message: Message) -> None:
        if self._writer is None:
            raise LauncherUnavailable("the connection to the launcher was lost")
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _keep(self) -> None:
        pauses = _RECONNECT.delays()
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path, limit=_LONGEST_LINE)
            except OSError:
                await asyncio.sleep(next(pauses).total_seconds())
                continue
            pauses = _RECONNECT.delays()
            await self._converse(reader, writer)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """From connect to loss."""
        self._writer = writer
        self._connected.set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._on_connected())
                await self._read(reader)
                self._lose()
        finally:
            self._lose()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError):  # Lost, or not a launcher at all.
            while line := await reader.readline():
                self._take(json.loads(line))

    def _take(self, message: Message) -> None:
        number = message.get("id")
        if number is None:
            self._on_event(message)
        elif isinstance(number, int) and (waiting := self._pending.get(number)) and not waiting.done():
            waiting.set_result(message)

    def _lose(self) -> None:
        self._writer = None
        self._connected.clear()
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(LauncherUnavailable("the connection to the launcher was lost"))


def _result(answer: Message) -> Message:
    result, error = answer.get("result"), answer.get("error")
    if isinstance(result, dict):
        return result
    if not isinstance(error, dict):
        raise LauncherUnavailable(f"the launcher's answer cannot be understood: {answer!r:.200}")
    raise _ERRORS.get(str(error.get("code")), StartFailed)(str(error.get("message")))
