"""Streams that are followed for as long as the service runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from sless_platform.backoff import Backoff
from sless_platform.errors import PlatformError
from sless_platform.logging import get_logger

_BACKOFF: Final = Backoff(timedelta(milliseconds=50), timedelta(seconds=1), factor=2)

log = get_logger(__name__)


async def follow(stream: Callable[[], Awaitable[None]], *, following: asyncio.Event, what: str) -> None:
    """Runs `stream` again and again until cancelled, with growing pauses while the other side is away.

    `stream` sets `following` once it has caught up; then the pauses begin small again.
    """
    delays = _BACKOFF.delays()
    while True:
        try:
            await stream()
        except PlatformError as error:
            log.info("a watch ended and begins again", of=what, error=error.message)
        if following.is_set():
            delays = _BACKOFF.delays()
        following.clear()
        await asyncio.sleep(next(delays).total_seconds())
