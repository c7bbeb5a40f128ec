"""Sources over REST: as JSON, or as the zip; for functions and services alike."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from sless_contracts import limits

from tests.support.fake_services import ARCHIVE
from tests.support.gateway import NAMESPACE, Gateway
from tests.support.raw_http import Answer, exchange, request

COLLECTIONS = ("functions", "services")
FILES = {"a.py": "x = 'ä'\n".encode(), "b.bin": b"\xff\xfe", "c.txt": b"", "d.bin": b"a\0b", "e.txt": b"\xef\xbb\xbf1"}


def one(collection: str = "services") -> str:
    return f"/v1/namespaces/{NAMESPACE}/{collection}/hello"


async def with_sources(gateway: Gateway, collection: str = "services") -> None:
    await gateway.create("hello", collection)
    gateway.services.builder.sources = {1: {"old.py": b"1"}, 2: FILES}


def decoded(file: dict[str, Any]) -> bytes:
    content: str = file["content"]
    return base64.b64decode(content) if file["encoding"] == "base64" else content.encode()


@pytest.mark.parametrize("collection", COLLECTIONS)
async def test_files_are_text_where_they_are_and_base64_where_not(gateway: Gateway, collection: str) -> None:
    await with_sources(gateway, collection)

    answer = await gateway.ask("GET", f"{one(collection)}/source")

    source = answer.json()
    assert (answer.status, answer.header("content-type")) == (200, "application/json; charset=utf-8")
    assert list(source) == ["version", "entrypoint", "files", "truncated"]
    assert (source["version"], source["entrypoint"], source["truncated"]) == (2, "handler.handle", False)
    assert {file["path"]: decoded(file) for file in source["files"]} == FILES
    assert [file["encoding"] for file in source["files"]] == ["utf-8", "base64", "utf-8", "base64", "utf-8"]
    assert [file["size"] for file in source["files"]] == [len(content) for content in FILES.values()]


@pytest.mark.parametrize("collection", COLLECTIONS)
async def test_a_versions_own_source_is_given(gateway: Gateway, collection: str) -> None:
    await with_sources(gateway, collection)

    answer = await gateway.ask("GET", f"{one(collection)}/versions/1/source")

    assert answer.json() == {
        "version": 1,
        "entrypoint": "handler.handle",
        "files": [{"path": "old.py", "size": 1, "encoding": "utf-8", "content": "1"}],
        "truncated": False,
    }


async def test_what_does_not_fit_is_left_out_whole_and_said_to_be(gateway: Gateway) -> None:
    limit = limits.SOURCE_BYTES.value
    await gateway.create()
    files = {"a.txt": b"a" * (limit - 10), "b.txt": b"b" * 11, "c.txt": b"c" * 10}
    gateway.services.builder.sources = {1: files}

    source = (await gateway.ask("GET", f"{one()}/source")).json()

    assert [file["path"] for file in source["files"]] == ["a.txt", "c.txt"]
    assert source["truncated"] is True


ACCEPTS = {
    "application/zip": True,
    "application/zip, application/json;q=0.5": True,
    "application/*;q=0.1, application/zip;q=0.2": True,
    "application/json": False,
    "*/*": False,
    "application/json, application/zip": False,
    "text/html": False,
    "application/zip;q=x": False,
    "": False,
}


@pytest.mark.parametrize("accept", ACCEPTS)
async def test_the_zip_is_given_to_who_would_rather_have_it(gateway: Gateway, accept: str) -> None:
    await with_sources(gateway)

    answer = await gateway.ask("GET", f"{one()}/source", ("Accept", accept))

    if ACCEPTS[accept]:
        assert (answer.status, answer.header("content-type")) == (200, "application/zip")
        assert answer.header("content-disposition") == 'attachment; filename="hello-2.zip"'
        assert answer.header("content-length") == str(len(ARCHIVE))
        assert answer.body == ARCHIVE
    else:
        assert answer.json()["version"] == 2
    assert answer.header("vary") == "Accept"


async def test_each_version_and_form_has_an_etag_of_its_own(gateway: Gateway) -> None:
    await with_sources(gateway)
    asked = [(path, accept) for path in ("/versions/1", "/versions/2") for accept in ("*/*", "application/zip")]

    etags = [
        (await gateway.ask("GET", f"{one()}{path}/source", ("Accept", form))).header("etag") for path, form in asked
    ]

    assert len(set(etags)) == 4
    assert all(etag is not None and etag.startswith('"') for etag in etags)


async def test_a_head_is_answered_without_a_body(gateway: Gateway) -> None:
    await with_sources(gateway)

    answer = await gateway.ask("HEAD", f"{one()}/source")

    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("accept", ["*/*", "application/zip"])
async def test_what_is_not_there_is_404(gateway: Gateway, accept: str) -> None:
    async def status(path: str) -> tuple[int, str | None]:
        answer = await gateway.ask("GET", path, ("Accept", accept))
        return answer.status, answer.code

    assert await status(f"{one()}/source") == (404, "NOT_FOUND")
    await gateway.create()
    assert await status(f"{one()}/source") == (404, "NOT_FOUND")
    assert await status(f"{one()}/versions/7/source") == (404, "NOT_FOUND")
    assert await status(f"{one()}/versions/x/source") == (404, "NOT_FOUND")


ASKED = (
    ("GET", ""),
    ("GET", "/source"),
    ("GET", "/versions"),
    ("GET", "/versions/1"),
    ("GET", "/versions/1/source"),
    ("GET", "/versions/9/source"),
    ("GET", "/versions/1/build-log"),
    ("POST", "/versions/1/activate"),
    ("PUT", "/source"),
    ("DELETE", ""),
    ("GET", "/source"),
)


@pytest.mark.fault(27)
async def test_functions_and_services_answer_alike(gateway: Gateway) -> None:
    seen: dict[str, list[tuple[int, str | None, str | None]]] = {}
    for collection in COLLECTIONS:
        await with_sources(gateway, collection)
        zipped = ("Content-Type", "application/zip")
        answers = [await gateway.ask("POST", f"{one(collection)}/upload", zipped, body=b"PK\x03\x04")]
        for method, path in ASKED:
            answers.append(await gateway.ask(method, f"{one(collection)}{path}"))
        seen[collection] = [(answer.status, answer.header("content-type"), fields(answer)) for answer in answers]
        gateway.services.registry.versions.clear()

    assert seen["functions"] == seen["services"]
    assert [status for status, _, _ in seen["functions"]] == [
        200,
        200,
        200,
        200,
        200,
        200,
        404,
        404,
        409,
        405,
        204,
        404,
    ]


def fields(answer: Answer) -> str | None:
    """The names of an answer's fields."""
    value = answer.json() if answer.body else None
    return ",".join(value) if isinstance(value, dict) else None


async def test_another_kind_is_not_found(gateway: Gateway) -> None:
    await with_sources(gateway, "services")

    answer = await gateway.ask("GET", f"{one('functions')}/source")

    assert answer.status == 404


@pytest.mark.fault(35)
async def test_only_the_owner_and_admins_see_a_source(gateway: Gateway) -> None:
    await with_sources(gateway)
    auth = gateway.services.auth

    async def status(token: str | None) -> int:
        return (await exchange(gateway.url, request("GET", f"{one()}/source", token=token))).status

    assert await status(None) == 401
    assert await status(auth.token("other")) == 403
    assert await status(auth.token("boss", "admin")) == 200
