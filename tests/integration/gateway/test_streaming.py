"""Answers as they come; and clients that go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sless_platform.errors import Unavailable

from tests.support.calls import refuses, streams, waits_for
from tests.support.fake_services import more, reply
from tests.support.gateway import NAMESPACE, Gateway, until
from tests.support.raw_http import RawClient, connected, request

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


async def test_an_answer_is_sent_as_it_comes(gateway: Gateway) -> None:
    steps = [asyncio.Event() for _ in range(3)]

    async def call(_head: Any, _body: Any) -> AsyncIterator[Any]:
        yield reply(b"first", end=False, headers={"Content-Type": "text/event-stream"})
        for number, step in enumerate(steps):
            await step.wait()
            yield more(b"part %d" % number)

    gateway.services.invoker.call = call
    async with connected(gateway.url) as client:
        await client.send(request("GET", URL))
        answer, body = await client.head()
        assert (answer.status, answer.header("transfer-encoding")) == (200, "chunked")
        assert await anext(body) == b"first"
        for number, step in enumerate(steps):
            step.set()
            assert await anext(body) == b"part %d" % number
        assert [part async for part in body] == []

        await client.send(request("GET", "/health"))
        assert (await client.receive()).status == 200


async def test_an_answer_whose_first_bytes_are_none_begins_at_once(gateway: Gateway) -> None:
    release = asyncio.Event()

    async def call(_head: Any, _body: Any) -> AsyncIterator[Any]:
        yield reply(end=False)
        await release.wait()

    gateway.services.invoker.call = call
    async with connected(gateway.url) as client:
        await client.send(request("GET", URL))
        answer, body = await client.head()
        release.set()

        assert (answer.status, [part async for part in body]) == (200, [])


async def test_a_length_that_the_handler_knows_is_told(gateway: Gateway) -> None:
    gateway.services.invoker.call = streams(b"ab", b"cd", headers={"Content-Length": "4"})

    answer = await gateway.ask("GET", URL)

    assert (answer.body, answer.header("content-length"), answer.header("transfer-encoding")) == (b"abcd", "4", None)


@pytest.mark.parametrize("parts", [(b"ab",), (b"ab", b"c"), (b"ab", b"cde")])
async def test_an_answer_of_another_length_than_it_said_is_cut(gateway: Gateway, parts: tuple[bytes, ...]) -> None:
    gateway.services.invoker.call = streams(*parts, headers={"Content-Length": "4"})
    async with connected(gateway.url) as client:
        await client.send(request("GET", URL))
        received = await raw(client)

    assert received.endswith(b"RESET")
    assert len(received.partition(b"\r\n\r\n")[2]) - len(b"RESET") < 4


async def test_an_answer_that_begins_longer_than_it_said_is_the_handlers_error(gateway: Gateway) -> None:
    gateway.services.invoker.call = streams(b"abcde", headers={"Content-Length": "4"})

    answer = await gateway.ask("GET", URL)

    assert (answer.status, answer.code) == (500, "HANDLER_ERROR")


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("headers", [{}, {"Content-Length": "100"}])
async def test_an_answer_that_breaks_off_is_never_taken_for_a_whole_one(
    gateway: Gateway, version: str, headers: dict[str, str]
) -> None:
    gateway.services.invoker.call = streams(b"ab", b"cd", then=CRASH, headers=headers)
    async with connected(gateway.url) as client:
        await client.send(request("GET", URL).replace(b"HTTP/1.1", version.encode()))
        received = await raw(client)

    assert received.startswith(b"HTTP/1.1 200")
    assert received.endswith(b"RESET")
    assert b"0\r\n\r\n" not in received.partition(b"\r\n\r\n")[2]
    assert b"FUNCTION_CRASHED" not in received


async def test_a_crash_before_the_answer_is_told(gateway: Gateway) -> None:
    gateway.services.invoker.call = refuses(CRASH)

    answer = await gateway.ask("POST", URL, body=b"x" * 2 * MIB)

    assert (answer.status, answer.code) == (502, "FUNCTION_CRASHED")


async def test_http_1_0_gets_no_chunks(gateway: Gateway) -> None:
    gateway.services.invoker.call = streams(b"ab", b"cd")
    async with connected(gateway.url) as client:
        await client.send(request("GET", URL).replace(b"HTTP/1.1", b"HTTP/1.0"))
        received = await raw(client)

    assert received.endswith(b"\r\n\r\nabcd")
    assert b"ransfer-Encoding" not in received


async def test_http_1_0_may_keep_its_connection(gateway: Gateway) -> None:
    asked = request("POST", URL, ("Connection", "keep-alive"), body=b"x").replace(b"HTTP/1.1", b"HTTP/1.0")
    async with connected(gateway.url) as client:
        for _ in range(2):
            await client.send(asked)
            answer = await client.receive()
            assert (answer.body, answer.header("connection")) == (b"x", "keep-alive")


@pytest.mark.parametrize("target", [URL, f"/v1/namespaces/{NAMESPACE}/functions/hello/invoke"])
async def test_a_client_that_goes_away_cancels_its_call(gateway: Gateway, target: str) -> None:
    gateway.services.invoker.call = waits_for(asyncio.Event())
    async with connected(gateway.url) as client:
        await client.send(request("GET", target, token=gateway.token))
        await until(lambda: len(gateway.services.invoker.heads) == 1)
    started = asyncio.get_running_loop().time()

    await until(lambda: gateway.services.invoker.cancelled == 1)

    assert asyncio.get_running_loop().time() - started < 0.5


async def test_a_client_that_goes_away_while_it_is_answered_cancels_its_call(gateway: Gateway) -> None:
    async def endless(_head: Any, _body: Any) -> AsyncIterator[Any]:
        yield reply(b"a", end=False)
        while True:
            yield more(b"b" * 1024)
            await asyncio.sleep(0)

    gateway.services.invoker.call = endless
    async with connected(gateway.url) as client:
        await client.send(request("GET", URL))
        _, body = await client.head()
        await anext(body)

    await until(lambda: gateway.services.invoker.cancelled == 1)


async def test_a_body_that_is_cut_is_never_taken_for_a_whole_one(gateway: Gateway) -> None:
    whole: list[int] = []

    async def call(_head: Any, body: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        whole.append(sum([len(piece) async for piece in body]))
        yield reply(b"done")

    gateway.services.invoker.call = call
    for count in range(1, 21):
        async with connected(gateway.url) as client:
            await client.send(CHUNKED + chunk(b"a" * MIB) + chunk(b"b" * 1000 * count))
            await until(lambda: len(gateway.services.invoker.heads) == count)  # noqa: B023
        await until(lambda: gateway.services.invoker.cancelled == count)  # noqa: B023

    assert whole == []


async def test_an_answer_that_is_complete_is_not_cancelled(gateway: Gateway) -> None:
    after = asyncio.Event()

    async def call(_head: Any, _body: Any) -> AsyncIterator[Any]:
        yield reply(b"done")
        await asyncio.sleep(0.05)
        after.set()

    gateway.services.invoker.call = call
    assert (await gateway.ask("GET", URL)).body == b"done"

    await asyncio.wait_for(after.wait(), 5)
    assert gateway.services.invoker.cancelled == 0


async def test_a_slow_reader_holds_the_function_back(gateway: Gateway) -> None:
    sent = 0

    async def call(_head: Any, _body: Any) -> AsyncIterator[Any]:
        nonlocal sent
        yield reply(end=False)
        for _ in range(400):
            yield more(b"a" * 256 * 1024)
            sent += 1

    gateway.services.invoker.call = call
    async with connected(gateway.url) as client:
        await client.send(request("GET", URL))
        await until(lambda: sent > 0)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 200

        _, body = await client.head()
        size = 0
        async for part in body:
            size += len(part)
    assert size == 400 * 256 * 1024


async def test_a_function_that_does_not_read_holds_the_client_back(gateway: Gateway) -> None:
    release = asyncio.Event()
    gateway.services.invoker.call = waits_for(release)
    sent = 0

    async def send(client: RawClient) -> None:
        nonlocal sent
        while True:
            await client.send(chunk(b"a" * 64 * 1024))
            sent += 64 * 1024

    async with connected(gateway.url) as client:
        await client.send(CHUNKED)
        sending = asyncio.create_task(send(client))
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        sending.cancel()
        await asyncio.wait({sending})
    release.set()

    assert MIB <= sent < 20 * MIB
