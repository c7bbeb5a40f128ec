"""What a request's head must be beside what the parser has seen to."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web
from sless_contracts import limits
from sless_platform.errors import InvalidArgument

from sless_gateway.errors import HeadersTooLarge

_LINE_EXTRA: Final = len(": \r\n")
_HOST: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:\[\]%-]*")  # RFC 3986 §3.2.2 and a port


def check_head(request: web.BaseRequest) -> None:
    """Raises HeadersTooLarge, and InvalidArgument for what could be read in two ways by two servers."""
    sizes = [len(name) + len(value) + _LINE_EXTRA for name, value in request.raw_headers]
    if sum(sizes) > limits.HEADERS_BYTES.value:
        raise HeadersTooLarge(f"the request's headers are larger than {limits.HEADERS_BYTES.value} bytes together")
    if sizes and max(sizes) > limits.HEADER_BYTES.value + len("\r\n"):
        raise HeadersTooLarge(f"a header is larger than {limits.HEADER_BYTES.value} bytes")
    if _HOST.fullmatch(request.headers.get("Host", "")) is None:
        raise InvalidArgument("Host is not the name of a host", field="Host")
    if request.method == "CONNECT":
        raise InvalidArgument("CONNECT is for proxies; this is none")
    _check_transfer_encoding(request)


def _check_transfer_encoding(request: web.BaseRequest) -> None:
    """A coding that isn't undone must not be taken for the body, and HTTP/1.0 has none (RFC 9112 §6.1)."""
    coding = request.headers.get("Transfer-Encoding")
    if coding is None:
        return
    if coding.strip().lower() != "chunked":
        raise InvalidArgument("Transfer-Encoding must be chunked, and nothing else", field="Transfer-Encoding")
    if request.version < (1, 1):
        raise InvalidArgument("HTTP/1.0 has no Transfer-Encoding", field="Transfer-Encoding")
