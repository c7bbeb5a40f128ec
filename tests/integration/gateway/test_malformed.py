"""What is no request, or could be read in two ways: refused in JSON, by aiohttp's own doing and by ours."""

from __future__ import annotations

import asyncio

import pytest
from sless_gateway.http_api import connection

from tests.support.calls import waits_for
from tests.support.gateway import NAMESPACE, Gateway, until
from tests.support.raw_http import connected, exchange, request

URL = f"/fn/{NAMESPACE}/hello".encode()
CHUNKED = b"POST " + URL + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def head(*lines: bytes, method: bytes = b"POST", target: bytes = URL, version: bytes = b"HTTP/1.1") -> bytes:
    return b"\r\n".join([b"%b %b %b" % (method, target, version), b"Host: x", *lines]) + b"\r\n\r\n"


MALFORMED = {
    "TLS on the plain port": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "no HTTP": b"hello world\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3.0": head(version=b"HTTP/3.0"),
    "no Host": b"GET /health HTTP/1.1\r\n\r\n",
    "two Hosts": head(b"Host: y"),
    "Host that is none": b"GET /health HTTP/1.1\r\nHost: a b\r\n\r\n",
    "very long method": b"A" * 70 + b" /health HTTP/1.1\r\nHost: x\r\n\r\n",
    "bare line feeds": b"GET /health HTTP/1.1\nHost: x\n\n",
    "folded header": head(b"A: b", b" c"),
    "zero byte in a header": head(b"A: b\0c"),
    "control character in a header": head(b"A: b\x01c"),
    "carriage return in a header": head(b"A: b\rc"),
    "header without a name": head(b": b"),
    "header without a colon": head(b"abc"),
    "blank in a header's name": head(b"A B: c"),
    "blank before the colon": head(b"Transfer-Encoding : chunked"),
    "blank in the URL": head(target=b"/a b"),
    "control character in the URL": head(target=b"/a\x01"),
    "raw Latin-1 in the URL": head(target=b"/a\xe4"),
    "fragment in the URL": head(target=b"/a#b"),
    "URL without a slash": head(target=b"health"),
    "absolute URL without a host": head(target=b"http:///health"),
    "absolute URL with a broken host": head(target=b"http://[::1/"),
    "asterisk that is not for OPTIONS": head(target=b"*"),
    "CONNECT": head(method=b"CONNECT", target=b"x:443"),
    "CONNECT to a path": head(method=b"CONNECT"),
    # Forms of request smuggling (RFC 9112 §6, §11.2).
    "length and chunks": head(b"Content-Length: 4", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunks and length": head(b"Transfer-Encoding: chunked", b"Content-Length: 4") + b"0\r\n\r\n",
    "two lengths": head(b"Content-Length: 4", b"Content-Length: 5") + b"abcd",
    "the same length twice": head(b"Content-Length: 4", b"Content-Length: 4") + b"abcd",
    "list of lengths": head(b"Content-Length: 4, 4") + b"abcd",
    "negative length": head(b"Content-Length: -4"),
    "signed length": head(b"Content-Length: +4") + b"abcd",
    "hexadecimal length": head(b"Content-Length: 0x4") + b"abcd",
    "length beyond all numbers": head(b"Content-Length: 99999999999999999999999"),
    "two codings": head(b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "coding after chunked": head(b"Transfer-Encoding: chunked, gzip") + b"0\r\n\r\n",
    "chunked twice": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "identity coding": head(b"Transfer-Encoding: identity"),
    "coding that only looks like chunked": head(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "chunks in HTTP/1.0": head(b"Transfer-Encoding: chunked", version=b"HTTP/1.0") + b"0\r\n\r\n",
    "chunk size that is no number": CHUNKED + b"zz\r\n\r\n",
    "negative chunk size": CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n",
    "prefixed chunk size": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size beyond all numbers": CHUNKED + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "chunk size that ends in a line feed": CHUNKED + b"3\nabc\r\n0\r\n\r\n",
    "chunk that is longer than it says": CHUNKED + b"3\r\nabcdef\r\n0\r\n\r\n",
    "invented method with two framings": head(b"Content-Length: 3", b"Transfer-Encoding: chunked", method=b"FOO") + b"abc",
    "other expectation": head(b"Expect: 200-ok", b"Content-Length: 3") + b"abc",
}  # fmt: skip


@pytest.mark.fault(18)
@pytest.mark.parametrize("case", MALFORMED)
async def test_what_is_no_request_is_refused_in_json(gateway: Gateway, case: str) -> None:
    answer = await exchange(gateway.url, MALFORMED[case])

    assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT")
    assert gateway.services.invoker.heads == []


@pytest.mark.parametrize(
    "case", [case for case in MALFORMED if case not in {"fragment in the URL", "other expectation"}]
)
async def test_nothing_that_follows_on_the_connection_is_taken_for_a_request(gateway: Gateway, case: str) -> None:
    async with connected(gateway.url) as client:
        await client.send(MALFORMED[case] + request("GET", "/health"))
        await client.receive()

        assert await client.at_end()


@pytest.mark.parametrize("case", MALFORMED)
async def test_refusals_repeat_nothing_of_what_was_sent(gateway: Gateway, case: str) -> None:
    secret = b"c2VjcmV0"
    answer = await exchange(
        gateway.url, MALFORMED[case].replace(b"Host: x\r\n", b"Host: x\r\nX-A: " + secret + b"\r\n", 1)
    )

    assert answer.status == 400
    assert secret not in answer.body
    for word in (b"Traceback", b"aiohttp", b"<", b"\\n"):
        assert word not in answer.body


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (request("GET", "/" + "a" * (16 * 1024)), 414, "URI_TOO_LONG"),
        (request("GET", "/health?" + "a" * (64 * 1024)), 414, "URI_TOO_LONG"),
        (request("GET", "/health", ("A", "a" * (16 * 1024))), 431, "HEADERS_TOO_LARGE"),
        (request("GET", "/health", ("A" * (17 * 1024), "a")), 431, "HEADERS_TOO_LARGE"),
        (request("GET", "/health", ("Aa", "a" * (16 * 1024 - 3))), 431, "HEADERS_TOO_LARGE"),
        (request("GET", "/health", *[("A", "a" * 8_000)] * 9), 431, "HEADERS_TOO_LARGE"),
        (request("GET", "/health", *[("A", "a")] * 1_200), 431, "HEADERS_TOO_LARGE"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: bbbbbbbb\r\n" * 100_000, 431, "HEADERS_TOO_LARGE"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n" + (b"A: " + b"b" * 16_000 + b"\r\n") * 6, 431, "HEADERS_TOO_LARGE"),
    ],
)
async def test_heads_are_bounded(gateway: Gateway, data: bytes, status: int, code: str) -> None:
    answer = await exchange(gateway.url, data)

    assert (answer.status, answer.code) == (status, code)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request("GET", "/" + "a" * (16 * 1024 - 1)), 404),
        (request("GET", "/health", ("A", "a" * (16 * 1024 - 3))), 200),
        (request("GET", "/health", *[("A", "a" * 8_000)] * 8), 200),
        (request("GET", "/health", *[("A", "a")] * 990), 200),
    ],
)
async def test_what_is_within_the_bounds_is_served(gateway: Gateway, data: bytes, status: int) -> None:
    assert (await exchange(gateway.url, data)).status == status


@pytest.mark.parametrize("size", [1, 7, 1_000])
async def test_a_request_may_come_in_pieces(gateway: Gateway, size: int) -> None:
    data = request("POST", URL.decode(), ("A", "b"), body=b"x" * 300)
    async with connected(gateway.url) as client:
        for start in range(0, len(data), size):
            await client.send(data[start : start + size])
            await asyncio.sleep(0)
        answer = await client.receive()

    assert (answer.status, answer.body) == (200, b"x" * 300)


async def test_empty_lines_before_a_request_are_skipped(gateway: Gateway) -> None:
    assert (await exchange(gateway.url, b"\r\n\r\n" + request("GET", "/health"))).status == 200


async def test_an_absolute_url_is_taken_as_its_path(gateway: Gateway) -> None:
    assert (await exchange(gateway.url, request("GET", "http://elsewhere/health"))).status == 200


@pytest.mark.parametrize("upgrade", ["websocket", "h2c", "tcp"])
async def test_an_upgrade_is_declined_by_answering_and_nothing_after_it_is_taken_for_a_request(
    gateway: Gateway, upgrade: str
) -> None:
    asked = request("POST", URL.decode(), ("Connection", "upgrade"), ("Upgrade", upgrade), body=b"abc")
    async with connected(gateway.url) as client:
        await client.send(asked + request("POST", URL.decode()))

        assert (await client.receive()).body == b"abc"
        assert await client.at_end()
    assert len(gateway.services.invoker.heads) == 1


async def test_pipelined_requests_are_answered_in_their_order(gateway: Gateway) -> None:
    bodies = [str(number).encode() * 10 for number in range(60)]
    async with connected(gateway.url) as client:
        await client.send(b"".join(request("POST", URL.decode(), body=body) for body in bodies))

        assert [(await client.receive()).body for _ in bodies] == bodies


async def test_invented_methods_keep_their_case_and_bodies_on_one_connection(gateway: Gateway) -> None:
    async with connected(gateway.url) as client:
        for method in ("FOO", "GET", "get", "M-SEARCH", "Foo", "x!#$%&'*+.^_`|~9"):
            await client.send(request(method, URL.decode(), body=method.encode()))
            assert (await client.receive()).body == method.encode()

    assert [head.method for head in gateway.services.invoker.heads][-2:] == ["Foo", "x!#$%&'*+.^_`|~9"]


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SEC", 0.2)


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("sent", [b"G", b"GET /health\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\nA: b"])
async def test_a_head_that_does_not_end_is_refused(gateway: Gateway, sent: bytes) -> None:
    async with connected(gateway.url) as client:
        await client.send(sent)
        answer = await client.receive()

        assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT")
        assert await client.at_end()


@pytest.mark.usefixtures("short_patience")
async def test_a_head_that_drips_is_refused_all_the_same(gateway: Gateway) -> None:
    async with connected(gateway.url) as client:
        receiving = asyncio.create_task(client.receive())
        await client.send(b"GET /health HTTP/1.1\r\nHost: x\r\nA: ")
        while not receiving.done():
            client.writer.write(b"a")
            await asyncio.wait({receiving}, timeout=0.05)

        assert receiving.result().status == 400


@pytest.mark.usefixtures("short_patience")
async def test_a_slow_second_head_is_refused_too(gateway: Gateway) -> None:
    async with connected(gateway.url) as client:
        await client.send(request("GET", "/health"))
        assert (await client.receive()).status == 200
        await client.send(b"GET /hea")

        assert (await client.receive()).status == 400


async def test_endless_pipelining_behind_a_call_that_runs_ends_the_connection(gateway: Gateway) -> None:
    release = asyncio.Event()

    gateway.services.invoker.call = waits_for(release)
    async with connected(gateway.url) as client:
        await client.send(request("GET", URL.decode()))
        await until(lambda: len(gateway.services.invoker.heads) == 1)
        await client.send(b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 400_000)
        release.set()

        assert (await client.receive()).status == 200
        assert await client.at_end()
