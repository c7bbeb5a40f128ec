"""Tokens on public URLs: whose business they are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sless.invoker.v1 import invoker_pb2
from sless_platform.errors import Unauthenticated

from tests.support.calls import answers
from tests.support.gateway import NAMESPACE, SUB, Gateway

URL = f"/fn/{NAMESPACE}/hello"
TOKEN_REQUIRED = Unauthenticated("hello wants a token of its owner", reason="TOKEN_REQUIRED")


async def test_a_token_is_not_looked_at_on_a_public_url(gateway: Gateway) -> None:
    answer = await gateway.ask("GET", URL, token="somebody-elses")

    assert answer.status == 200
    (head,) = gateway.services.invoker.heads
    assert ("Authorization", "Bearer somebody-elses") in [(header.name, header.value) for header in head.headers]
    assert gateway.services.auth.asked == 0


def wants_a_token(seen: list[bytes], hesitation_sec: float = 0) -> Any:
    """A function that only its owner may call; keeps the bodies that it was called with."""

    async def call(head: invoker_pb2.CallHead, body: Any) -> Any:
        if not head.owner_authenticated:
            await asyncio.sleep(hesitation_sec)
            raise TOKEN_REQUIRED
        seen.append(b"".join([piece async for piece in body]))
        async for message in answers(b"yours")(head, body):
            yield message

    return call


@pytest.mark.parametrize("hesitation_sec", [0, 0.3])
@pytest.mark.parametrize("size", [0, 5, 300_000, 1_500_000, 20_000_000])
async def test_an_authenticated_url_takes_its_owners_token_and_the_whole_body(
    gateway: Gateway, size: int, hesitation_sec: float
) -> None:
    seen: list[bytes] = []
    gateway.services.invoker.call = wants_a_token(seen, hesitation_sec)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    answer = await gateway.ask("POST", URL, body=body)

    assert (answer.status, answer.body) == (200, b"yours")
    assert seen == [body]
    first, second = gateway.services.invoker.heads
    assert "authorization" in {header.name.lower() for header in first.headers}
    assert "authorization" not in {header.name.lower() for header in second.headers}
    assert [principal.service for principal in gateway.services.invoker.principals] == ["gateway", "gateway"]
    assert first.invocation_id == second.invocation_id


@pytest.mark.parametrize(
    ("who", "status", "code"),
    [
        (None, 401, "UNAUTHENTICATED"),
        ("forged", 401, "UNAUTHENTICATED"),
        ("stranger", 403, "PERMISSION_DENIED"),
        ("admin", 200, None),
        (SUB, 200, None),
    ],
)
async def test_an_authenticated_url_is_its_owners(
    gateway: Gateway, who: str | None, status: int, code: str | None
) -> None:
    gateway.services.invoker.call = wants_a_token([])
    auth = gateway.services.auth
    token = (
        {None: None, "forged": "forged"}.get(who) if who in {None, "forged"} else auth.token(who or "", *_roles(who))
    )

    answer = await gateway.ask("GET", URL, token=token)

    assert answer.status == status
    if code is not None:
        assert answer.code == code
    if status == 401:
        assert answer.header("www-authenticate") is not None


def _roles(who: str | None) -> list[str]:
    return ["admin"] if who == "admin" else []


async def test_while_nobody_can_be_verified_a_public_url_serves_on(gateway: Gateway) -> None:
    await gateway.services.stop("auth")

    assert (await gateway.ask("GET", URL)).status == 200


async def test_while_nobody_can_be_verified_an_authenticated_url_is_503(gateway: Gateway) -> None:
    gateway.services.invoker.call = wants_a_token([])
    await gateway.services.stop("auth")

    assert (await gateway.ask("GET", URL)).status == 503
