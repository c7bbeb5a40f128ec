"""A body that was cut is never taken for a whole one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sless.invoker.v1.invoker_pb2 import CallHead, InvokeRequest
from sless_invoker.errors import CallMalformed
from sless_invoker.grpc_api.servicer import _pieces


async def messages(*sent: InvokeRequest) -> AsyncIterator[InvokeRequest]:
    """A stream of requests."""
    for message in sent:
        yield message


async def received(*sent: InvokeRequest) -> bytes:
    """The body that these requests carry."""
    return b"".join([piece async for piece in _pieces(messages(*sent))])


async def test_a_body_is_whole_with_its_end() -> None:
    assert await received(InvokeRequest(body=b"a"), InvokeRequest(body=b"b"), InvokeRequest(end=True)) == b"ab"
    assert await received(InvokeRequest(end=True)) == b""


@pytest.mark.parametrize(
    "sent",
    [
        (),
        (InvokeRequest(body=b"a"),),
        (InvokeRequest(body=b"a"), InvokeRequest()),
        (InvokeRequest(head=CallHead()), InvokeRequest(end=True)),
        (InvokeRequest(body=bytes(256 * 1024 + 1)), InvokeRequest(end=True)),
    ],
)
async def test_anything_else_is_refused(sent: tuple[InvokeRequest, ...]) -> None:
    with pytest.raises(CallMalformed):
        await received(*sent)
