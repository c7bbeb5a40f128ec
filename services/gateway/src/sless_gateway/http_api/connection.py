"""The HTTP server below the routes: aiohttp's protocol, with what it refuses by itself said in JSON and in time.

aiohttp has documented hooks for none of this, so attributes of `RequestHandler` are used that its documentation
doesn't name; the tests of tests/integration/gateway pin them.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, BadStatusLine, HttpProcessingError, InvalidURLError, LineTooLong
from aiohttp.http_parser import HttpRequestParser
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from sless_contracts import limits
from sless_platform.errors import InvalidArgument, PlatformError
from sless_platform.logging import get_logger

from sless_gateway.errors import HeadersTooLarge, UriTooLong
from sless_gateway.http_api.errors import error_answer, internal

log = get_logger(__name__)

HEAD_SEC: Final = 30
"""How long a request's head may take to arrive, from its first byte."""
IDLE_SEC: Final = 620
"""How long a connection may have no request; longer than load balancers keep theirs, so that they close first."""

_DRAIN_POLL_SEC: Final = 0.005
_CUT_SEC: Final = 0.01  # not 0, which means "without end" to aiohttp

_MAX_LINE: Final = limits.URL_BYTES.value
# aiohttp counts a header's name and value; the limit is of the whole line. That makes it differ from the URL's as
# well, which is how the two are told apart in aiohttp's one error for both.
_MAX_FIELD: Final = limits.HEADER_BYTES.value - len(": ")
_MAX_HEADERS: Final = 1_000
_MAX_HEAD: Final = limits.HEADERS_BYTES.value + limits.URL_BYTES.value + limits.KIB
_MAX_PIPELINED: Final = 2 * _MAX_HEAD
_METHOD: Final = re.compile(rb"(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) ")

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Server(web.Server):
    """Makes a `Connection` of every client's; a client that goes away cancels what it asked for."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler, handler_cancellation=True)

    def __call__(self) -> RequestHandler:
        """One more connection."""
        return Connection(self, loop=asyncio.get_running_loop())

    async def drain(self, seconds: float) -> None:
        """Let requests that run come to their end, this long at most; then cut what is left."""
        try:
            async with asyncio.timeout(seconds):
                while self.connections:
                    for connection in self.connections:
                        if isinstance(connection, Connection) and connection.idle:
                            connection.force_close()
                    await asyncio.sleep(_DRAIN_POLL_SEC)
        except TimeoutError:
            log.warning("connections cut", connections=len(self.connections))
        await self._cut()

    async def _cut(self) -> None:
        """End what is left, and wait until it has let go of what it used."""
        tasks = [task for connection in self.connections if (task := connection._task_handler) is not None]
        await self.shutdown(_CUT_SEC)
        if tasks:
            await asyncio.wait(tasks, timeout=1)


class Connection(RequestHandler):
    """One client's connection."""

    __slots__ = ("_head_bytes", "_head_timer", "_pipelined_bytes")

    def __init__(self, manager: Server, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=IDLE_SEC,
            access_log=None,  # type: ignore[arg-type] # aiohttp's way of saying none
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_FIELD,
            max_headers=_MAX_HEADERS,
            auto_decompress=False,
        )
        self._parser: Any = MethodTolerantParser(self, loop, self._read_bufsize)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._pipelined_bytes = 0

    @property
    def idle(self) -> bool:
        """Whether the next request is waited for: none is being answered, and no rest of a body is being read away."""
        waits = self._waiter is not None or self._request_count == 0
        return waits and not self._messages

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and watch over how a head arrives."""
        if not self.idle:
            self._watch_pipelining(data)
            super().data_received(data)
            self._break_body()
            return
        super().data_received(data)
        if self.idle and data:
            self._watch_head(len(data))
        else:
            self._forget_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone."""
        self._forget_head()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What aiohttp itself refuses, as an answer of ours."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        request_id = uuid.uuid4().hex
        if isinstance(exc, HttpProcessingError):
            return error_answer(refusal(exc), request_id, closing=True)
        log.error("request failed", exc_info=exc, request_id=request_id)
        return error_answer(internal(request_id), request_id, closing=True)

    def _watch_head(self, arrived: int) -> None:
        self._head_bytes += arrived
        if self._head_bytes > _MAX_HEAD:
            self._refuse(HeadersTooLarge(f"the request's head is larger than {_MAX_HEAD} bytes"))
        elif self._head_timer is None:
            self._head_timer = self._loop.call_later(HEAD_SEC, self._refuse_slow_head)

    def _forget_head(self) -> None:
        self._head_bytes = self._pipelined_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_slow_head(self) -> None:
        self._refuse(InvalidArgument(f"the request's head did not arrive within {HEAD_SEC} s"))

    def _refuse(self, error: PlatformError) -> None:
        """Answer what is no request yet, and hang up."""
        transport = self.transport
        if transport is not None and self.idle:
            transport.write(error_answer(error, uuid.uuid4().hex, closing=True).whole())
        self._forget_head()
        self.close()
        if transport is not None:
            transport.close()

    def _watch_pipelining(self, data: bytes) -> None:
        """Bounds what is sent behind a request whose body is complete: it waits in memory."""
        request = self._current_request
        if request is not None and request.content.is_eof():
            self._pipelined_bytes += len(data)
            if self._pipelined_bytes > _MAX_PIPELINED:
                self.close()  # after the answers that are due

    def _break_body(self) -> None:
        """Tell whoever reads a body that its framing broke; aiohttp only queues an answer behind the one that reads."""
        error = getattr(self._messages[-1][0], "exc", None) if self._messages else None
        if error is None:
            return
        if len(self._messages) > 1:
            content = self._messages[-2][1]
        elif self._current_request is not None:
            content = self._current_request.content
        else:
            return
        if not content.is_eof() and content.exception() is None:
            content.set_exception(RequestPayloadError(str(error)))


class MethodTolerantParser:
    """aiohttp's parser, for methods that its C code has no name for as well (RFC 9110 §9.1: any token).

    It refuses those at their first bytes. Then a fresh parser gets the same bytes with POST in the method's place,
    which changes nothing of how a request is framed, and the name is put back. Only for a method that comes whole
    at the beginning of what was received.
    """

    def __init__(self, protocol: Connection, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._protocol = protocol
        self._loop = loop
        self._limit = limit
        self._method: str | None = None
        self._body: StreamReader | None = None
        self._in_head = False
        self._parser = self._fresh()

    def _fresh(self) -> Any:
        return HttpRequestParser(
            self._protocol,
            self._loop,
            self._limit,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_FIELD,
            max_headers=_MAX_HEADERS,
            payload_exception=RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=self._protocol._max_msg_queue_size,
        )

    @property
    def _between_requests(self) -> bool:
        return not self._in_head and (self._body is None or self._body.is_eof())

    def feed_data(self, data: bytes) -> tuple[Any, bool, bytes]:
        """See aiohttp's HttpParser."""
        begins = self._between_requests
        try:
            messages, upgraded, tail = self._parser.feed_data(data)
        except BadHttpMethod:
            match = _METHOD.match(data)
            if match is None or not begins:
                raise
            self._method = match["name"].decode()
            self._parser = self._fresh()
            messages, upgraded, tail = self._parser.feed_data(b"POST" + data[match.end("name") :])
        if messages:
            messages = self._named(messages)
            self._body, self._in_head = messages[-1][1], False
        elif data and begins:
            self._in_head = True
        return messages, upgraded, tail

    def _named(self, messages: Any) -> Any:
        """The first message with its own method."""
        if self._method is None:
            return messages
        (message, payload), *others = messages
        message, self._method = message._replace(method=self._method), None
        return [(message, payload), *others]

    def feed_eof(self) -> Any:
        """See aiohttp's HttpParser."""
        return self._parser.feed_eof()

    def pause_reading(self) -> None:
        """See aiohttp's HttpParser."""
        self._parser.pause_reading()

    def message_consumed(self) -> None:
        """See aiohttp's HttpParser."""
        self._parser.message_consumed()

    def set_upgraded(self, upgraded: bool) -> None:
        """See aiohttp's HttpParser."""
        self._parser.set_upgraded(upgraded)


_REFUSALS: Final = (
    (BadHttpMethod, "the request's method can't be read"),
    (BadStatusLine, "the request's first line can't be read: it must end in HTTP/1.1 and CRLF"),
    (InvalidURLError, "the request's URL can't be read"),
)


def refusal(error: HttpProcessingError) -> PlatformError:
    """Why a request can't be read, in words that a client may see: aiohttp's own repeat what the client sent."""
    if isinstance(error, LineTooLong):
        if error.args[1:2] == (_MAX_LINE,):
            return UriTooLong(f"the URL is longer than {limits.URL_BYTES.value} bytes")
        return HeadersTooLarge(f"a header is larger than {limits.HEADER_BYTES.value} bytes")
    if error.message.startswith("Too many headers"):
        return HeadersTooLarge(f"the request has more than {_MAX_HEADERS} headers")
    sentence = next((sentence for kind, sentence in _REFUSALS if isinstance(error, kind)), None)
    if sentence is None:
        sentence = f"the request can't be read: {error.message.partition(chr(10))[0].rstrip(':')}"
    return InvalidArgument(sentence if sentence.isascii() else "the request can't be read")
