"""InvokerService over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import grpc
from sless.invoker.v1 import invoker_pb2, invoker_pb2_grpc
from sless_platform.rpc.access import Access, authorise, current_principal

from sless_invoker.application.body import Body
from sless_invoker.application.calls import Calls
from sless_invoker.domain import Call, Reply
from sless_invoker.errors import CallMalformed
from sless_invoker.grpc_api.convert import MAX_CHUNK_BYTES, call_of, reply_head


class InvokerServicer(invoker_pb2_grpc.InvokerServiceServicer):
    """Serves sless.invoker.v1.InvokerService."""

    ACCESS: Mapping[str, Access] = {"Invoke": Access.user_or_services("gateway")}

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def Invoke(  # noqa: N802
        self,
        request_iterator: AsyncIterator[invoker_pb2.InvokeRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[invoker_pb2.InvokeResponse]:
        """Makes one call."""
        first = await anext(aiter(request_iterator), None)
        if first is None or not first.HasField("head"):
            raise CallMalformed("the first message must be a head")
        call = _call(first.head)
        target = await self._calls.admit(call)
        _check_size(first.head.first_body)
        body = Body(first.head.first_body, complete=first.head.end, rest=_pieces(request_iterator))
        async with aclosing(self._calls.invoke(call, target, body)) as parts:
            async for part in parts:
                yield _response(part, call)


def _call(head: invoker_pb2.CallHead) -> Call:
    """The call, judged by who makes it: users may call what is theirs; a gateway also speaks for the public."""
    principal = current_principal()
    authorise(principal, head.namespace)
    owner = principal.service is None or head.owner_authenticated
    return call_of(head, owner_authenticated=owner, now=datetime.now(UTC))


async def _pieces(messages: AsyncIterator[invoker_pb2.InvokeRequest]) -> AsyncIterator[bytes]:
    async for message in messages:
        if message.HasField("end"):
            return
        if not message.HasField("body"):
            raise CallMalformed("only the first message may be a head")
        _check_size(message.body)
        if message.body:
            yield message.body
    raise CallMalformed("the call broke off before its body's end")


def _check_size(chunk: bytes) -> None:
    if len(chunk) > MAX_CHUNK_BYTES:
        raise CallMalformed(f"a piece of a body may have {MAX_CHUNK_BYTES} bytes, not {len(chunk)}")


def _response(part: Reply | bytes, call: Call) -> invoker_pb2.InvokeResponse:
    if isinstance(part, Reply):
        return invoker_pb2.InvokeResponse(head=reply_head(part, call))
    return invoker_pb2.InvokeResponse(body=part)
