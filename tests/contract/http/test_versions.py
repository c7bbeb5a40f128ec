"""Versions, activation and build logs over REST."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sless.registry.v1 import registry_pb2 as pb
from sless_platform.errors import Unavailable

from tests.support.gateway import NAMESPACE, Gateway, until
from tests.support.raw_http import connected, request

COLLECTIONS = ("functions", "services")


def one(collection: str = "services") -> str:
    return f"/v1/namespaces/{NAMESPACE}/{collection}/hello"


async def upload(gateway: Gateway, count: int = 1, collection: str = "services") -> list[pb.Version]:
    """A function with so many versions, as the registry has them."""
    await gateway.create("hello", collection)
    for number in range(count):
        answer = await gateway.ask(
            "POST", f"{one(collection)}/versions", ("Content-Type", "application/zip"), body=b"PK%d" % number
        )
        assert answer.status == 200, answer
    return gateway.services.registry.versions[NAMESPACE, "hello"]


@pytest.mark.parametrize("collection", COLLECTIONS)
async def test_versions_are_listed_newest_first(gateway: Gateway, collection: str) -> None:
    await upload(gateway, 5, collection)

    answer = await gateway.ask("GET", f"{one(collection)}/versions")

    assert [version["version"] for version in answer.json()] == [5, 4, 3, 2, 1]
    first = await gateway.ask("GET", f"{one(collection)}/versions/5")
    assert first.json() == answer.json()[0]
    assert (first.json()["state"], first.json()["active"]) == ("Pending", False)


async def test_a_version_has_an_etag_of_its_state(gateway: Gateway) -> None:
    (version,) = await upload(gateway)
    before = (await gateway.ask("GET", f"{one()}/versions/1")).header("etag")
    version.state, version.revision = pb.VERSION_STATE_BUILT, 2
    built = (await gateway.ask("GET", f"{one()}/versions/1")).header("etag")
    version.active = True
    active = (await gateway.ask("GET", f"{one()}/versions/1")).header("etag")

    assert len({before, built, active}) == 3


@pytest.mark.fault(8)
@pytest.mark.parametrize("version", ["2", "0", "-1", "x", "1.0", "%D9%A1", "99999999999999999999", "latest"])
async def test_an_unknown_version_is_404(gateway: Gateway, version: str) -> None:
    await upload(gateway)

    for method, target in (("GET", ""), ("POST", "/activate"), ("GET", "/build-log")):
        answer = await gateway.ask(method, f"{one()}/versions/{version}{target}")
        assert (answer.status, answer.code) == (404, "NOT_FOUND"), target


@pytest.mark.parametrize("collection", COLLECTIONS)
async def test_a_built_version_is_activated(gateway: Gateway, collection: str) -> None:
    first, _ = await upload(gateway, 2, collection)
    first.state = pb.VERSION_STATE_BUILT

    answer = await gateway.ask("POST", f"{one(collection)}/versions/1/activate")

    assert (answer.status, answer.json()["phase"], answer.json()["name"]) == (200, "Deploying", "hello")
    assert answer.header("etag") == (await gateway.ask("GET", one(collection))).header("etag")


async def test_what_is_not_built_cannot_be_activated(gateway: Gateway) -> None:
    await upload(gateway)

    answer = await gateway.ask("POST", f"{one()}/versions/1/activate")

    assert (answer.status, answer.code) == (409, "CONFLICT")


@pytest.mark.fault(29)
async def test_activation_honours_if_match(gateway: Gateway) -> None:
    (version,) = await upload(gateway)
    version.state = pb.VERSION_STATE_BUILT
    etag = (await gateway.ask("GET", one())).header("etag")
    assert etag is not None

    wrong = await gateway.ask("POST", f"{one()}/versions/1/activate", ("If-Match", '"x"'))
    right = await gateway.ask("POST", f"{one()}/versions/1/activate", ("If-Match", etag))

    assert (wrong.status, right.status) == (412, 200)


def log(*parts: str, wait: asyncio.Event | None = None, then: Exception | None = None) -> object:
    async def read(follow: bool) -> AsyncIterator[str]:
        for part in parts:
            yield part
        if follow and wait is not None:
            await wait.wait()
            yield "last\n"
        if then is not None:
            raise then

    return read


async def test_a_build_log_is_text(gateway: Gateway) -> None:
    await upload(gateway)
    gateway.services.builder.logs[1] = log("first\n", "zweite Zeile: ä\n")  # type: ignore[assignment]

    answer = await gateway.ask("GET", f"{one()}/versions/1/build-log")

    assert (answer.status, answer.header("content-type")) == (200, "text/plain; charset=utf-8")
    assert answer.body.decode() == "first\nzweite Zeile: ä\n"


@pytest.mark.parametrize("query", ["", "?follow=1", "?follow=0"])
async def test_a_log_that_is_not_there_is_404(gateway: Gateway, query: str) -> None:
    await upload(gateway)

    answer = await gateway.ask("GET", f"{one()}/versions/1/build-log{query}")

    assert (answer.status, answer.code) == (404, "NOT_FOUND")


async def test_follow_is_a_flag(gateway: Gateway) -> None:
    answer = await gateway.ask("GET", f"{one()}/versions/1/build-log?follow=maybe")

    assert (answer.status, answer.json()["field"]) == (400, "follow")


@pytest.mark.parametrize("parts", [(), ("first\n",)])
async def test_a_log_is_followed_until_the_build_ends(gateway: Gateway, parts: tuple[str, ...]) -> None:
    await upload(gateway)
    ended = asyncio.Event()
    gateway.services.builder.logs[1] = log(*parts, wait=ended)  # type: ignore[assignment]
    async with connected(gateway.url) as client:
        await client.send(request("GET", f"{one()}/versions/1/build-log?follow=1", token=gateway.token))
        answer, body = await client.head()
        begun = [await anext(body) for _ in parts]
        ended.set()
        rest = [part async for part in body]

    assert (answer.status, answer.header("transfer-encoding")) == (200, "chunked")
    assert b"".join(begun + rest).decode() == "".join(parts) + "last\n"


async def test_a_log_that_breaks_off_is_cut(gateway: Gateway) -> None:
    await upload(gateway)
    gateway.services.builder.logs[1] = log("first\n", then=Unavailable("gone"))  # type: ignore[assignment]
    async with connected(gateway.url) as client:
        await client.send(request("GET", f"{one()}/versions/1/build-log?follow=1", token=gateway.token))
        _, body = await client.head()
        with pytest.raises(ConnectionError):
            [part async for part in body]


async def test_who_stops_following_ends_the_stream(gateway: Gateway) -> None:
    await upload(gateway)
    ended: list[bool] = []

    async def endless(_follow: bool) -> AsyncIterator[str]:
        try:
            yield "first\n"
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    gateway.services.builder.logs[1] = endless
    async with connected(gateway.url) as client:
        await client.send(request("GET", f"{one()}/versions/1/build-log?follow=1", token=gateway.token))
        await client.head()

    await until(lambda: ended == [True])
