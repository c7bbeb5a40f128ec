"""The trace of a request, and its span where one is made."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from sless_platform import telemetry, tracing
from sless_platform.telemetry import Attributes, Span

from sless_gateway.http_api.exchange import Exchange
from sless_gateway.http_api.metrics import KNOWN_METHODS

_PROBES: Final = frozenset({"/health", "/ready", "/metrics"})
"""Asked every few seconds by machines: spans of them would bury the others."""


def accept(request: web.BaseRequest) -> Span | None:
    """Enter the trace that the client sent, or a new one; the request's span when one is made."""
    if request.raw_path in _PROBES:
        tracing.enter(None)
        return None
    headers = request.headers
    return telemetry.accept(
        request.method if request.method in KNOWN_METHODS else "HTTP",
        traceparents=headers.getall(tracing.TRACEPARENT, ()),
        tracestates=headers.getall(tracing.TRACESTATE, ()),
    )


def end(span: Span, exchange: Exchange, status: int | None) -> None:
    """The request is over; `status` None: its client went away before it was answered. The query stays out: it may hold secrets."""
    request = exchange.request
    if exchange.template:
        span.rename(f"{request.method if request.method in KNOWN_METHODS else 'HTTP'} {exchange.template}")
    span.note(_facts(exchange))
    if status is None:
        span.fail("CANCELLED")
    else:
        span.note({"http.response.status_code": status})
        if status >= 500:
            span.fail(str(status))
    span.end()


def _facts(exchange: Exchange) -> Attributes:
    request = exchange.request
    known = request.method in KNOWN_METHODS
    facts: dict[str, telemetry.Value] = {
        "http.request.method": request.method if known else "_OTHER",
        "url.scheme": request.scheme,
        "url.path": exchange.target.path,
        "sless.request_id": exchange.request_id,
    }
    if not known:
        facts["http.request.method_original"] = request.method
    if exchange.template:
        facts["http.route"] = exchange.template
    if "ns" in exchange.params:
        facts["sless.namespace"] = exchange.params["ns"]
    if "name" in exchange.params:
        facts["sless.name"] = exchange.params["name"]
    return facts
