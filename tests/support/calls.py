"""What functions behind a fake invoker do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from sless_platform.errors import PlatformError

from tests.support.fake_services import Call, echo, more, reply


def answers(body: bytes = b"", **options: Any) -> Call:
    """Answers at once, the same to everyone."""

    async def call(_head: Any, _body: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        yield reply(body, **options)

    return call


def refuses(error: PlatformError) -> Call:
    """Is refused by the invoker before anything of the body is read."""

    async def call(_head: Any, _body: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        raise error
        yield

    return call


def waits_for(release: asyncio.Event) -> Call:
    """Answers the body once it is released."""

    async def call(head: Any, body: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        await release.wait()
        async for message in echo(head, body):
            yield message

    return call


def streams(*parts: bytes, then: BaseException | None = None, **options: Any) -> Call:
    """Answers part by part; breaks off at the end when it has something to raise."""

    async def call(_head: Any, _body: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        yield reply(parts[0] if parts else b"", end=False, **options)
        for part in parts[1:]:
            yield more(part)
        if then is not None:
            raise then

    return call


def echoes_as_it_comes() -> Call:
    """Answers each piece of the body when it comes."""

    async def call(_head: Any, body: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        yield reply(end=False)
        async for piece in body:
            yield more(piece)

    return call
