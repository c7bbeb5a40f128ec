"""Code in: a zip as the body, or as the field `code` of a form, with configuration in its field `config`; handed on as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import BodyPartReader, MultipartReader, web
from sless_contracts import limits
from sless_platform.errors import InvalidArgument

from sless_gateway.application.uploads import Progress
from sless_gateway.domain import ConfigChange
from sless_gateway.errors import PayloadTooLarge, UnsupportedMediaType
from sless_gateway.http_api import shapes
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.bodies import SILENCE_SEC, RequestBody, json_object, reading, stream
from sless_gateway.http_api.exchange import Exchange
from sless_gateway.http_api.forms import config_change

CODE: Final = "code"
CONFIG: Final = "config"

_RAW: Final = frozenset({"application/zip", "application/x-zip-compressed", "application/octet-stream"})
_FORM: Final = "multipart/form-data"
_FORM_BYTES: Final = 64 * limits.KIB
"""What a form may have beside its fields' content: boundaries and headers."""
_CONFIG_BYTES: Final = limits.API_BODY_BYTES.value
_PIECE_BYTES: Final = 64 * limits.KIB
_BROKEN: Final = "the form is broken: its boundaries or its field's headers can't be read"


async def upload_code(api: Api, exchange: Exchange) -> Answer:
    """A new version. `?wait=SEC` holds the answer until it serves, or can't; `?activate=false` only builds it."""
    uploaded = await api.uploads.upload(
        caller=exchange.caller,
        key=exchange.key,
        parts=_parts(exchange, api.archive_bytes),
        condition=exchange.condition,
        build_only=not exchange.flag("activate", default=True),
        wait=exchange.wait(),
    )
    status = 202 if uploaded.progress is Progress.UNDER_WAY else 200
    return exchange.json(status, shapes.upload(uploaded))


def _parts(exchange: Exchange, limit: int) -> AsyncIterator[bytes | ConfigChange]:
    """The zip's bytes, wherever the request has them, and the configuration that a form may have beside them."""
    request = exchange.request
    if request.content_type == _FORM:
        return _form_parts(exchange, limit)
    if request.content_type in _RAW:
        return stream(request, limit=limit)
    raise UnsupportedMediaType(
        f"send the zip as application/zip, or as the field {CODE!r} of a {_FORM}, not as {request.content_type}",
        field="Content-Type",
    )


async def _form_parts(exchange: Exchange, limit: int) -> AsyncIterator[bytes | ConfigChange]:
    """What is in the form's fields, in their order. Raises InvalidArgument when there is another one, or no code."""
    RequestBody(exchange.request, limit=limit + _CONFIG_BYTES + _FORM_BYTES).invite()
    form = _Form(exchange.request, limit)
    while (name := await form.next()) is not None:
        if name == CONFIG:
            change = config_change(json_object(await form.whole(), CONFIG), exchange.key)
            if change is not None:
                yield change
        else:
            while data := await form.read():
                yield data
    await form.close()


class _Form:
    """A form of two fields, read by aiohttp, with bounds of ours."""

    def __init__(self, request: web.BaseRequest, limit: int) -> None:
        self._content = request.content
        self._limit = limit
        self._left = limit
        self._seen: set[str] = set()
        self._part: BodyPartReader | None = None
        try:
            self._reader = MultipartReader(request.headers, request.content)
        except (ValueError, AssertionError) as error:
            raise InvalidArgument(_BROKEN) from error

    async def next(self) -> str | None:
        """Come to the next field; gives its name, None at the form's end."""
        async with _reading_form():
            part = await self._reader.next()
        if part is None:
            return None
        name = part.name if isinstance(part, BodyPartReader) else None
        if not isinstance(part, BodyPartReader) or name not in (CODE, CONFIG) or name in self._seen:
            again = " a second time" if name in self._seen else ""
            raise InvalidArgument(
                f"unexpected form field {name!r}{again}: send the zip in {CODE!r}, and configuration in {CONFIG!r}",
                field=name,
            )
        self._seen.add(name)
        self._part = part
        return name

    async def read(self) -> bytes:
        """The zip's next bytes; b"" after the last."""
        data = await self._read()
        self._left -= len(data)
        if self._left < 0:
            raise PayloadTooLarge(f"the zip is larger than {self._limit} bytes", field=CODE)
        return data

    async def whole(self) -> bytes:
        """All of a field that is small."""
        held = bytearray()
        while data := await self._read():
            held += data
            if len(held) > _CONFIG_BYTES:
                raise PayloadTooLarge(f"config is larger than {_CONFIG_BYTES} bytes", field=CONFIG)
        return bytes(held)

    async def close(self) -> None:
        """See that the zip was there, and that nothing much follows."""
        if CODE not in self._seen:
            raise InvalidArgument(f"the form has no field {CODE!r}: send the zip in it", field=CODE)
        left = _FORM_BYTES
        while left > 0 and not self._content.at_eof():
            async with _reading_form():
                left -= len(await self._content.readany())

    async def _read(self) -> bytes:
        assert self._part is not None, "next() comes first"  # noqa: S101
        async with _reading_form():
            return bytes(await self._part.read_chunk(_PIECE_BYTES))


@asynccontextmanager
async def _reading_form() -> AsyncIterator[None]:
    try:
        async with reading(SILENCE_SEC):
            yield
    except (ValueError, AssertionError, RuntimeError) as error:  # how aiohttp's reader says that a form is broken
        raise InvalidArgument(_BROKEN) from error
