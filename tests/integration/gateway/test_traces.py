"""Traces as the gateway takes them in and hands them on. Without an endpoint: none of it needs one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from sless.invoker.v1.invoker_pb2 import InvokeResponse
from sless_platform.tracing import Trace

from tests.support.fake_services import reply
from tests.support.gateway import NAMESPACE, Gateway

URL = f"/fn/{NAMESPACE}/hello"
SENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def trace_of(gateway: Gateway, *headers: tuple[str, str]) -> Trace:
    """The trace that the invoker was told of a call with these headers."""
    assert (await gateway.ask("GET", URL, *headers)).status == 200
    trace = gateway.services.invoker.traces[-1]
    assert trace is not None
    return trace


async def test_the_clients_trace_is_gone_on_with(gateway: Gateway) -> None:
    state = ("tracestate", "congo=t61rcWkgMzE"), ("Tracestate", "rojo=00f067aa0ba902b7")

    trace = await trace_of(gateway, ("Traceparent", SENT), *state)

    assert trace == Trace(SENT, "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7")


@pytest.mark.parametrize("headers", [[], ["nonsense"], [SENT, SENT], [SENT.upper()]])
async def test_a_client_without_a_trace_gets_a_new_one(gateway: Gateway, headers: list[str]) -> None:
    sent = [("traceparent", value) for value in headers]

    first, second = (
        await trace_of(gateway, *sent, ("tracestate", "a=1")),
        await trace_of(gateway, *sent, ("tracestate", "a=1")),
    )

    assert len({first.trace_id, second.trace_id, SENT[3:35]}) == 3
    assert (first.tracestate, first.sampled) == ("", True)


async def test_what_the_client_did_not_want_sampled_is_not(gateway: Gateway) -> None:
    assert not (await trace_of(gateway, ("traceparent", f"{SENT[:-1]}0"))).sampled


async def test_baggage_is_the_handlers_alone(gateway: Gateway) -> None:
    baggage = "userId=alice,serverNode=DF%2028,isProduction=false;propagation=1"

    await trace_of(gateway, ("Baggage", baggage), ("baggage", "a=1"))

    sent = [(each.name, each.value) for each in gateway.services.invoker.heads[-1].headers]
    assert [field for field in sent if field[0].lower() == "baggage"] == [("Baggage", baggage), ("baggage", "a=1")]


async def _answer(_head: object, _pieces: object) -> AsyncIterator[InvokeResponse]:
    yield reply(b"answer")


async def test_each_request_of_a_connection_has_its_own_trace(gateway: Gateway) -> None:
    gateway.services.invoker.call = _answer
    url = httpx.URL(gateway.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        for line in (f"traceparent: {SENT}\r\n", "", f"traceparent: {SENT}\r\n"):
            writer.write(f"GET {URL} HTTP/1.1\r\nHost: h\r\n{line}\r\n".encode())
            await reader.readuntil(b"answer")
    finally:
        writer.close()

    first, second, third = gateway.services.invoker.traces
    assert first == third == Trace(SENT)
    assert second is not None
    assert second.trace_id != Trace(SENT).trace_id
