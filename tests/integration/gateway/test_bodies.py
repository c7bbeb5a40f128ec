"""Bodies of requests: held, streamed, bounded, broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sless_contracts import limits
from sless_gateway.http_api import bodies
from sless_platform.errors import Unavailable

from tests.support.calls import answers, echoes_as_it_comes
from tests.support.fake_services import reply
from tests.support.gateway import NAMESPACE, Gateway, running_gateway, until
from tests.support.raw_http import RawClient, connected, exchange, request

URL = f"/fn/{NAMESPACE}/hello"
MIB = 1024 * 1024
CHUNKED = f"POST {URL} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
CRASH = Unavailable("the instance ended", reason="FUNCTION_CRASHED")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def raw(client: RawClient) -> bytes:
    """Everything until the connection ends, however it ends."""
    parts = []
    try:
        while data := await asyncio.wait_for(client.reader.read(65_536), 10):
            parts.append(data)
    except ConnectionError:
        parts.append(b"RESET")
    return b"".join(parts)


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, MIB, MIB + 1, 5 * MIB])
@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_arrives_whole_and_in_pieces_that_fit(gateway: Gateway, size: int, framing: str) -> None:
    pieces: list[bytes] = []

    async def call(_head: Any, body: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        pieces.extend([piece async for piece in body])
        yield reply(b"done")

    gateway.services.invoker.call = call
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    sent = request("POST", URL, body=data) if framing == "length" else CHUNKED + chunk(data) * bool(data) + chunk(b"")

    answer = await exchange(gateway.url, sent)

    assert (answer.status, answer.body) == (200, b"done")
    assert b"".join(pieces) == data
    assert max((len(piece) for piece in pieces), default=0) <= 256 * 1024


async def test_a_large_body_is_streamed_while_the_answer_is(gateway: Gateway) -> None:
    gateway.services.invoker.call = echoes_as_it_comes()
    first, second = b"a" * MIB, b"b" * MIB
    async with connected(gateway.url) as client:
        await client.send(CHUNKED + chunk(first))
        _, body = await client.head()
        received = b""
        while len(received) < MIB:
            received += await anext(body)
        await client.send(chunk(second) + chunk(b""))
        received += b"".join([part async for part in body])

    assert received == first + second


async def test_a_body_that_is_not_large_is_held_until_it_is_whole(gateway: Gateway) -> None:
    async with connected(gateway.url) as client:
        await client.send(CHUNKED + chunk(b"ab"))
        await asyncio.sleep(0.05)
        assert gateway.services.invoker.heads == []
        await client.send(chunk(b"cd") + chunk(b""))

        assert (await client.receive()).body == b"abcd"
    assert gateway.services.invoker.heads[0].end


async def test_an_answer_before_the_body_has_arrived_ends_the_connection(gateway: Gateway) -> None:
    gateway.services.invoker.call = answers(b"enough")
    async with connected(gateway.url) as client:
        await client.send(CHUNKED + chunk(b"a" * MIB))
        answer = await client.receive()
        await client.send(request("GET", "/health"))

        assert (answer.body, answer.header("connection")) == (b"enough", "close")
        assert await client.at_end()


@pytest.mark.parametrize("framing", ["length", "chunks", "late chunks"])
async def test_a_body_beyond_the_limit_is_413(framing: str) -> None:
    async with running_gateway(SLESS_MAX_REQUEST_BYTES=3 * MIB) as gateway:
        async with connected(gateway.url) as client:
            if framing == "length":
                await client.send(f"POST {URL} HTTP/1.1\r\nHost: x\r\nContent-Length: {3 * MIB + 1}\r\n\r\n".encode())
            elif framing == "chunks":
                await client.send(CHUNKED + chunk(b"a" * MIB) * 3 + chunk(b"b"))
            else:
                await client.send(CHUNKED + chunk(b"a" * 2 * MIB))
                await until(lambda: len(gateway.services.invoker.heads) == 1)
                await client.send(chunk(b"a" * 2 * MIB))
            answer = await client.receive()

        assert (answer.status, answer.code, answer.header("connection")) == (413, "PAYLOAD_TOO_LARGE", "close")
        await until(lambda: gateway.services.invoker.cancelled == len(gateway.services.invoker.heads))


async def test_a_body_of_exactly_the_limit_is_served() -> None:
    async with running_gateway(SLESS_MAX_REQUEST_BYTES=2 * MIB) as gateway:
        assert (await gateway.ask("POST", URL, body=b"a" * 2 * MIB)).status == 200


def test_the_limit_is_that_of_the_table() -> None:
    assert limits.REQUEST_BODY_BYTES.value == 32 * MIB
    assert limits.STREAM_THRESHOLD_BYTES.value == MIB


async def test_a_body_that_gets_too_large_cuts_an_answer_that_has_begun() -> None:
    async with running_gateway(SLESS_MAX_REQUEST_BYTES=3 * MIB) as gateway:
        gateway.services.invoker.call = echoes_as_it_comes()
        async with connected(gateway.url) as client:
            await client.send(CHUNKED + chunk(b"a" * MIB))
            await client.head()
            await client.send(chunk(b"a" * MIB) * 3)
            received = await raw(client)

        assert not received.endswith(b"0\r\n\r\n")
        await until(lambda: gateway.services.invoker.cancelled == 1)


@pytest.mark.parametrize("sent", [b"a" * 10, b"a" * (2 * MIB)], ids=["held", "streamed"])
async def test_a_body_whose_framing_breaks_is_400(gateway: Gateway, sent: bytes) -> None:
    async with connected(gateway.url) as client:
        await client.send(CHUNKED + chunk(sent))
        if len(sent) > MIB:
            await until(lambda: len(gateway.services.invoker.heads) == 1)
        else:
            await asyncio.sleep(0.05)
        await client.send(b"zz\r\n")
        answer = await client.receive()

        assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT")
        assert await client.at_end()
    await until(lambda: gateway.services.invoker.cancelled == len(gateway.services.invoker.heads))


async def test_a_body_that_stops_is_400(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SILENCE_SEC", 0.1)
    async with connected(gateway.url) as client:
        await client.send(CHUNKED + chunk(b"ab"))
        answer = await client.receive()

        assert (answer.status, answer.code, answer.header("connection")) == (400, "INVALID_ARGUMENT", "close")


async def test_a_body_that_is_streamed_may_be_silent(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SILENCE_SEC", 0.05)
    async with connected(gateway.url) as client:
        await client.send(CHUNKED + chunk(b"a" * MIB))
        await until(lambda: len(gateway.services.invoker.heads) == 1)
        await asyncio.sleep(0.2)
        await client.send(chunk(b"b") + chunk(b""))

        assert (await client.receive()).body == b"a" * MIB + b"b"


async def test_a_client_that_waits_to_be_invited_is(gateway: Gateway) -> None:
    async with connected(gateway.url) as client:
        await client.send(
            f"POST {URL} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n".encode()
        )
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"body")

        assert (await client.receive()).body == b"body"
        await client.send(request("GET", "/health"))
        assert (await client.receive()).status == 200


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        (URL, f"Content-Length: {33 * MIB}", 413),
        ("/fn/nothing/hello", "Content-Length: 4", 404),
        ("/v1/whoami", "Content-Length: 4", 401),
        (f"/v1/namespaces/{NAMESPACE}/functions/x/upload", "Content-Length: 4", 401),
    ],
)
async def test_a_client_whose_body_is_not_wanted_is_not_invited(
    gateway: Gateway, target: str, headers: str, status: int
) -> None:
    method = "GET" if target == "/v1/whoami" else "POST"
    async with connected(gateway.url) as client:
        await client.send(
            f"{method} {target} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n{headers}\r\n\r\n".encode()
        )
        received = await client.reader.readuntil(b"\r\n")

    assert received.startswith(f"HTTP/1.1 {status}".encode())


async def test_http_1_0_is_not_invited(gateway: Gateway) -> None:
    asked = request("POST", URL, ("Expect", "100-continue"), body=b"body").replace(b"HTTP/1.1", b"HTTP/1.0")
    async with connected(gateway.url) as client:
        await client.send(asked[:-4])
        await asyncio.sleep(0.05)
        await client.send(asked[-4:])

        assert (await raw(client)).startswith(b"HTTP/1.1 200")
