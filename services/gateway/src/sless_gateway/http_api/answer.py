"""Answers, written by ourselves: head as given, framing as RFC 9112 §6 wants it, nothing added behind our back.

aiohttp's own responses would write header values in UTF-8 (ours are Latin-1, as they came), add a Content-Type that
nobody gave, and name the server's software. Of aiohttp only the public writer (`write`, `write_eof`) is used.
"""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from sless_gateway.domain import Headers
from sless_gateway.errors import UnsendableAnswer

SERVER: Final = "sless"

_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BODILESS: Final = frozenset({204, 304})


class Answer(web.StreamResponse):
    """One answer. Complete as it is made; or streamed by `begin`, `send`…, `finish`.

    `length`: of a streamed body, when it is known beforehand; of what GET would have answered, for HEAD.
    `closing`: the connection ends after it.
    """

    def __init__(
        self,
        status: int,
        headers: Headers,
        body: bytes = b"",
        *,
        length: int | None = None,
        closing: bool = False,
    ) -> None:
        super().__init__(status=status)
        self.fields = headers
        self._content = body
        self._length = length
        self._writer: AbstractStreamWriter | None = None
        self._streams = False
        self._chunked_body = False
        self._bodiless = False
        self._left = 0
        self._keep_alive = False if closing else None

    @property
    def begun(self) -> bool:
        """Whether the head has gone out: another answer can't be given any more."""
        return self._writer is not None

    def whole(self) -> bytes:
        """All of it as bytes, for a client that has sent no request that could be read; the connection ends after it."""
        self._length, self._keep_alive = len(self._content), False
        return self._head((1, 1)) + self._content

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """aiohttp's hook: the whole answer, unless it has been streamed."""
        if self._writer is None:
            self._length = self._length if request.method == "HEAD" and not self._content else len(self._content)
            head = self._started(request)
            self._writer = request.writer
            await self._writer.write_eof(head if self._bodiless else head + self._content)
        return self._writer

    async def write_eof(self, data: bytes = b"") -> None:
        """aiohttp's hook: nothing is left to do; an answer that wasn't finished was aborted."""

    async def begin(self, request: web.BaseRequest, first: bytes) -> None:
        """Send the head and the body's first bytes."""
        self._streams = True
        head = self._started(request)
        self._writer = request.writer
        await self._writer.write(head + self._framed(first))

    async def send(self, data: bytes) -> None:
        """Send more of the body, waiting while the client is slow."""
        framed = self._framed(data)
        if framed:
            assert self._writer is not None, "begin() comes first"  # noqa: S101
            await self._writer.write(framed)

    async def finish(self) -> None:
        """End the body. Raises UnsendableAnswer when it is shorter than announced: then only aborting is honest."""
        assert self._writer is not None, "begin() comes first"  # noqa: S101
        if self._left and not self._bodiless:
            raise UnsendableAnswer(f"the answer ended {self._left} bytes before its Content-Length")
        await self._writer.write_eof(b"0\r\n\r\n" if self._chunked_body else b"")

    def _started(self, request: web.BaseRequest) -> bytes:
        """Decide how the answer is framed, and give its head. Raises UnsendableAnswer before anything has gone out."""
        self._check()
        self._bodiless = request.method == "HEAD" or self.status in _BODILESS
        self._chunked_body = self._streams and self._length is None and not self._bodiless and request.version >= (1, 1)
        self._left = self._length or 0
        if self._keep_alive is None:
            # A body that has not arrived whole may still be on its way: what follows would be read as a request.
            # After an upgrade that is declined the parser has dropped what followed.
            self._keep_alive = request.keep_alive and request.content.is_eof() and "Upgrade" not in request.headers
        if self._length is None and not self._chunked_body and not self._bodiless:
            self._keep_alive = False  # HTTP/1.0: the connection's end is the body's
        return self._head(request.version)

    def _framed(self, data: bytes) -> bytes:
        if self._bodiless or not data:
            return b""
        if self._chunked_body:
            return b"%x\r\n%b\r\n" % (len(data), data)
        if self._length is not None:
            if len(data) > self._left:
                raise UnsendableAnswer("the answer is longer than its Content-Length")
            self._left -= len(data)
        return data

    def _check(self) -> None:
        if not 200 <= self.status <= 599:
            raise UnsendableAnswer(f"the handler answered with the status {self.status}; it must be from 200 to 599")
        for name, value in self.fields:
            if _TOKEN.fullmatch(name) is None or _FORBIDDEN.search(value) is not None:
                raise UnsendableAnswer(f"the handler answered with a header that HTTP cannot carry: {name[:80]!r}")

    def _head(self, version: tuple[int, int]) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {_REASONS.get(self.status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in self.fields]
        given = {name.lower() for name, _ in self.fields}
        if "date" not in given:
            lines.append(f"Date: {_date()}")
        if "server" not in given:
            lines.append(f"Server: {SERVER}")
        lines += self._framing(version)
        try:
            return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        except UnicodeEncodeError as error:
            wrong = error.object[error.start : error.end]
            raise UnsendableAnswer(f"the handler answered with a header that HTTP cannot carry: {wrong!r}") from None

    def _framing(self, version: tuple[int, int]) -> list[str]:
        lines = []
        if self._chunked_body:
            lines.append("Transfer-Encoding: chunked")
        elif self._length is not None and self.status not in _BODILESS:
            lines.append(f"Content-Length: {self._length}")
        if not self._keep_alive:
            lines.append("Connection: close")
        elif version < (1, 1):
            lines.append("Connection: keep-alive")
        return lines


_dated: tuple[int, str] = (0, "")


def _date() -> str:
    """Now as HTTP writes it (RFC 9110 §5.6.7), made once a second."""
    global _dated  # noqa: PLW0603 - a value made from the clock
    now = int(time.time())
    if _dated[0] != now:
        _dated = (now, formatdate(now, usegmt=True))
    return _dated[1]
