"""Calls that are not made: refused by the invoker, by a bound, or because the invoker is away."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from sless.invoker.v1 import invoker_pb2
from sless_platform.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    NotFound,
    PlatformError,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)

from tests.support.calls import refuses, waits_for
from tests.support.gateway import NAMESPACE, Gateway, running_gateway, until

URL = f"/fn/{NAMESPACE}/hello"
INVOKE = f"/v1/namespaces/{NAMESPACE}/functions/hello/invoke"
TOKEN_REQUIRED = Unauthenticated("hello wants a token of its owner", reason="TOKEN_REQUIRED")


def head_of(gateway: Gateway) -> invoker_pb2.CallHead:
    """The head of the one call that was made."""
    (head,) = gateway.services.invoker.heads
    return head


REFUSALS: dict[str, tuple[PlatformError, int, str]] = {
    "unknown": (NotFound("function not found: hello", reason="FUNCTION_NOT_FOUND"), 404, "NOT_FOUND"),
    "switched off": (NotFound("hello is switched off", reason="DISABLED"), 404, "DISABLED"),
    "switched off, invoked": (FailedPrecondition("hello is switched off", reason="DISABLED"), 409, "DISABLED"),
    "never ready": (Unavailable("hello has not been ready yet", reason="NOT_READY"), 503, "NOT_READY"),
    "full": (ResourceExhausted("too many", reason="TOO_MANY_REQUESTS"), 429, "TOO_MANY_REQUESTS"),
    "no instance": (DeadlineExceeded("no instance", reason="INSTANCE_TIMEOUT"), 504, "INSTANCE_TIMEOUT"),
    "too slow": (DeadlineExceeded("too slow", reason="FUNCTION_TIMEOUT"), 504, "FUNCTION_TIMEOUT"),
    "crashed": (Unavailable("the instance ended", reason="FUNCTION_CRASHED"), 502, "FUNCTION_CRASHED"),
    "token": (TOKEN_REQUIRED, 401, "UNAUTHENTICATED"),
    "away": (Unavailable("the registry is away", reason="UNAVAILABLE"), 503, "UNAVAILABLE"),
}


@pytest.mark.parametrize("case", REFUSALS)
@pytest.mark.parametrize("target", [URL, INVOKE])
async def test_what_the_invoker_refuses_is_told_in_json(gateway: Gateway, case: str, target: str) -> None:
    error, status, code = REFUSALS[case]
    gateway.services.invoker.call = refuses(error)

    answer = await gateway.ask("POST", target, body=b"body", token=gateway.token if target == INVOKE else None)

    assert (answer.status, answer.code) == (status, code)
    assert answer.header("x-sless-invocation-id") == head_of(gateway).invocation_id
    assert (answer.header("retry-after") is not None) == (status in {429, 503})


async def test_retry_after_is_what_the_invoker_says(gateway: Gateway) -> None:
    full = ResourceExhausted("full", reason="TOO_MANY_REQUESTS", retry_after=timedelta(seconds=7))
    gateway.services.invoker.call = refuses(full)

    assert (await gateway.ask("GET", URL)).header("retry-after") == "7"


@pytest.mark.parametrize(
    "target", ["/fn/sless-x/hello", f"/fn/{NAMESPACE}/UPPER", f"/fn/{NAMESPACE}/a%2Fb", "/fn/a/b/c"]
)
async def test_what_cannot_be_a_function_is_not_asked_for(gateway: Gateway, target: str) -> None:
    answer = await gateway.ask("GET", target)

    assert (answer.status, answer.code) == (404, "NOT_FOUND")
    assert gateway.services.invoker.heads == []


async def test_calls_in_flight_are_bounded() -> None:
    release = asyncio.Event()
    async with running_gateway(SLESS_MAX_GATEWAY_CALLS=2) as gateway:
        gateway.services.invoker.call = waits_for(release)
        calls = [asyncio.create_task(gateway.ask("GET", target)) for target in (URL, INVOKE)]
        await until(lambda: len(gateway.services.invoker.heads) == 2)

        refused = await gateway.ask("GET", URL)
        invoked = await gateway.ask("GET", INVOKE)
        other = await gateway.ask("GET", "/v1/whoami")
        release.set()

        assert (refused.status, refused.code, refused.header("retry-after")) == (429, "TOO_MANY_REQUESTS", "1")
        assert (invoked.status, other.status) == (429, 200)
        assert [(await call).status for call in calls] == [200, 200]
        assert (await gateway.ask("GET", URL)).status == 200


async def test_a_call_waits_for_an_invoker_that_is_starting_again(gateway: Gateway) -> None:
    await gateway.ask("GET", URL)
    await gateway.services.stop("invoker")

    calling = asyncio.create_task(gateway.ask("GET", URL))
    await asyncio.wait({calling}, timeout=0.3)
    await gateway.services.start("invoker")

    assert (await calling).status == 200


async def test_an_invoker_that_stays_away_is_503(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sless_gateway.adapters.invoker_client._CONNECT_SEC", 0.2)
    await gateway.services.stop("invoker")

    answer = await gateway.ask("POST", URL, body=b"body")

    assert (answer.status, answer.code, answer.header("retry-after")) == (503, "UNAVAILABLE", "1")
    assert "invoker" not in answer.json()["error"]
