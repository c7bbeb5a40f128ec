"""Giving up a call whose requests are not complete."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from sless_platform.errors import PlatformError

_LIMIT_SEC: Final = 2


async def abandon(stream: Any, nonsense: Any) -> None:
    """End a streaming call in the midst of its requests, so that the server cannot take what it has for all of them.

    grpc.aio ends a servicer's request iterator for a cancellation as it does for a half-close, and only then cancels
    the servicer: for a moment a body that was cut looks like a whole one. So a message that makes no sense goes first,
    which the server must refuse; the cancellation is for one that does not read.
    """
    try:
        with suppress(PlatformError, TimeoutError):
            async with asyncio.timeout(_LIMIT_SEC):
                await stream.write(nonsense)
                await stream.code()
    finally:
        stream.cancel()
