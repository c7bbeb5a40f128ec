"""invoker over gRPC: calls, streamed both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import grpc
from sless.invoker.v1 import invoker_pb2 as pb
from sless.invoker.v1 import invoker_pb2_grpc
from sless.registry.v1.registry_pb2 import FUNCTION_KIND_UNSPECIFIED
from sless_platform.errors import Internal, PlatformError, Unavailable
from sless_platform.rpc.client import NO_DEADLINE, RpcChannel, with_identity

from sless_gateway.adapters.convert import KIND_TO_PROTO
from sless_gateway.domain import Call, CallBody, Caller, Reply, Trigger

_PIECE_BYTES: Final = 256 * 1024
_CONNECT_SEC: Final = 5
"""How long a call waits for an invoker that is starting again."""
_END_SEC: Final = 5
"""How long a complete answer waits for the call's end."""
_TRIGGER: Final = {Trigger.HTTP: pb.TRIGGER_HTTP, Trigger.INVOKE: pb.TRIGGER_INVOKE}


class InvokerClient:
    """The port Invoker."""

    def __init__(self, channel: RpcChannel) -> None:
        self._channel = channel.channel
        self._stub = invoker_pb2_grpc.InvokerServiceStub(channel.channel)

    async def open(self, call: Call, body: CallBody, *, caller: Caller | None) -> StreamedCall:
        """See Invoker. One timeout bounds a call, its function's, and the invoker keeps it; here is none."""
        await self._connected()
        identity = None if caller is None else with_identity(caller.identities["invoker"])
        opened = StreamedCall(self._stub.Invoke(metadata=identity, timeout=NO_DEADLINE))
        try:
            await opened.begin(_head(call), body)
        except BaseException:
            await opened.close()
            raise
        return opened

    async def _connected(self) -> None:
        """Wait for a connection before anything is sent: a call that was not sent can't have been made twice."""
        if self._channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                await self._channel.channel_ready()
        except TimeoutError:
            raise Unavailable("functions can't be called right now; try again") from None


class StreamedCall:
    """The port OpenCall."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._sending: asyncio.Task[None] | None = None
        self._reply: Reply | None = None
        self._ended = False

    @property
    def reply(self) -> Reply:
        """See OpenCall."""
        assert self._reply is not None, "begin() comes first"  # noqa: S101
        return self._reply

    async def begin(self, head: pb.CallHead, body: CallBody) -> None:
        """Send the head, go on sending the body, and wait for the answer's head."""
        held = body.held
        if body.complete and len(held) <= _PIECE_BYTES:
            head.first_body, head.end = held, True
            await self._stream.write(pb.InvokeRequest(head=head))
        else:
            await self._stream.write(pb.InvokeRequest(head=head))
            self._sending = asyncio.create_task(self._send(held, body))
            self._sending.add_done_callback(self._sent)
        self._take(await self._read())

    async def _send(self, data: bytes, body: CallBody) -> None:
        """Raises only what is wrong with the body; how the call itself ends is told to whoever reads its answer."""
        while data:
            for start in range(0, len(data), _PIECE_BYTES):
                if not await self._write(pb.InvokeRequest(body=data[start : start + _PIECE_BYTES])):
                    return
            data = b"" if body.complete else await body.read()
        with suppress(PlatformError, asyncio.InvalidStateError):
            await self._stream.done_writing()

    async def _write(self, request: pb.InvokeRequest) -> bool:
        try:
            await self._stream.write(request)
        except PlatformError:
            return False
        return True

    def _sent(self, sending: asyncio.Task[None]) -> None:
        if not sending.cancelled() and sending.exception() is not None:
            self._stream.cancel()  # a call whose body has broken off can't be answered

    async def _read(self) -> Any:
        try:
            return await self._stream.read()
        except asyncio.CancelledError:
            error = self._body_error()
            if error is None:
                raise
            raise error from None

    def _body_error(self) -> BaseException | None:
        """Why the call was cancelled by ourselves; None when it wasn't."""
        task = asyncio.current_task()
        if self._sending is None or not self._sending.done() or (task is not None and task.cancelling()):
            return None
        return None if self._sending.cancelled() else self._sending.exception()

    def _take(self, first: Any) -> None:
        if first is grpc.aio.EOF or first.WhichOneof("message") != "head":
            raise Internal("the call was ended without an answer")
        head = first.head
        self._ended = head.end
        self._reply = Reply(
            status=head.status,
            headers=[(header.name, header.value) for header in head.headers],
            invocation_id=head.invocation_id,
            first=head.first_body,
            complete=head.end,
        )

    async def rest(self) -> AsyncIterator[bytes]:
        """See OpenCall."""
        while (message := await self._read()) is not grpc.aio.EOF:
            yield message.body
        self._ended = True

    async def close(self) -> None:
        """See OpenCall."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})
        if self._ended:
            await self._end()
        self._stream.cancel()

    async def _end(self) -> None:
        """Let a call whose answer is complete come to its end: cancelling it would tell the invoker that we went away."""
        try:
            async with asyncio.timeout(_END_SEC):
                await self._stream.code()
        except TimeoutError:
            pass


def _head(call: Call) -> pb.CallHead:
    return pb.CallHead(
        namespace=call.namespace,
        name=call.name,
        trigger=_TRIGGER[call.trigger],
        method=call.method,
        path=call.path,
        query=call.query,
        headers=[pb.Header(name=name, value=value) for name, value in call.headers],
        request_id=call.request_id,
        traceparent=call.traceparent,
        invocation_id=call.invocation_id,
        kind=FUNCTION_KIND_UNSPECIFIED if call.kind is None else KIND_TO_PROTO[call.kind],
        owner_authenticated=call.owner_authenticated,
    )
