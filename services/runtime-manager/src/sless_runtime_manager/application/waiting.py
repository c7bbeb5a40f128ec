"""Waiting for whichever comes first."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any


async def first(*futures: asyncio.Future[Any], within: timedelta | None = None) -> None:
    """Returns when one of them is done, or after `within`. Cancels none of them."""
    timeout = None if within is None else within.total_seconds()
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


async def abandon(task: asyncio.Future[Any]) -> None:
    """Cancel what isn't needed any more and wait until it is over; how it ended has been looked at, or doesn't matter."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
