"""An instance in the test's own process: speaks the instance protocol as a test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sless_calls import frames


@dataclass
class ReceivedCall:
    """A call that the instance has taken, to be answered by the test."""

    number: int
    head: dict[str, Any]
    body: bytes
    transport: asyncio.Transport
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def reply(self, status: int = 200, body: bytes = b"", *, end: bool = True, **head: Any) -> None:
        """Sends REPLY."""
        text = json.dumps({"status": status, "headers": [], "end": end, **head}).encode()
        self._send(frames.REPLY, len(text).to_bytes(4, "big") + text + body)

    def more(self, body: bytes) -> None:
        """Sends BODY."""
        self._send(frames.BODY, body)

    def end(self) -> None:
        """Sends END."""
        self._send(frames.END, b"")

    def credit(self, amount: int) -> None:
        """Sends CREDIT."""
        self._send(frames.CREDIT, amount.to_bytes(4, "big"))

    def log(self, text: str) -> None:
        """Sends LOG."""
        line = {"ts": 1_796_040_000_000, "stream": "stdout", "level": "info", "text": text}
        self._send(frames.LOG, json.dumps([line]).encode())

    def crash(self) -> None:
        """Closes the connection without a word."""
        self.transport.abort()

    def _send(self, kind: int, payload: bytes) -> None:
        self.transport.write(frames.frame(kind, self.number, payload))


class FakeInstance:
    """Takes calls; `answer` is called with each of them, the default keeps it in `calls` for the test."""

    def __init__(self, path: Path, *, version: int = 1, max_concurrency: int = 16) -> None:
        self.path = path
        self.address = f"unix:{path}"
        self.version = version
        self.max_concurrency = max_concurrency
        self.calls: list[ReceivedCall] = []
        self.connections: list[asyncio.Transport] = []
        self.arrived = asyncio.Event()
        self.answer: Callable[[ReceivedCall], None] = self.calls.append

    async def received(self, count: int) -> list[ReceivedCall]:
        """Waits until so many calls have come."""
        async with asyncio.timeout(10):
            while len(self.calls) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return self.calls

    def drain(self) -> None:
        """Asks for no more calls."""
        for transport in self.connections:
            transport.write(frames.frame(frames.DRAIN, 0))


class _Session(asyncio.Protocol):
    def __init__(self, instance: FakeInstance) -> None:
        self._instance = instance
        self._parser = frames.FrameParser(self._frame)
        self._calls: dict[int, ReceivedCall] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._instance.connections.append(transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)

    def _frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.HELLO:
            hello = {
                "protocol": 1,
                "runtime": "python3.11",
                "function": "f",
                "version": self._instance.version,
                "instance": "i-1",
                "max_concurrency": self._instance.max_concurrency,
            }
            self._transport.write(frames.frame(frames.HELLO, 0, json.dumps(hello).encode()))
        elif kind == frames.CALL:
            self._call(number, payload)
        elif kind == frames.BODY:
            self._calls[number].body += payload
        elif kind == frames.END:
            self._calls[number].ended.set()
        elif kind == frames.CANCEL:
            self._calls[number].cancelled.set()

    def _call(self, number: int, payload: bytes) -> None:
        head, body = frames.split_headed(payload)
        call = ReceivedCall(number, json.loads(head), body, self._transport)
        self._calls[number] = call
        self._instance.answer(call)
        self._instance.arrived.set()


@asynccontextmanager
async def fake_instance(path: Path, **options: Any) -> AsyncIterator[FakeInstance]:
    """A FakeInstance that listens on a unix socket."""
    instance = FakeInstance(path, **options)
    server = await asyncio.get_running_loop().create_unix_server(lambda: _Session(instance), path)
    try:
        yield instance
    finally:
        server.close()
        for transport in instance.connections:
            transport.abort()
        await server.wait_closed()
