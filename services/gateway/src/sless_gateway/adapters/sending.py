"""The requests of a streaming call, such that a server can never take those that it has for all of them.

grpc.aio ends a servicer's request iterator for a cancelled call as it does for a half-close, and only then cancels the
servicer: for a moment a body that was cut looks like a whole one. And cancelling whoever awaits a call's read or write
cancels the call. So requests are sent by a task of their own, which is not interrupted while it writes, and a call that
is given up gets a message that makes no sense before it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Final, TypeVar

from sless_platform.errors import PlatformError

_LIMIT_SEC: Final = 2
"""How long a call that is given up waits for a server that does not read."""

T = TypeVar("T")


class Sending:
    """Sends the requests of one call. `nonsense`: a request that the server must refuse.

    `sent`: whether all requests have gone out. `broken`: what the requests' own source raised; the call is over then.
    """

    def __init__(self, stream: Any, requests: AsyncGenerator[Any, None], nonsense: Any) -> None:
        self.sent = False
        self.broken: Exception | None = None
        self._stream = stream
        self._nonsense = nonsense
        self._writing = False
        self._stopping = False
        self._task = asyncio.create_task(self._send(requests))

    async def first_of(self, answer: asyncio.Future[Any]) -> None:
        """Until the requests have been sent, or can't be, or `answer` is there."""
        await asyncio.wait({self._task, answer}, return_when=asyncio.FIRST_COMPLETED)

    async def outcome(self, answer: asyncio.Future[T]) -> T:
        """What the call answers. Raises `broken` when that is why the call is over; cancelling this leaves `answer` alone."""
        try:
            return await asyncio.shield(answer)
        except (PlatformError, asyncio.CancelledError):
            task = asyncio.current_task()
            if self.broken is None or (task is not None and task.cancelling()):
                raise
            raise self.broken from None

    async def stop(self) -> None:
        """Send no more; a request that is being sent is not cut."""
        self._stopping = True
        if self.broken is None and not self._writing:
            self._task.cancel()
        _, running = await asyncio.wait({self._task}, timeout=_LIMIT_SEC)
        if running:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def give_up(self) -> None:
        """End the call unless it is over, or all of its requests have been sent, which is for the caller to cancel."""
        if self.sent or self._stream.done():
            return
        try:
            with suppress(PlatformError, TimeoutError):
                async with asyncio.timeout(_LIMIT_SEC):
                    await self._stream.write(self._nonsense)
                    await self._stream.code()
        finally:
            self._stream.cancel()

    async def _send(self, requests: AsyncGenerator[Any, None]) -> None:
        try:
            async with aclosing(requests):
                async for request in requests:
                    if not await self._write(request):
                        return
        except Exception as error:  # noqa: BLE001 - raised by outcome()
            self.broken = error
            await self.give_up()
            return
        with suppress(PlatformError):
            await self._stream.done_writing()
        self.sent = True

    async def _write(self, request: Any) -> bool:
        """Whether more may follow. How a call ended is told to whoever reads its answer."""
        self._writing = True
        try:
            await self._stream.write(request)
        except PlatformError:
            return False
        finally:
            self._writing = False
        return not self._stopping
