"""The four kinds of call as an RpcChannel makes them: as grpc.aio's own, with typed errors.

A unary-unary call is a coroutine. The others are objects with the methods of grpc.aio's calls that one needs (`read`, `write`,
`done_writing`, `cancel`, `async for`, `await`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import grpc

from sless_platform import tracing
from sless_platform.errors import Cancelled, PlatformError
from sless_platform.rpc.credentials import Metadata
from sless_platform.rpc.policy import Attempts, CallPolicy
from sless_platform.rpc.sending import Sender, Serializer
from sless_platform.rpc.status import from_outcome, from_rpc_error
from sless_platform.rpc.traces import TracedMethod, end_with


class MultiCallable:
    """One method of a channel; `kind` is `unary_unary`, `unary_stream`, `stream_unary` or `stream_stream`."""

    def __init__(self, inner: Any, kind: str, method: str, serialize: Serializer | None, policy: CallPolicy) -> None:
        self._inner = inner
        self._make = getattr(self, f"_{kind}")
        self._method = method
        self._traced = TracedMethod(method)
        self._serialize = serialize
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

        def start(sent: Any, left: float | None) -> Any:
            span = self._traced.calling()
            call = self._inner(
                sent,
                timeout=left,
                metadata=self._policy.metadata(metadata, tracing.current() if span is None else span.trace),
                credentials=credentials,
                wait_for_ready=wait_for_ready,
                compression=compression,
            )
            if span is not None:
                end_with(span, call)
            return call

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
        return ResponseStream(lambda: start(request, attempts.left()), attempts)

    def _stream_unary(self, requests: Any, timeout: float | None, start: Callable[..., Any]) -> RequestStream:
        attempts = self._policy.attempts(self._method, timeout, self._policy.timeout)
        return RequestStream(start(None, attempts.left()), self._method, self._serialize, requests)

    def _stream_stream(self, requests: Any, timeout: float | None, start: Callable[..., Any]) -> DuplexStream:
        attempts = self._policy.attempts(self._method, timeout, self._policy.stream_timeout)
        return DuplexStream(start(None, attempts.left()), self._method, self._serialize, requests)


class Call:
    """What every streaming call has."""

    def __init__(self, call: Any, method: str) -> None:
        self._call = call
        self._method = method

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

    async def _outcome(self) -> PlatformError:
        """How the call ended; waits for the end."""
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return Cancelled("the other side has ended the stream")
        return from_outcome(code, await self._call.details(), await self._call.trailing_metadata() or (), self._method)


class _SendingCall(Call):
    def __init__(self, call: Any, method: str, serialize: Serializer | None, requests: Any) -> None:
        super().__init__(call, method)
        self._sender = Sender(call, serialize, self._outcome)
        if requests is not None:
            self._sender.send_all(requests)

    async def write(self, request: Any) -> None:
        """Send one request. Raises how the call ended when it is over. For calls that were begun without an iterator."""
        await self._sender.write(request)

    async def done_writing(self) -> None:
        """Say that no request follows."""
        await self._sender.done_writing()

    def _raise_source_error(self) -> None:
        """The caller's iterator failed, and the call was cancelled for that."""
        if self._sender.source_error is not None:
            raise self._sender.source_error


class RequestStream(_SendingCall):
    """A call with many requests and one answer: `await` gives the answer."""

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        try:
            return await self._call
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self._method) from error
        except asyncio.CancelledError:
            self._raise_source_error()
            raise


class ResponseStream(Call):
    """A call with many answers: `async for`, or `read` until grpc.aio.EOF. Cancelling a read cancels the call.

    Until its first answer it is begun again while the service is UNAVAILABLE.
    """

    def __init__(self, start: Callable[[], Any], attempts: Attempts) -> None:
        super().__init__(start(), attempts.method)
        self._start = start
        self._attempts: Attempts | None = attempts
        self._answers = self._call.__aiter__()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while True:
            try:
                answer = await anext(self._answers)
            except grpc.aio.AioRpcError as error:
                await self._again(error)
                continue
            self._attempts = None
            return answer

    async def read(self) -> Any:
        """The next answer; grpc.aio.EOF after the last one."""
        return await anext(self, grpc.aio.EOF)

    async def _again(self, error: grpc.aio.AioRpcError) -> None:
        if self._attempts is None:
            raise from_rpc_error(error, self._method) from error
        await self._attempts.again(error)
        self._call = self._start()
        self._answers = self._call.__aiter__()


class DuplexStream(_SendingCall):
    """A call with many requests and many answers, at once."""

    def __init__(self, call: Any, method: str, serialize: Serializer | None, requests: Any) -> None:
        super().__init__(call, method, serialize, requests)
        self._answers = call.__aiter__()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return await anext(self._answers)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self._method) from error
        except asyncio.CancelledError:
            self._raise_source_error()
            raise

    async def read(self) -> Any:
        """The next answer; grpc.aio.EOF after the last one."""
        return await anext(self, grpc.aio.EOF)
