"""The request's body beyond what its CALL frame carries: sent as the instance gives credit."""

import asyncio
from collections.abc import Awaitable, Callable

from sless_calls import frames

Transmit = Callable[[bytes], None]
Writable = Callable[[], Awaitable[None]]


class Upload:
    """Writes BODY and END frames of one call within its window.

    `window` is what is left of the 1 MiB after the CALL frame.
    """

    __slots__ = ("_call_id", "_end", "_end_sent", "_rest", "_stopped", "_transmit", "_waiter", "_window")

    def __init__(self, call_id: int, transmit: Transmit, *, window: int, rest: memoryview, end: bool) -> None:
        self._call_id = call_id
        self._transmit = transmit
        self._window = window
        self._rest = rest
        self._end = end
        self._end_sent = False
        self._stopped = False
        self._waiter: asyncio.Future[None] | None = None
        self._pump()

    async def send(self, chunk: bytes, writable: Writable) -> None:
        """Send all of `chunk`, waiting for the socket and for credit; returns early once stopped."""
        if self._end:
            raise RuntimeError("the body of this call has been ended: nothing can follow it")
        view = memoryview(chunk)
        while view and not self._stopped:
            await writable()
            if self._rest or self._window <= 0:
                await self._credit()
            elif not self._stopped:
                view = self._write(view)

    def end(self) -> None:
        """Nothing follows what was given so far."""
        self._end = True
        self._pump()

    def credit(self, amount: int) -> None:
        """The instance takes so many bytes more."""
        self._window += amount
        self._pump()
        self._wake()

    def stop(self) -> None:
        """The call is over or cancelled: send nothing more and let a waiting sender go."""
        self._stopped = True
        self._rest = memoryview(b"")
        self._wake()

    def _pump(self) -> None:
        while self._rest and self._window > 0:
            self._rest = self._write(self._rest)
        if self._end and not self._rest and not self._end_sent and not self._stopped:
            self._end_sent = True
            self._transmit(frames.frame(frames.END, self._call_id))

    def _write(self, view: memoryview) -> memoryview:
        size = min(len(view), self._window, frames.MAX_BODY)
        self._window -= size
        self._transmit(frames.frame(frames.BODY, self._call_id, view[:size]))
        return view[size:]

    async def _credit(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
