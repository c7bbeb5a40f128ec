"""The socket below a connection: bytes in and out, back-pressure, and its end."""

import asyncio
from collections.abc import Callable
from typing import cast

from sless_calls import frames, heads
from sless_calls.errors import CallError, InstanceCrashed, ProtocolError


class Wire(asyncio.Protocol):
    """Hands frames to `on_frame(type, call_id, payload)` and says once, by `on_end(why)`, that it is over.

    A ProtocolError that `on_frame` raises is told to the instance and ends the wire.
    """

    def __init__(
        self, address: str, on_frame: Callable[[int, int, bytes], None], on_end: Callable[[CallError], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._parser = frames.FrameParser(on_frame)
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._blocked: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self.closed = False

    async def connect(self) -> None:
        """Connect to `unix:/path` or `host:port`; raises OSError."""
        if self._address.startswith("unix:"):
            await self._loop.create_unix_connection(lambda: self, self._address[5:])
            return
        host, _, port = self._address.rpartition(":")
        await self._loop.create_connection(lambda: self, host.strip("[]"), int(port))

    def transmit(self, data: bytes | bytearray) -> None:
        """Write, or do nothing once the wire is closed."""
        if not self.closed and self._transport is not None:
            self._transport.write(data)

    async def writable(self) -> None:
        """Wait while the socket does not take more."""
        while self._blocked is not None and not self.closed:
            await asyncio.shield(self._blocked)

    def end(self, why: CallError) -> None:
        """Close at once; what the socket has not taken yet is dropped."""
        if self.closed:
            return
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        self._unblock()
        self._on_end(why)

    async def gone(self) -> None:
        """Wait until the socket of an ended wire is closed."""
        if self._transport is not None:
            await asyncio.shield(self._gone)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport, but not the class.
        self._transport = cast(asyncio.Transport, transport)
        if self.closed:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        try:
            self._parser.feed(data)
        except ProtocolError as error:
            self.transmit(heads.encode_goaway("PROTOCOL_ERROR", str(error)))
            self.end(error)

    def pause_writing(self) -> None:
        self._blocked = self._loop.create_future()

    def resume_writing(self) -> None:
        self._unblock()

    def connection_lost(self, exc: Exception | None) -> None:
        because = f": {exc}" if exc is not None else ""
        self.end(InstanceCrashed(f"the instance at {self._address} closed the connection{because}"))
        if not self._gone.done():
            self._gone.set_result(None)

    def _unblock(self) -> None:
        if self._blocked is not None and not self._blocked.done():
            self._blocked.set_result(None)
        self._blocked = None
