"""Reading requests' bodies: bounded in size and in silence, and told when they are broken."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError
from sless_contracts import limits
from sless_platform.errors import InvalidArgument

from sless_gateway.errors import PayloadTooLarge, UnsupportedMediaType

SILENCE_SEC: Final = 30
"""How long a body that is read before anything is done may go without a byte."""
_KEPT_BYTES: Final = 8 * limits.MIB
"""More than what gRPC takes for an invoker that does not read (5.5 MiB, measured): who took more has admitted the call."""
_SHOWN_CHARS: Final = 80
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class RequestBody:
    """A request's body as a call takes it (the port CallBody), read from the connection as it comes.

    `limit`: the most bytes it may have. `keep`: remember what is read after `held`, within bounds, for `rewind`.
    """

    def __init__(self, request: web.BaseRequest, *, limit: int, keep: bool = False) -> None:
        self._request = request
        self._content = request.content
        self._limit = limit
        self._count = 0
        self._held = b""
        self._kept: list[bytes] | None = [] if keep else None
        self._kept_left = _KEPT_BYTES
        self._invites = expects_continue(request) and not self._content.is_eof()
        announced = request.content_length
        if announced is not None and announced > limit:
            raise self._too_large()

    @property
    def held(self) -> bytes:
        """See CallBody."""
        return self._held

    @property
    def complete(self) -> bool:
        """See CallBody."""
        return self._content.at_eof()

    async def hold(self, size: int) -> None:
        """Read until all of it, or this many bytes, are in hand. Raises InvalidArgument after a silence."""
        if self._content.is_eof():  # it has arrived whole, with its head as a rule
            self._held = self._counted(self._content.read_nowait())
            return
        parts: list[bytes] = []
        while self._count < size and not self._content.at_eof():
            parts.append(await self.next_soon())
        self._held = b"".join(parts)

    async def next_soon(self) -> bytes:
        """What comes next; b"" at the end. Raises InvalidArgument after a silence."""
        self.invite()
        async with reading(SILENCE_SEC):
            return self._counted(await self._content.readany())

    async def read(self) -> bytes:
        """See CallBody. Waits as long as the client likes: the call's own timeout is what bounds it."""
        self.invite()
        while not self._content.at_eof():
            async with reading(None):
                data = self._counted(await self._content.readany())
            if data:
                self._keep(data)
                return data
        return b""

    def invite(self) -> None:
        """Tell a client that waits for it to send its body."""
        if not self._invites:
            return
        self._invites = False
        transport = self._request.transport
        if transport is not None and not self._content.total_bytes:
            transport.write(_CONTINUE)

    def rewind(self) -> bool:
        """See CallBody."""
        if self._kept is None:
            return False
        self._held = b"".join((self._held, *self._kept))
        self._kept = []
        return True

    def settle(self) -> None:
        """See CallBody."""
        self._held, self._kept = b"", None

    def _keep(self, data: bytes) -> None:
        if self._kept is None:
            return
        self._kept_left -= len(data)
        if self._kept_left < 0:
            self._kept = None
        else:
            self._kept.append(data)

    def _counted(self, data: bytes) -> bytes:
        self._count += len(data)
        if self._count > self._limit:
            raise self._too_large()
        return data

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"the request's body is larger than {self._limit} bytes")


def expects_continue(request: web.BaseRequest) -> bool:
    """Whether the client waits for 100 (Continue) (RFC 9110 §10.1.1). Raises InvalidArgument for other expectations."""
    expected = request.headers.get("Expect")
    if expected is None or request.version < (1, 1):
        return False
    if expected.strip().lower() != "100-continue":
        raise InvalidArgument(f"Expect: {expected} is not understood here", field="Expect")
    return True


@asynccontextmanager
async def reading(silence_sec: float | None) -> AsyncIterator[None]:
    """Bounds one read of a body in time, and says what is wrong with what was read, as InvalidArgument."""
    try:
        async with asyncio.timeout(silence_sec):
            yield
    except TimeoutError:
        raise InvalidArgument(f"the request's body stopped: no byte for {silence_sec} s") from None
    except (RequestPayloadError, HttpProcessingError) as error:
        raise InvalidArgument("the request's body is broken: its chunks or its length can't be read") from error


async def stream(request: web.BaseRequest, *, limit: int) -> AsyncIterator[bytes]:
    """A body in pieces, no longer held than it takes to hand it on."""
    body = RequestBody(request, limit=limit)
    while not body.complete:
        yield await body.next_soon()


async def read_json(request: web.BaseRequest) -> dict[str, Any]:
    """A JSON object. Raises UnsupportedMediaType, PayloadTooLarge, InvalidArgument with the position."""
    if request.content_type not in {"application/json", "application/octet-stream"}:
        # aiohttp says octet-stream when there is no Content-Type at all.
        raise UnsupportedMediaType(
            f"the body must be application/json, not {request.content_type}", field="Content-Type"
        )
    body = RequestBody(request, limit=limits.API_BODY_BYTES.value)
    await body.hold(limits.API_BODY_BYTES.value + 1)
    return json_object(body.held)


def json_object(data: bytes, field: str | None = None) -> dict[str, Any]:
    """The JSON object that this is: the body, or a form's field. Raises InvalidArgument with the position."""
    what = field or "the body"
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgument(f"{what} is not valid JSON: {_position(data, error)}", field=field) from None
    if not isinstance(value, dict):
        raise InvalidArgument(f"{what} must be a JSON object", field=field)
    _check_names(data, what)
    return value


def _check_names(data: bytes, what: str) -> None:
    """A name that an object has twice would mean one thing to us and another to whoever looked at it before (RFC 8259 §4)."""

    def pairs(found: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in found]
        if len(names) > len(set(names)):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgument(
                f"{what} has {json.dumps(twice[:_SHOWN_CHARS], ensure_ascii=False)} twice", field=twice
            )

    try:
        # Numbers are of no interest, and long ones would be refused.
        json.loads(data, object_pairs_hook=pairs, parse_int=len, parse_float=len)
    except RecursionError:
        raise InvalidArgument(f"{what} is nested too deeply") from None


def _position(data: bytes, error: Exception) -> str:
    """What is wrong and where: by line and column, which the fast decoder doesn't tell."""
    try:
        json.loads(data)
    except json.JSONDecodeError as exact:
        return f"{exact.msg[0].lower()}{exact.msg[1:]} at line {exact.lineno}, column {exact.colno}"
    except UnicodeDecodeError as exact:
        return f"byte {exact.start} is not UTF-8"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError:
        return "a number in it has too many digits"
    return str(error)
