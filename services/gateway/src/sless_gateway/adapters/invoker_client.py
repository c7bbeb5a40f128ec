"""invoker over gRPC: calls, streamed both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import grpc
from sless.invoker.v1 import invoker_pb2 as pb
from sless.invoker.v1 import invoker_pb2_grpc
from sless.registry.v1.registry_pb2 import FUNCTION_KIND_UNSPECIFIED
from sless_platform.errors import Internal, Unavailable
from sless_platform.rpc.client import NO_DEADLINE, RpcChannel, with_identity

from sless_gateway.adapters.convert import KIND_TO_PROTO
from sless_gateway.adapters.sending import Sending
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
        self._ending: set[asyncio.Task[None]] = set()

    async def open(self, call: Call, body: CallBody, *, caller: Caller | None) -> StreamedCall:
        """See Invoker. One timeout bounds a call, its function's, and the invoker keeps it; here is none."""
        await self._connected()
        identity = None if caller is None else with_identity(caller.identities["invoker"])
        opened = StreamedCall(self._stub.Invoke(metadata=identity, timeout=NO_DEADLINE), self._end)
        try:
            await opened.begin(_head(call), body)
        except BaseException:
            await opened.close()
            raise
        return opened

    async def close(self) -> None:
        """Wait for calls whose answers are complete."""
        if self._ending:
            await asyncio.wait(self._ending)

    def _end(self, stream: Any) -> None:
        """Let a call whose answer is complete come to its end, without its client: cancelling it would tell the invoker
        that the client went away before.
        """
        ending = asyncio.create_task(_ended(stream))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _connected(self) -> None:
        """Wait for a connection before anything is sent: a call that was not sent can't have been made twice."""
        if self._channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                await self._channel.channel_ready()
        except TimeoutError:
            raise Unavailable("functions can't be called right now; try again") from None


async def _ended(stream: Any) -> None:
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SEC):
                await stream.code()
    finally:
        stream.cancel()


class StreamedCall:
    """The port OpenCall. `end` is given the stream of a call whose answer is complete."""

    def __init__(self, stream: Any, end: Callable[[Any], None]) -> None:
        self._stream = stream
        self._end = end
        self._sending: Sending | None = None
        self._reading: asyncio.Future[Any] | None = None
        self._reply: Reply | None = None
        self._ended = False

    @property
    def reply(self) -> Reply:
        """See OpenCall."""
        assert self._reply is not None, "begin() comes first"  # noqa: S101
        return self._reply

    async def begin(self, head: pb.CallHead, body: CallBody) -> None:
        """Send the head, go on sending the body, and wait for the answer's head."""
        if body.complete and len(body.held) <= _PIECE_BYTES:
            head.first_body, head.end = body.held, True
            await self._stream.write(pb.InvokeRequest(head=head))
        else:
            self._sending = Sending(self._stream, _requests(head, body))
        self._take(await self._read())

    async def _read(self) -> Any:
        if self._sending is None:
            return await self._stream.read()
        self._reading = asyncio.ensure_future(self._stream.read())
        return await self._sending.outcome(self._reading)

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
        try:
            if self._sending is not None:
                await self._sending.stop()
                if not self._ended:
                    self._sending.give_up()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._ended and not self._stream.done():
            self._end(self._stream)
        else:
            self._stream.cancel()
        if self._reading is not None:
            self._reading.cancel()


async def _requests(head: pb.CallHead, body: CallBody) -> AsyncGenerator[pb.InvokeRequest, None]:
    yield pb.InvokeRequest(head=head)
    data = body.held
    while data:
        for start in range(0, len(data), _PIECE_BYTES):
            yield pb.InvokeRequest(body=data[start : start + _PIECE_BYTES])
        data = b"" if body.complete else await body.read()
    yield pb.InvokeRequest(end=True)


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
        invocation_id=call.invocation_id,
        kind=FUNCTION_KIND_UNSPECIFIED if call.kind is None else KIND_TO_PROTO[call.kind],
        owner_authenticated=call.owner_authenticated,
    )
