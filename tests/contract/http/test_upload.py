"""Uploads over REST."""

from __future__ import annotations

import hashlib
import json

import pytest
from sless.registry.v1 import registry_pb2 as pb
from sless_gateway.http_api import bodies, upload

from tests.support.gateway import NAMESPACE, Gateway, running_gateway, until
from tests.support.raw_http import Answer, connected, request

MIB = 1024 * 1024
ONE = f"/v1/namespaces/{NAMESPACE}/services/hello"
ZIP = b"PK\x03\x04" + bytes(range(256)) * 40
FORM = ("Content-Type", 'multipart/form-data; boundary="b-1"')


def form(*parts: tuple[str, bytes], end: bytes = b"--b-1--\r\n") -> bytes:
    """A form of fields; each a name and what is in it."""
    made = b""
    for name, data in parts:
        head = (
            f'--b-1\r\nContent-Disposition: form-data; name="{name}"; filename="c.zip"\r\nContent-Type: application/zip'
        )
        made += head.encode() + b"\r\n\r\n" + data + b"\r\n"
    return made + end


async def send(gateway: Gateway, body: bytes, *headers: tuple[str, str], query: str = "") -> Answer:
    return await gateway.ask(
        "POST", f"{ONE}/upload{query}", *(headers or [("Content-Type", "application/zip")]), body=body
    )


@pytest.mark.parametrize(
    "content_type", ["application/zip", "application/x-zip-compressed", "application/octet-stream", None]
)
async def test_a_zip_is_the_body(gateway: Gateway, content_type: str | None) -> None:
    await gateway.create()

    headers = [("X-Any", "x")] if content_type is None else [("Content-Type", content_type)]
    answer = await send(gateway, ZIP, *headers)

    digest = hashlib.sha256(ZIP).hexdigest()
    assert answer.status == 200
    assert answer.json() == {"message": "build queued", "phase": "Pending", "version": 1, "code_sha256": digest}
    assert list(answer.json()) == ["message", "phase", "version", "code_sha256"]
    assert gateway.services.builder.archives == [ZIP]


@pytest.mark.parametrize("data", [ZIP, b"", b"\r\n--b-", b"\r\n--b-2\r\n", b"x" * 300_000, b"\r\n" * 70_000])
async def test_a_zip_is_the_field_code_of_a_form(gateway: Gateway, data: bytes) -> None:
    await gateway.create()

    answer = await send(gateway, form(("code", data)), FORM)

    assert answer.status == 200, answer
    assert gateway.services.builder.archives == [data]


async def test_a_form_may_come_in_chunks_of_any_size(gateway: Gateway) -> None:
    await gateway.create()
    data = form(("code", ZIP))
    head = f"POST {ONE}/upload HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.token}\r\n"
    head += f"{FORM[0]}: {FORM[1]}\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with connected(gateway.url) as client:
        await client.send(head.encode())
        for start in range(0, len(data), 17):
            piece = data[start : start + 17]
            await client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        await client.send(b"0\r\n\r\n" + request("GET", "/health"))

        assert (await client.receive()).status == 200
        assert (await client.receive()).status == 200
    assert gateway.services.builder.archives == [ZIP]


BROKEN_FORMS = {
    "no boundary": (b"x", "multipart/form-data"),
    "empty": (b"", FORM[1]),
    "no field": (b"--b-1--\r\n", FORM[1]),
    "no code": (form(("config", b"{}")), FORM[1]),
    "field before": (form(("other", b"{}"), ("code", ZIP)), FORM[1]),
    "field after": (form(("code", ZIP), ("other", b"{}")), FORM[1]),
    "config twice": (form(("config", b"{}"), ("code", ZIP), ("config", b"{}")), FORM[1]),
    "code twice": (form(("code", ZIP), ("code", ZIP)), FORM[1]),
    "cut in the field": (form(("code", ZIP))[:-2_000], FORM[1]),
    "no end": (form(("code", ZIP), end=b""), FORM[1]),
    "no name": (b"--b-1\r\n\r\nabc\r\n--b-1--\r\n", FORM[1]),
    "other boundary": (form(("code", ZIP)), "multipart/form-data; boundary=other"),
    "nested": (b"--b-1\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c--\r\n--b-1--\r\n", FORM[1]),
    "boundary too long": (form(("code", ZIP)), f"multipart/form-data; boundary={'b' * 100}"),
    "header that is none": (b"--b-1\r\nx\r\n\r\nabc\r\n--b-1--\r\n", FORM[1]),
}


@pytest.mark.parametrize("case", BROKEN_FORMS)
async def test_a_form_of_another_shape_is_400_and_makes_no_version(gateway: Gateway, case: str) -> None:
    await gateway.create()
    body, content_type = BROKEN_FORMS[case]
    headers = [("Content-Type", content_type)] if body else [("Content-Type", content_type), ("Content-Length", "0")]

    answer = await send(gateway, body, *headers)

    assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT"), answer
    assert gateway.services.builder.archives == []


@pytest.mark.parametrize("first", [True, False])
async def test_configuration_is_the_field_config_of_a_form_before_or_after_the_code(
    gateway: Gateway, first: bool
) -> None:
    await gateway.create()
    said = {
        "entrypoint": "other.handle",
        "timeout_sec": None,
        "env_vars": {"A": "1"},
        "phase": "Ready",
        "name": "hello",
    }
    fields = [("config", json.dumps(said).encode()), ("code", ZIP)]

    answer = await send(gateway, form(*(fields if first else reversed(fields))), FORM)

    assert answer.status == 200, answer
    builder = gateway.services.builder
    (config,) = builder.configs
    assert sorted(config.config_mask.paths) == ["entrypoint", "env_vars", "timeout"]
    assert (config.config.entrypoint, dict(config.config.env_vars)) == ("other.handle", {"A": "1"})
    assert not config.config.HasField("timeout")
    assert builder.archives == [ZIP]


@pytest.mark.parametrize("config", [b"{}", b'{"phase": "Ready", "name": "hello"}'])
async def test_configuration_that_says_nothing_changes_nothing(gateway: Gateway, config: bytes) -> None:
    await gateway.create()

    assert (await send(gateway, form(("config", config), ("code", ZIP)), FORM)).status == 200
    assert gateway.services.builder.configs == []


@pytest.mark.parametrize(
    ("config", "status", "field"),
    [
        (b"{", 400, "config"),
        (b"[]", 400, "config"),
        (b"\xff", 400, "config"),
        (b'{"nonsense": 1}', 400, "nonsense"),
        (b'{"memory_mb": 64, "memory_mb": 128}', 400, "memory_mb"),
        (b'{"memory_mb": 5}', 400, "memory_mb"),
        (b'{"memory_mb": "x"}', 400, "memory_mb"),
        (b'{"runtime": null}', 400, "runtime"),
        (b'{"name": "other"}', 400, "name"),
        (b'{"env_vars": {"A": 1}}', 400, "env_vars.A"),
        (b'{"description": "' + b"x" * MIB + b'"}', 413, "config"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
async def test_configuration_that_is_wrong_is_told_as_in_a_put_and_makes_no_version(
    gateway: Gateway, config: bytes, status: int, field: str, first: bool
) -> None:
    await gateway.create()
    fields = [("config", config), ("code", ZIP)]

    answer = await send(gateway, form(*(fields if first else reversed(fields))), FORM)

    assert (answer.status, answer.json()["field"]) == (status, field), answer
    assert gateway.services.builder.archives == []


@pytest.mark.parametrize(
    "content_type", ["application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/mixed"]
)
async def test_another_type_is_415_and_told_what_to_send(gateway: Gateway, content_type: str) -> None:
    await gateway.create()

    answer = await send(gateway, ZIP, ("Content-Type", content_type))

    assert (answer.status, answer.code) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert "application/zip" in answer.json()["error"]


async def test_an_archive_is_never_held_whole(gateway: Gateway) -> None:
    await gateway.create()
    gateway.services.builder.limit = 64 * MIB
    builder = gateway.services.builder
    head = f"POST {ONE}/upload HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.token}\r\n"
    head += f"Content-Type: application/zip\r\nContent-Length: {4 * MIB}\r\n\r\n"
    async with connected(gateway.url) as client:
        await client.send(head.encode() + b"PK" + b"a" * MIB)
        await until(lambda: builder.chunks >= 4)
        await client.send(b"a" * (3 * MIB - 2))

        assert (await client.receive()).status == 200
    assert len(builder.archives[0]) == 4 * MIB


@pytest.mark.parametrize("body", [b"BROKEN" + b"x" * 5 * MIB, b"BROKEN"])
async def test_what_the_builder_refuses_is_told_while_the_client_still_sends(gateway: Gateway, body: bytes) -> None:
    await gateway.create()

    answer = await send(gateway, body)

    assert (answer.status, answer.code, answer.json()["field"]) == (400, "INVALID_ARGUMENT", "code")
    assert answer.json()["error"] == "the archive is not a zip"


async def test_what_the_builder_finds_too_large_is_413(gateway: Gateway) -> None:
    await gateway.create()
    gateway.services.builder.limit = 1_000

    answer = await send(gateway, ZIP)

    assert (answer.status, answer.code) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("how", ["announced", "chunked", "form", "announced form"])
async def test_an_archive_beyond_the_limit_is_413(how: str) -> None:
    async with running_gateway(SLESS_MAX_ARCHIVE_BYTES=2 * MIB) as gateway:
        await gateway.create()
        data, size = b"PK" + b"x" * (2 * MIB), 2 * MIB + 2
        if how == "announced":
            answer = await send(gateway, data)
        elif how == "chunked":
            chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (size, data)
            asked = request("POST", f"{ONE}/upload", ("Transfer-Encoding", "chunked"), token=gateway.token)
            async with connected(gateway.url) as client:
                await client.send(asked + chunked)
                answer = await client.receive()
        else:
            padding = b"x" * (MIB if how == "announced form" else 0)
            answer = await send(gateway, form(("code", data + padding)), FORM)

        assert (answer.status, answer.code) == (413, "PAYLOAD_TOO_LARGE")
        assert gateway.services.builder.archives == []


@pytest.mark.parametrize("framing", ["Content-Length: 5000000", "Transfer-Encoding: chunked"])
async def test_an_archive_that_is_cut_is_never_taken_for_a_whole_one(gateway: Gateway, framing: str) -> None:
    await gateway.create()
    name, _, value = framing.partition(": ")
    asked = request("POST", f"{ONE}/upload", (name, value), token=gateway.token)
    for count in range(1, 11):
        before = gateway.services.builder.chunks
        async with connected(gateway.url) as client:
            await client.send(asked + (b"fffff\r\n" if "chunked" in framing else b"") + b"PK" + b"x" * 100_000)
            await until(lambda: gateway.services.builder.chunks > before)  # noqa: B023
        await until(lambda: gateway.services.builder.cancelled == count)  # noqa: B023

    assert gateway.services.builder.archives == []


@pytest.mark.parametrize("headers", [[("Content-Type", "application/zip")], [FORM]])
async def test_an_upload_that_stops_is_400(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, headers: list[tuple[str, str]]
) -> None:
    monkeypatch.setattr(bodies, "SILENCE_SEC", 0.1)
    monkeypatch.setattr(upload, "SILENCE_SEC", 0.1)
    await gateway.create()
    asked = request("POST", f"{ONE}/upload", *headers, ("Content-Length", "50000"), token=gateway.token)
    async with connected(gateway.url) as client:
        await client.send(asked + form(("code", ZIP))[:500])
        answer = await client.receive()

    assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT")
    assert gateway.services.builder.archives == []


@pytest.mark.parametrize("content_type", ["application/zip", FORM[1]])
async def test_a_client_that_waits_to_be_invited_is(gateway: Gateway, content_type: str) -> None:
    await gateway.create()
    body = ZIP if content_type == "application/zip" else form(("code", ZIP))
    headers = (("Content-Type", content_type), ("Expect", "100-continue"), ("Content-Length", str(len(body))))
    async with connected(gateway.url) as client:
        await client.send(request("POST", f"{ONE}/upload", *headers, token=gateway.token))
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(body)

        assert (await client.receive()).status == 200


async def test_an_upload_to_nothing_is_404(gateway: Gateway) -> None:
    answer = await send(gateway, ZIP)

    assert (answer.status, answer.code) == (404, "NOT_FOUND")


@pytest.mark.fault(29)
async def test_an_upload_honours_if_match(gateway: Gateway) -> None:
    etag = (await gateway.create()).header("etag")
    assert etag is not None
    kind = ("Content-Type", "application/zip")

    first = await send(gateway, ZIP, kind, ("If-Match", etag))
    second = await send(gateway, ZIP, kind, ("If-Match", etag))

    assert (first.status, second.status, second.code) == (200, 412, "PRECONDITION_FAILED")


@pytest.mark.parametrize(("query", "build_only"), [("", False), ("?activate=true", False), ("?activate=false", True)])
async def test_an_upload_may_only_be_built(gateway: Gateway, query: str, build_only: bool) -> None:
    await gateway.create()

    await send(gateway, ZIP, query=query)

    (head,) = gateway.services.builder.heads
    assert (head.build_only, head.kind, len(head.request_id)) == (build_only, pb.FUNCTION_KIND_SERVICE, 36)


@pytest.mark.parametrize(
    "query", ["?wait=x", "?wait=-1", "?wait=601", "?wait=", "?wait=1.5", "?wait=%D9%A1", "?activate=x"]
)
async def test_odd_parameters_are_400_before_anything_is_sent(gateway: Gateway, query: str) -> None:
    await gateway.create()

    answer = await send(gateway, ZIP, query=query)

    assert (answer.status, answer.json()["field"]) == (400, query[1:].partition("=")[0])
    assert gateway.services.builder.heads == []
