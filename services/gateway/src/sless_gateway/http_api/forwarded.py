"""What a handler is told of the hops before the gateway (the X-Forwarded fields that proxies agree on)."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from sless_gateway.domain import Headers

_FOR: Final = "X-Forwarded-For"
_PROTO: Final = "X-Forwarded-Proto"
_HOST: Final = "X-Forwarded-Host"


def forwarded(headers: Headers, request: web.BaseRequest) -> Headers:
    """The headers with the client's address added to X-Forwarded-For, and scheme and host unless a proxy has said them."""
    given = {name.lower() for name, _ in headers}
    added = _with_client(headers, given, request)
    if _PROTO.lower() not in given:
        added.append((_PROTO, request.scheme))
    if _HOST.lower() not in given and "host" in given:
        added.append((_HOST, request.headers["Host"]))
    return added


def _with_client(headers: Headers, given: set[str], request: web.BaseRequest) -> Headers:
    client = request.remote
    if not client:  # a unix socket: whoever is behind it has said who its client is
        return list(headers)
    if _FOR.lower() not in given:
        return [*headers, (_FOR, client)]
    last = max(place for place, (name, _) in enumerate(headers) if name.lower() == _FOR.lower())
    name, value = headers[last]
    return [*headers[:last], (name, f"{value}, {client}"), *headers[last + 1 :]]
