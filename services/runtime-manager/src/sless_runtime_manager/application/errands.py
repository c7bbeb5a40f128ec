"""What has to be told or asked until it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar

from sless_platform.backoff import Backoff
from sless_platform.errors import NotFound, PlatformError
from sless_platform.logging import get_logger

T = TypeVar("T")
log = get_logger(__name__)

_PAUSES: Final = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=2))


async def until_answered(what: str, function_uid: str, ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of `ask`, asked again with growing pauses whatever it raises. Raises NotFound alone."""
    pauses = _PAUSES.delays()
    while True:
        try:
            return await ask()
        except NotFound:
            raise
        except PlatformError as error:
            log.warning(
                "will be tried again", what=what, function=function_uid, reason=error.reason, error=error.message
            )
            await asyncio.sleep(next(pauses).total_seconds())
