"""Code in: a zip as the body, or as the field `code` of a form; handed on as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from aiohttp import BodyPartReader, MultipartReader, web
from sless_contracts import limits
from sless_platform.errors import InvalidArgument

from sless_gateway.application.uploads import Progress
from sless_gateway.errors import PayloadTooLarge, UnsupportedMediaType
from sless_gateway.http_api import shapes
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.bodies import SILENCE_SEC, RequestBody, reading, stream
from sless_gateway.http_api.exchange import Exchange

FIELD: Final = "code"

_RAW: Final = frozenset({"application/zip", "application/x-zip-compressed", "application/octet-stream"})
_FORM: Final = "multipart/form-data"
_FORM_BYTES: Final = 64 * limits.KIB
"""What a form may have beside the archive: boundaries and the field's headers."""
_PIECE_BYTES: Final = 64 * limits.KIB
_BROKEN: Final = "the form is broken: its boundaries or its field's headers can't be read"


async def upload_code(api: Api, exchange: Exchange) -> Answer:
    """A new version. `?wait=SEC` holds the answer until it serves, or can't; `?activate=false` only builds it."""
    uploaded = await api.uploads.upload(
        caller=exchange.caller,
        key=exchange.key,
        archive=_archive(exchange.request, api.archive_bytes),
        condition=exchange.condition,
        build_only=not exchange.flag("activate", default=True),
        wait=_wait(exchange),
    )
    status = 202 if uploaded.progress is Progress.UNDER_WAY else 200
    return exchange.json(status, shapes.upload(uploaded))


def _wait(exchange: Exchange) -> timedelta | None:
    text = exchange.query.get("wait")
    if text is None:
        return None
    longest = limits.WAIT_SEC.value
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) <= longest):
        raise InvalidArgument(f"wait must be from 0 to {longest} seconds, not {text!r}", field="wait")
    return timedelta(seconds=int(text)) or None


def _archive(request: web.BaseRequest, limit: int) -> AsyncIterator[bytes]:
    """The zip's bytes, wherever the request has them."""
    if request.content_type == _FORM:
        return _form_field(request, limit)
    if request.content_type in _RAW:
        return stream(request, limit=limit)
    raise UnsupportedMediaType(
        f"send the zip as application/zip, or as the field {FIELD!r} of a {_FORM}, not as {request.content_type}",
        field="Content-Type",
    )


async def _form_field(request: web.BaseRequest, limit: int) -> AsyncIterator[bytes]:
    """The bytes of the form's one field. Raises InvalidArgument when there is another, or none."""
    RequestBody(request, limit=limit + _FORM_BYTES).invite()
    form = _Form(request, limit)
    await form.open()
    while data := await form.read():
        yield data
    await form.close()


class _Form:
    """A form of one field, read by aiohttp, with bounds of ours."""

    def __init__(self, request: web.BaseRequest, limit: int) -> None:
        self._content = request.content
        self._limit = limit
        self._left = limit
        self._part: BodyPartReader | None = None
        try:
            self._reader = MultipartReader(request.headers, request.content)
        except (ValueError, AssertionError) as error:
            raise InvalidArgument(_BROKEN) from error

    async def open(self) -> None:
        """Come to the field."""
        self._part = await self._next()
        if self._part is None:
            raise InvalidArgument(f"the form has no field {FIELD!r}: send the zip in it", field=FIELD)

    async def read(self) -> bytes:
        """The field's next bytes; b"" after the last."""
        assert self._part is not None, "open() comes first"  # noqa: S101
        async with _reading_form():
            data = bytes(await self._part.read_chunk(_PIECE_BYTES))
        self._left -= len(data)
        if self._left < 0:
            raise PayloadTooLarge(f"the zip is larger than {self._limit} bytes", field=FIELD)
        return data

    async def close(self) -> None:
        """See that nothing follows."""
        await self._next()
        left = _FORM_BYTES
        while left > 0 and not self._content.at_eof():
            async with _reading_form():
                left -= len(await self._content.readany())

    async def _next(self) -> BodyPartReader | None:
        async with _reading_form():
            part = await self._reader.next()
        if part is None:
            return None
        name = part.name if isinstance(part, BodyPartReader) else None
        if not isinstance(part, BodyPartReader) or name != FIELD or self._part is not None:
            raise InvalidArgument(f"unexpected form field {name!r}: send the zip alone, in {FIELD!r}", field=name)
        return part


@asynccontextmanager
async def _reading_form() -> AsyncIterator[None]:
    try:
        async with reading(SILENCE_SEC):
            yield
    except (ValueError, AssertionError, RuntimeError) as error:  # how aiohttp's reader says that a form is broken
        raise InvalidArgument(_BROKEN) from error
