"""An instance that says recorded bytes, whatever it is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


class RecordedInstance(asyncio.Protocol):
    """Says `opening` when a caller connects, and `answer` after the first frame that follows its HELLO."""

    def __init__(self, opening: bytes, answer: bytes, *, close: bool) -> None:
        self._opening = opening
        self._answer = answer
        self._close = close
        self._answered = False
        self.heard = bytearray()
        """All that callers have sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._opening)
        if not self._opening:
            transport.close()

    def data_received(self, data: bytes) -> None:
        self.heard += data
        hello = 4 + int.from_bytes(self.heard[:4], "big")
        if not self._answered and len(self.heard) > hello:
            self._answered = True
            self._transport.write(self._answer)
            if self._close:
                self._transport.close()


@asynccontextmanager
async def recorded_instance(
    path: Path, opening: bytes, answer: bytes = b"", *, close: bool = False
) -> AsyncIterator[RecordedInstance]:
    """A RecordedInstance that listens on a unix socket, for one caller."""
    instance = RecordedInstance(opening, answer, close=close)
    server = await asyncio.get_running_loop().create_unix_server(lambda: instance, path)
    try:
        yield instance
    finally:
        server.close()
        await server.wait_closed()
