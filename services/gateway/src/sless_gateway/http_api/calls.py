"""Calls of functions: their public URLs, and invoke."""

from __future__ import annotations

from typing import Final

from sless_calls.headers import end_to_end, request_headers
from sless_contracts import catalog, limits
from sless_platform.errors import NotFound

from sless_gateway.domain import Call, Headers, Reply, Trigger
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.api import Api
from sless_gateway.http_api.bodies import RequestBody
from sless_gateway.http_api.exchange import REQUEST_ID, Exchange
from sless_gateway.http_api.forwarded import forwarded
from sless_gateway.http_api.streaming import streamed
from sless_gateway.ports import OpenCall

INVOCATION_ID: Final = "X-Sless-Invocation-Id"

_OURS: Final = frozenset({REQUEST_ID.lower(), INVOCATION_ID.lower(), "content-length"})
"""Fields of an answer that are the gateway's to say."""


async def call_url(api: Api, exchange: Exchange) -> Answer:
    """A request to a function's URL, by anybody, with any method."""
    call = _call(api, exchange, Trigger.HTTP)
    if not _may_exist(call):
        raise NotFound(f"function not found: {call.name}")
    token = exchange.offered_token()
    with api.calls.slot():
        body = await _body(api, exchange, keep=token is not None)
        opened = await api.calls.public(call=call, body=body, token=token)
        return await _answer(exchange, opened)


async def invoke_function(api: Api, exchange: Exchange) -> Answer:
    """A call by the function's owner, with any method."""
    exchange.key  # noqa: B018 - refuses what can't be a name
    call = _call(api, exchange, Trigger.INVOKE)
    with api.calls.slot():
        body = await _body(api, exchange, keep=False)
        opened = await api.calls.invoke(call=call, body=body, caller=exchange.caller)
        return await _answer(exchange, opened)


def _call(api: Api, exchange: Exchange, trigger: Trigger) -> Call:
    request = exchange.request
    headers = _decoded(request.raw_headers)
    call = Call(
        namespace=exchange.namespace,
        name=exchange.params["name"],
        kind=exchange.kind,
        trigger=trigger,
        method=request.method,
        path=exchange.params.get("path") or "/",
        query=exchange.target.query,
        headers=forwarded(request_headers(headers), request),
        request_id=exchange.request_id,
        invocation_id=api.new_invocation_id(),
    )
    exchange.extra.append((INVOCATION_ID, call.invocation_id))
    return call


def _decoded(raw: tuple[tuple[bytes, bytes], ...]) -> Headers:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]


def _may_exist(call: Call) -> bool:
    return bool(catalog.NAMESPACE_PATTERN.fullmatch(call.namespace) and catalog.NAME_PATTERN.fullmatch(call.name))


async def _body(api: Api, exchange: Exchange, *, keep: bool) -> RequestBody:
    body = RequestBody(exchange.request, limit=api.request_bytes, keep=keep)
    await body.hold(limits.STREAM_THRESHOLD_BYTES.value)
    return body


async def _answer(exchange: Exchange, opened: OpenCall) -> Answer:
    try:
        reply = opened.reply
        answer = Answer(reply.status, _headers(exchange, reply), reply.first, length=_length(exchange, reply))
        if reply.complete:
            await answer.prepare(exchange.request)
            return answer
        return await streamed(exchange.request, answer, reply.first, opened.rest())
    finally:
        await opened.close()


def _headers(exchange: Exchange, reply: Reply) -> Headers:
    headers = [field for field in end_to_end(reply.headers) if field[0].lower() not in _OURS]
    headers.append((REQUEST_ID, exchange.request_id))
    headers += exchange.extra
    return headers


def _length(exchange: Exchange, reply: Reply) -> int | None:
    """What the handler said its body's length is; of use when it streams, and for HEAD."""
    if reply.complete and exchange.request.method != "HEAD":
        return None
    said = [value for name, value in reply.headers if name.lower() == "content-length"]
    return int(said[0]) if len(said) == 1 and said[0].isascii() and said[0].isdigit() else None
