"""Answers that are sent as they come."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web
from sless_platform.errors import PlatformError
from sless_platform.logging import get_logger

from sless_gateway.http_api.answer import Answer

log = get_logger(__name__)

_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)


async def streamed(request: web.BaseRequest, answer: Answer, first: bytes, rest: AsyncIterator[bytes]) -> Answer:
    """Send an answer as it comes. One that breaks off is cut: the client must not take it for a whole one.

    Raises only while the head has not gone out.
    """
    await answer.begin(request, first)
    try:
        async for data in rest:
            await answer.send(data)
        await answer.finish()
    except PlatformError as error:
        log.info("answer cut", reason=error.reason, error=error.message)
        abort(request)
    return answer


def abort(request: web.BaseRequest) -> None:
    """End the connection so that the other side sees an error: by a reset, where the transport has one (RFC 9293 §3.10.4)."""
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in {socket.AF_INET, socket.AF_INET6}:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    transport.abort()
