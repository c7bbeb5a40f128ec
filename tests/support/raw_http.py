"""An HTTP client that sends exactly the bytes it is given, and reads answers strictly (h11)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11

LIMIT_SEC = 20


@dataclass
class Answer:
    """An answer as it came. `headers` in their order, duplicates kept; names as they were sent."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""

    def all(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for given, value in self.headers if given.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The one value of a header; None when it is not there."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} is there {len(values)} times"
        return values[0] if values else None

    def json(self) -> Any:
        """The body, which says that it is JSON."""
        assert (self.header("content-type") or "").startswith("application/json"), self
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The `code` of an error, whose body must have the form of all errors."""
        body = self.json()
        assert isinstance(body["error"], str)
        assert body["error"]
        assert body["request_id"] == self.header("x-request-id")
        assert set(body) <= {"error", "code", "field", "type", "request_id"}
        assert ("type" in body) == (body["code"] == "HANDLER_ERROR")
        return str(body["code"])


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._rest = b""

    async def send(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self, method: str = "GET") -> Answer:
        """The next final answer, to a request of this method."""
        answer, body = await self.head(method)
        answer.body = b"".join([part async for part in body])
        return answer

    async def head(self, method: str = "GET") -> tuple[Answer, AsyncIterator[bytes]]:
        """The next final answer's head, and its body as it comes."""
        parser = h11.Connection(h11.CLIENT)
        parser.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        parser.send(h11.EndOfMessage())
        while True:
            event = await self._event(parser)
            if isinstance(event, h11.Response):
                headers = [(name.decode(), value.decode("latin-1")) for name, value in event.headers.raw_items()]
                return Answer(event.status_code, headers), self._body(parser)

    async def at_end(self) -> bool:
        """Whether the server closes the connection, with nothing more said."""
        async with asyncio.timeout(LIMIT_SEC):
            try:
                return self._rest == b"" and await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def _body(self, parser: h11.Connection) -> AsyncIterator[bytes]:
        while True:
            event = await self._event(parser)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self._rest = bytes(parser.trailing_data[0])
                return

    async def _event(self, parser: h11.Connection) -> Any:
        async with asyncio.timeout(LIMIT_SEC):
            while (event := parser.next_event()) is h11.NEED_DATA:
                data, self._rest = self._rest or await self.reader.read(65_536), b""
                parser.receive_data(data)
        return event


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RawClient]:
    """A connection to `http://host:port` or `unix:/path`."""
    if url.startswith("unix:"):
        reader, writer = await asyncio.open_unix_connection(url.removeprefix("unix:"))
    else:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()  # what the other side has not read must not hold a test up
        with suppress(ConnectionError):
            await writer.wait_closed()


async def exchange(url: str, data: bytes, method: str = "GET") -> Answer:
    """Send bytes on a connection of their own and give the first answer."""
    async with connected(url) as client:
        await client.send(data)
        return await client.receive(method)


def request(
    method: str,
    target: str,
    *headers: tuple[str, str],
    body: bytes = b"",
    token: str | None = None,
    host: str = "gateway.test",
    json_body: Any = None,
) -> bytes:
    """A request as bytes; Content-Length is added when there is a body."""
    if json_body is not None:
        body, headers = json.dumps(json_body).encode(), (*headers, ("Content-Type", "application/json"))
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers)]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
