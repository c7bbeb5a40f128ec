"""The requests of one streaming call.

grpc.aio's own `write` and request iterators are not used: when a send meets a call that the server has just ended, they overwrite the
server's status by an INTERNAL of their own or cancel the call, and why an upload was refused is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any

import grpc

from sless_platform.errors import PlatformError

Serializer = Callable[[Any], bytes]


class Sender:
    """Writes requests to a call that was begun without a request iterator."""

    def __init__(
        self, call: Any, serialize: Serializer | None, outcome: Callable[[], Awaitable[PlatformError]]
    ) -> None:
        """`outcome` waits for the call's status and gives it as an error."""
        self._call = call
        # What is below grpc.aio's `write`: sends, and leaves the call's status to whoever receives it.
        self._wire = call._cython_call
        self._serialize = serialize or bytes
        self._outcome = outcome
        self._closed = False
        self._pump: asyncio.Task[None] | None = None
        self.source_error: Exception | None = None
        """What the caller's own request iterator raised."""

    async def write(self, request: Any) -> None:
        """Send one request. Raises how the call ended when it is over, ValueError after `done_writing`."""
        if self._closed:
            raise ValueError("written after done_writing")
        await self._send(self._wire.send_serialized_message, self._serialize(request))

    async def done_writing(self) -> None:
        """Say that no request follows; nothing when that was said or the call is over."""
        if self._closed or self._call.done():
            return
        self._closed = True
        await self._send(self._wire.send_receive_close)

    def send_all(self, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
        """Send all of the requests and `done_writing`, beside the caller; ends when the call does."""
        self._pump = asyncio.create_task(self._sent(requests))
        self._call.add_done_callback(self._stop)

    async def _send(self, send: Callable[..., Awaitable[None]], *message: bytes) -> None:
        try:
            await self._call.wait_for_connection()
            if not self._call.done():
                await send(*message)
                return
        except grpc.aio.AioRpcError as error:
            raise await self._outcome() from error
        except grpc.aio.InternalError as error:
            raise await self._outcome() from error
        except asyncio.CancelledError:
            self._call.cancel()
            raise
        raise await self._outcome()

    async def _sent(self, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
        try:
            if isinstance(requests, AsyncIterable):
                async for request in requests:
                    await self._write_or_stop(request)
            else:
                for request in requests:
                    await self._write_or_stop(request)
            await self.done_writing()
        except _CallIsOver:
            return
        except Exception as error:  # noqa: BLE001 - raised to whoever awaits the call
            self.source_error = error
            self._call.cancel()

    async def _write_or_stop(self, request: Any) -> None:
        try:
            await self.write(request)
        except PlatformError as error:
            raise _CallIsOver from error

    def _stop(self, _call: Any) -> None:
        if self._pump is not None:
            self._pump.cancel()


class _CallIsOver(Exception):
    """Ends the sending."""
