"""The requests of a streaming call, sent by a task of their own.

Cancelling whoever awaits a grpc.aio call's read or write cancels the call; the task is not interrupted while it writes.
The last request says that it is the last, so a call that is given up half-way can't be taken for a whole one.
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
    """Sends the requests of one call.

    `sent`: whether all requests have gone out. `broken`: what the requests' own source raised; the call is over then.
    """

    def __init__(self, stream: Any, requests: AsyncGenerator[Any, None]) -> None:
        self.sent = False
        self.broken: Exception | None = None
        self._stream = stream
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

    def give_up(self) -> None:
        """End the call unless it is over, or all of its requests have been sent, which is for the caller to cancel."""
        if self.sent or self._stream.done():
            return
        self._stream.cancel()

    async def _send(self, requests: AsyncGenerator[Any, None]) -> None:
        try:
            async with aclosing(requests):
                async for request in requests:
                    if not await self._write(request):
                        return
        except Exception as error:  # noqa: BLE001 - raised by outcome()
            self.broken = error
            self.give_up()
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
