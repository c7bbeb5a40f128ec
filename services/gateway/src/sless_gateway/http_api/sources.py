"""A version's source: its files as JSON, or the zip as it was uploaded. One way for functions and services."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

import msgspec

from sless_gateway.domain import Headers, SourceFile, SourceHead
from sless_gateway.http_api import shapes
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.errors import JSON_TYPE
from sless_gateway.http_api.exchange import Exchange
from sless_gateway.http_api.negotiation import rather
from sless_gateway.http_api.streaming import streamed

ZIP_TYPE: Final = "application/zip"


async def get_source(api: Api, exchange: Exchange) -> Answer:
    """The source of a version, or of what serves (the newest while nothing does): JSON, or the zip for `Accept: application/zip`."""
    number = exchange.version if "version" in exchange.params else None
    accept = exchange.request.headers.getall("Accept", ())
    if rather(accept, ZIP_TYPE, "application/json"):
        archive = api.resources.archive(caller=exchange.caller, key=exchange.key, number=number)
        async with aclosing(archive):
            return await _zip(exchange, archive)
    source = api.resources.source(caller=exchange.caller, key=exchange.key, number=number)
    async with aclosing(source):
        return await _json(exchange, source)


async def _zip(exchange: Exchange, archive: AsyncGenerator[SourceHead | bytes, None]) -> Answer:
    head = await anext(archive)
    assert isinstance(head, SourceHead), "a source begins with its head"  # noqa: S101
    name = f"{exchange.key.name}-{head.version}.zip"
    headers: Headers = [
        ("Content-Type", ZIP_TYPE),
        ("Content-Disposition", f'attachment; filename="{name}"'),
        *_varying(f"{head.uid}-zip"),
    ]
    answer = exchange.answer(200, headers, length=head.archive_bytes)
    return await streamed(exchange.request, answer, b"", _bytes(archive))


async def _bytes(archive: AsyncIterator[SourceHead | bytes]) -> AsyncIterator[bytes]:
    async for piece in archive:
        if isinstance(piece, bytes):
            yield piece


async def _json(exchange: Exchange, source: AsyncGenerator[SourceHead | SourceFile, None]) -> Answer:
    head = await anext(source)
    assert isinstance(head, SourceHead), "a source begins with its head"  # noqa: S101
    answer = exchange.answer(200, [("Content-Type", JSON_TYPE), *_varying(head.uid)])
    return await streamed(exchange.request, answer, b"", _written(head, source))


async def _written(head: SourceHead, source: AsyncIterator[SourceHead | SourceFile]) -> AsyncIterator[bytes]:
    """A SourceShape, one file at a time: never the whole in memory."""
    empty = msgspec.json.encode(shapes.SourceShape(head.version, head.entrypoint, [], truncated=False))
    begin, _, _ = empty.partition(b"[")
    yield begin + b"["
    count = 0
    async for file in source:
        if isinstance(file, SourceFile):
            yield (b"," if count else b"") + msgspec.json.encode(_file(file))
            count += 1
    yield b'],"truncated":' + (b"true" if count < head.files else b"false") + b"}"


def _file(file: SourceFile) -> shapes.SourceFileShape:
    """The file as text where it is text, so that a client need not guess."""
    size = len(file.content)
    if b"\0" not in file.content:
        try:
            return shapes.SourceFileShape(file.path, size, "utf-8", file.content.decode())
        except UnicodeDecodeError:
            pass
    return shapes.SourceFileShape(file.path, size, "base64", base64.b64encode(file.content).decode())


def _varying(etag: str) -> Headers:
    return [("ETag", f'"{etag}"'), ("Vary", "Accept")]
