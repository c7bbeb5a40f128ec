"""Versions of a function's code, and their build logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from sless_gateway.domain import Headers
from sless_gateway.http_api import shapes
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.exchange import Exchange
from sless_gateway.http_api.functions import changed_function
from sless_gateway.http_api.streaming import streamed

_TEXT: Final[Headers] = [("Content-Type", "text/plain; charset=utf-8")]
_HEAD_SEC: Final = 1
"""How long the head of a log that is followed waits for its first line."""


async def list_versions(api: Api, exchange: Exchange) -> Answer:
    """All versions, newest first."""
    found = await api.resources.versions(caller=exchange.caller, key=exchange.key)
    return exchange.json(200, [shapes.version(version) for version in found])


async def get_version(api: Api, exchange: Exchange) -> Answer:
    """One version."""
    version = await api.resources.version(caller=exchange.caller, key=exchange.key, number=exchange.version)
    return exchange.json(200, shapes.version(version), etag=version.etag)


async def activate_version(api: Api, exchange: Exchange) -> Answer:
    """The function, on its way to being served by that version; `?wait=SEC` holds the answer until it is, or can't be."""
    changed = await api.resources.activate(
        caller=exchange.caller,
        key=exchange.key,
        number=exchange.version,
        condition=exchange.condition,
        wait=exchange.wait(),
    )
    return changed_function(api, exchange, changed)


async def get_build_log(api: Api, exchange: Exchange) -> Answer:
    """The build's log as text; with `?follow=1` until the build has ended."""
    follow = exchange.flag("follow", default=False)
    parts = api.resources.build_log(caller=exchange.caller, key=exchange.key, number=exchange.version, follow=follow)
    if not follow:
        return exchange.answer(200, _TEXT, "".join([part async for part in parts]).encode())
    return await _follow(exchange, parts)


async def _follow(exchange: Exchange, parts: AsyncIterator[str]) -> Answer:
    """The log as it grows. Its head goes out soon even when no line has come yet, but an error comes first."""
    first = asyncio.ensure_future(anext(parts, ""))
    try:
        await asyncio.wait({first}, timeout=_HEAD_SEC)
        begun = first.result() if first.done() else ""
        answer = exchange.answer(200, _TEXT)
        return await streamed(exchange.request, answer, begun.encode(), _rest(first, begun, parts))
    finally:
        first.cancel()


async def _rest(first: asyncio.Future[str], begun: str, parts: AsyncIterator[str]) -> AsyncIterator[bytes]:
    if not begun:
        yield (await first).encode()
    async for part in parts:
        yield part.encode()
