"""The four kinds of call as an RpcChannel makes them: as grpc.aio's own, with typed errors.

A unary-unary call is a coroutine. The others are objects with the methods of grpc.aio's calls that one needs (`read`, `write`,
`done_writing`, `cancel`, `async for`, `await`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from typing import Any

import grpc

from sless_platform.errors import Cancelled, PlatformError
from sless_platform.rpc.credentials import Metadata
from sless_platform.rpc.policy import Attempts, CallPolicy
from sless_platform.rpc.status import from_outcome, from_rpc_error

Start = Callable[[float | None], Any]
"""Starts the underlying call with so many seconds left."""


class MultiCallable:
    """One method of a channel; `kind` is `unary_unary`, `unary_stream`, `stream_unary` or `stream_stream`."""

    def __init__(self, inner: Any, kind: str, method: str, policy: CallPolicy) -> None:
        self._inner = inner
        self._make = getattr(self, f"_{kind}")
        self._method = method
        self._policy = policy

    def __call__(
        self,
        request: Any = None,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """As grpc.aio's. `timeout` in seconds; None: the channel's default."""

        def start(source: Any, left: float | None) -> Any:
            return self._inner(
                source,
                timeout=left,
                metadata=self._policy.metadata(metadata),
                credentials=credentials,
                wait_for_ready=wait_for_ready,
                compression=compression,
            )

        return self._make(request, timeout, start)

    async def _unary_unary(self, request: Any, timeout: float | None, start: Callable[..., Any]) -> Any:  # noqa: ASYNC109
        attempts = self._policy.attempts(self._method, timeout, self._policy.timeout)
        while True:
            try:
                return await start(request, attempts.left())
            except grpc.aio.AioRpcError as error:
                await attempts.again(error)

    def _unary_stream(self, request: Any, timeout: float | None, start: Callable[..., Any]) -> ResponseStream:
        attempts = self._policy.attempts(self._method, timeout, self._policy.stream_timeout)
        return ResponseStream(lambda left: start(request, left), attempts, repeatable=True)

    def _stream_unary(self, requests: Any, timeout: float | None, start: Callable[..., Any]) -> RequestStream:
        attempts = self._policy.attempts(self._method, timeout, self._policy.timeout)
        source = _Source.of(requests)
        return RequestStream(start(source, attempts.left()), self._method, source)

    def _stream_stream(self, requests: Any, timeout: float | None, start: Callable[..., Any]) -> DuplexStream:
        attempts = self._policy.attempts(self._method, timeout, self._policy.stream_timeout)
        source = _Source.of(requests)
        return DuplexStream(lambda left: start(source, left), attempts, source)


class _Source:
    """A caller's request iterator. gRPC turns an error in it into a cancellation; this keeps it to be raised instead."""

    def __init__(self, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
        self._requests = requests
        self.error: Exception | None = None

    @classmethod
    def of(cls, requests: Any) -> _Source | None:
        return None if requests is None else cls(requests)

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            if isinstance(self._requests, AsyncIterable):
                async for request in self._requests:
                    yield request
            else:
                for request in self._requests:
                    yield request
        except Exception as error:
            self.error = error
            raise


class _Call:
    """What every kind of call has."""

    def __init__(self, method: str, source: _Source | None) -> None:
        self._method = method
        self._source = source

    @property
    def _call(self) -> Any:
        raise NotImplementedError

    def cancel(self) -> bool:
        """Give the call up; who awaits it gets asyncio.CancelledError. False when it was over already."""
        return bool(self._call.cancel())

    def done(self) -> bool:
        """Whether the call is over."""
        return bool(self._call.done())

    async def initial_metadata(self) -> Any:
        """What the server sent before its first answer."""
        return await self._call.initial_metadata()

    async def trailing_metadata(self) -> Any:
        """What the server sent at the end; waits for the end."""
        return await self._call.trailing_metadata()

    async def code(self) -> grpc.StatusCode:
        """How the call ended; waits for the end."""
        code: grpc.StatusCode = await self._call.code()
        return code

    def _raise_source_error(self) -> None:
        if self._source is not None and self._source.error is not None:
            raise self._source.error

    async def _outcome(self) -> PlatformError:
        """Why a write found the call over."""
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return Cancelled("the other side has ended the stream")
        return from_outcome(code, await self._call.details(), await self._call.trailing_metadata() or (), self._method)


class _Writes(_Call):
    async def write(self, request: Any) -> None:
        """Send one request. Raises how the call ended when it is over. For calls that were begun without an iterator."""
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self._method) from error
        except asyncio.InvalidStateError as error:
            if not self._call.done():
                raise  # written after done_writing: the caller's mistake
            raise await self._outcome() from error

    async def done_writing(self) -> None:
        """Say that no request follows."""
        await self._call.done_writing()


class RequestStream(_Writes):
    """A call with many requests and one answer: `await` gives the answer."""

    def __init__(self, call: Any, method: str, source: _Source | None) -> None:
        super().__init__(method, source)
        self._started = call

    @property
    def _call(self) -> Any:
        return self._started

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        try:
            return await self._started
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self._method) from error
        except asyncio.CancelledError:
            self._raise_source_error()
            raise


class ResponseStream(_Call):
    """A call with many answers: `async for`, or `read` until grpc.aio.EOF. Cancelling a read cancels the call."""

    def __init__(self, start: Start, attempts: Attempts, *, repeatable: bool, source: _Source | None = None) -> None:
        super().__init__(attempts.method, source)
        self._start = start
        self._attempts = attempts
        self._repeatable = repeatable
        self._begin()

    @property
    def _call(self) -> Any:
        return self._started

    def _begin(self) -> None:
        self._started = self._start(self._attempts.left())
        self._answers = self._started.__aiter__()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while True:
            try:
                answer = await anext(self._answers)
            except grpc.aio.AioRpcError as error:
                await self._again(error)
                continue
            except asyncio.CancelledError:
                self._raise_source_error()
                raise
            self._repeatable = False
            return answer

    async def read(self) -> Any:
        """The next answer; grpc.aio.EOF after the last one."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            return grpc.aio.EOF

    async def _again(self, error: grpc.aio.AioRpcError) -> None:
        """Begin anew when nothing was answered yet and the error lets one hope; raise it otherwise."""
        if not self._repeatable:
            raise from_rpc_error(error, self._method) from error
        await self._attempts.again(error)
        self._begin()


class DuplexStream(ResponseStream, _Writes):
    """A call with many requests and many answers, at once."""

    def __init__(self, start: Start, attempts: Attempts, source: _Source | None) -> None:
        super().__init__(start, attempts, repeatable=False, source=source)
