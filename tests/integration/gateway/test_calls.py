"""Calls: what reaches the invoker, and what its answer becomes."""

from __future__ import annotations

import pytest
from sless.invoker.v1 import invoker_pb2
from sless.registry.v1 import registry_pb2
from sless_contracts.catalog import namespace_of

from tests.support.calls import answers
from tests.support.gateway import NAMESPACE, Gateway
from tests.support.raw_http import connected, exchange, request

URL = f"/fn/{NAMESPACE}/hello"
INVOKE = f"/v1/namespaces/{NAMESPACE}/functions/hello/invoke"


def head_of(gateway: Gateway) -> invoker_pb2.CallHead:
    """The head of the one call that was made."""
    (head,) = gateway.services.invoker.heads
    return head


def headers_of(gateway: Gateway) -> list[tuple[str, str]]:
    return [(header.name, header.value) for header in head_of(gateway).headers]


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (URL, "/", ""),
        (f"{URL}/", "/", ""),
        (f"{URL}?", "/", ""),
        (f"{URL}?a=1&a=2&b=%20+", "/", "a=1&a=2&b=%20+"),
        (f"{URL}//a/../b/./%2e%2e/%2Fc%00", "//a/../b/./%2e%2e/%2Fc%00", ""),
        (f"{URL}/a?b/c?d", "/a", "b/c?d"),
        (f"{URL}/%E6%BC%A2%ff%", "/%E6%BC%A2%ff%", ""),
        (f"http://h{URL}/a?b", "/a", "b"),
    ],
)
async def test_path_and_query_are_passed_as_they_came(gateway: Gateway, target: str, path: str, query: str) -> None:
    await gateway.ask("GET", target)

    assert (head_of(gateway).path, head_of(gateway).query) == (path, query)


async def test_a_call_says_what_it_is(gateway: Gateway) -> None:
    answer = await gateway.ask("PATCH", URL, ("X-Request-Id", "r-1"), body=b"body")

    head = head_of(gateway)
    assert (head.namespace, head.name, head.method) == (NAMESPACE, "hello", "PATCH")
    assert (head.trigger, head.kind) == (invoker_pb2.TRIGGER_HTTP, registry_pb2.FUNCTION_KIND_UNSPECIFIED)
    assert (head.request_id, head.owner_authenticated) == ("r-1", False)
    assert (head.first_body, head.end) == (b"body", True)
    assert len(head.invocation_id) == 26
    assert answer.header("x-sless-invocation-id") == head.invocation_id
    assert answer.header("x-request-id") == "r-1"


@pytest.mark.parametrize("collection", ["functions", "services"])
async def test_an_invoke_is_the_owners_call(gateway: Gateway, collection: str) -> None:
    answer = await gateway.ask("REPORT", f"/v1/namespaces/{NAMESPACE}/{collection}/hello/invoke?a=1", body=b"body")

    head = head_of(gateway)
    assert (answer.status, answer.body) == (200, b"body")
    assert (head.trigger, head.path, head.query, head.method) == (invoker_pb2.TRIGGER_INVOKE, "/", "a=1", "REPORT")
    assert registry_pb2.FunctionKind.Name(head.kind) == f"FUNCTION_KIND_{collection[:-1].upper()}"
    assert answer.header("x-sless-invocation-id") == head.invocation_id
    assert "authorization" not in {name.lower() for name, _ in headers_of(gateway)}


@pytest.mark.fault(20)
async def test_headers_are_passed_in_their_order_with_duplicates_and_without_those_of_the_hop(gateway: Gateway) -> None:
    sent = [
        ("X-A", "1"), ("x-b", "2"), ("X-A", "3"), ("Cookie", "a=1"), ("Cookie", "b=2"), ("X-Latin", "\xe4\xff"),
        ("X-Empty", ""), ("Content-Encoding", "gzip"), ("Accept-Encoding", "gzip"),
    ]  # fmt: skip
    hop = [
        ("Connection", "X-Hop, keep-alive"), ("Keep-Alive", "5"), ("TE", "trailers"), ("Proxy-Authorization", "x"),
        ("Trailer", "X"), ("X-Hop", "x"), ("Proxy-Connection", "x"),
    ]  # fmt: skip

    await gateway.ask("POST", URL, *hop, *sent, body=b"\x1f\x8b", token=None)

    passed = [field for field in headers_of(gateway) if not field[0].startswith("X-Forwarded")]
    assert passed == [("Host", "gateway.test"), *sent, ("Content-Length", "2")]
    assert head_of(gateway).first_body == b"\x1f\x8b"


async def test_a_handler_is_told_of_the_hops_before_it(gateway: Gateway) -> None:
    await gateway.ask("GET", URL, host="sless.example:8080")

    told = {name: value for name, value in headers_of(gateway) if name.startswith("X-Forwarded")}
    assert told == {
        "X-Forwarded-For": "127.0.0.1",
        "X-Forwarded-Proto": "http",
        "X-Forwarded-Host": "sless.example:8080",
    }


async def test_what_proxies_said_is_kept_and_the_client_added(gateway: Gateway) -> None:
    said = [
        ("X-Forwarded-For", "10.0.0.1"),
        ("x-forwarded-for", "10.0.0.2"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "a.b"),
    ]
    await gateway.ask("GET", URL, *said)

    told = [field for field in headers_of(gateway) if field[0].lower().startswith("x-forwarded")]
    assert told == [said[0], ("x-forwarded-for", "10.0.0.2, 127.0.0.1"), *said[2:]]


async def test_on_the_unix_socket_nobody_is_added(gateway: Gateway) -> None:
    answer = await exchange(gateway.unix, request("GET", URL, ("X-Forwarded-For", "10.0.0.1")))

    assert answer.status == 200
    assert [value for name, value in headers_of(gateway) if name == "X-Forwarded-For"] == ["10.0.0.1"]


@pytest.mark.fault(20)
async def test_the_answers_headers_are_passed_in_their_order_without_those_of_the_hop(gateway: Gateway) -> None:
    given = [
        ("Set-Cookie", "a=1"), ("X-A", "1"), ("Set-Cookie", "b=2"), ("X-Latin", "\xe4\xff"), ("Server", "mine"),
        ("Date", "yesterday"), ("Content-Encoding", "br"), ("ETag", 'W/"x"'),
    ]  # fmt: skip
    hop = [
        ("Connection", "X-Hop"), ("X-Hop", "1"), ("Keep-Alive", "5"), ("Transfer-Encoding", "chunked"),
        ("Content-Length", "999"), ("X-Request-Id", "forged"), ("X-Sless-Invocation-Id", "forged"),
    ]  # fmt: skip
    gateway.services.invoker.call = answers(b"body", status=201, headers=[*hop, *given])

    answer = await gateway.ask("GET", URL, ("X-Request-Id", "r-1"))

    assert (answer.status, answer.body) == (201, b"body")
    assert answer.headers == [
        *given,
        ("X-Request-Id", "r-1"),
        ("X-Sless-Invocation-Id", head_of(gateway).invocation_id),
        ("Content-Length", "4"),
    ]


@pytest.mark.parametrize("status", [200, 201, 299, 301, 400, 404, 418, 500, 503, 599])
async def test_any_status_is_the_handlers(gateway: Gateway, status: int) -> None:
    gateway.services.invoker.call = answers(b"{}", status=status)

    answer = await gateway.ask("GET", URL)

    assert (answer.status, answer.body, answer.header("content-type")) == (status, b"{}", None)


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_that_has_no_body_has_none(gateway: Gateway, status: int) -> None:
    gateway.services.invoker.call = answers(b"stray", status=status)
    async with connected(gateway.url) as client:
        for _ in range(2):
            await client.send(request("GET", URL))
            answer = await client.receive()
            assert (answer.status, answer.body) == (status, b"")
            assert answer.header("transfer-encoding") is None


@pytest.mark.parametrize(
    ("body", "headers", "length"),
    [
        (b"12345", {}, "5"),
        (b"", {"Content-Length": "123"}, "123"),
        (b"", {}, None),
        (b"", {"Content-Length": "x"}, None),
    ],
)
async def test_head_has_the_length_and_no_body(
    gateway: Gateway, body: bytes, headers: dict[str, str], length: str | None
) -> None:
    gateway.services.invoker.call = answers(body, headers=headers)
    async with connected(gateway.url) as client:
        for _ in range(2):
            await client.send(request("HEAD", URL))
            answer = await client.receive("HEAD")
            assert (answer.status, answer.body, answer.header("content-length")) == (200, b"", length)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (100, {}),
        (101, {"Upgrade": "websocket"}),
        (0, {}),
        (600, {}),
        (200, {"X-A": "b\r\nX-Injected: 1"}),
        (200, {"X-A\r\nX-Injected": "1"}),
        (200, {"X A": "1"}),
        (200, {"": "1"}),
        (200, {"X-A": "a\0b"}),
        (200, {"X-A": "漢"}),
    ],
)
async def test_what_http_cannot_carry_is_the_handlers_error(
    gateway: Gateway, status: int, headers: dict[str, str]
) -> None:
    gateway.services.invoker.call = answers(b"body", status=status, headers=headers)

    answer = await gateway.ask("GET", URL)

    assert (answer.status, answer.code, answer.json()["type"]) == (500, "HANDLER_ERROR", "InvalidAnswer")
    assert answer.header("x-injected") is None
    assert answer.header("x-sless-invocation-id") == head_of(gateway).invocation_id


async def test_an_encoded_name_is_the_same_name(gateway: Gateway) -> None:
    await gateway.ask("GET", f"/fn/{NAMESPACE.replace('s', '%73')}/h%65llo/x")

    assert (head_of(gateway).namespace, head_of(gateway).name, head_of(gateway).path) == (NAMESPACE, "hello", "/x")


@pytest.mark.parametrize("kind", ["functions", "services"])
async def test_an_invoke_of_what_cannot_be_a_name_is_404(gateway: Gateway, kind: str) -> None:
    answer = await gateway.ask("POST", f"/v1/namespaces/{NAMESPACE}/{kind}/a%2Fb/invoke")

    assert (answer.status, answer.code) == (404, "NOT_FOUND")


async def test_an_admin_invokes_in_another_namespace(gateway: Gateway) -> None:
    target = f"/v1/namespaces/{namespace_of('other')}/services/hello/invoke"

    answer = await gateway.ask("POST", target, token=gateway.services.auth.token("root", "admin"))

    assert answer.status == 200


@pytest.mark.fault(32)
@pytest.mark.parametrize(
    "body",
    [
        b'{"text": "' + b"x" * 2_000 + b'"}', b"null", b"-1.5e300", b'{"a": "Infinity"}', b"[1, 2, [3]]", b"42", b'""',
        '{"漢字": "👩‍👩‍👧‍👦", "\\u0000": "\\ud83d"}'.encode(), b"\x00\xff\xfe", b"{not json", b" ", b"\r\n",
    ],
)  # fmt: skip
async def test_bodies_are_passed_unchanged(gateway: Gateway, body: bytes) -> None:
    answer = await gateway.ask("POST", URL, ("Content-Type", "application/json"), body=body)

    assert answer.body == head_of(gateway).first_body == body
