"""From what a handler returned to an answer: status, headers and body, or a stream of it."""

from __future__ import annotations

import binascii

from . import TYPE_CHECKING
from .values import InvalidAnswer, json_bytes

if TYPE_CHECKING:
    from typing import Any

_HTML, _TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"
_BINARY, _JSON, _JSON_LINES = "application/octet-stream", "application/json", "application/x-ndjson"
_WHOLE = (dict, list, str, bytes, int, float, type(None))
_BODILESS = (204, 205, 304)
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DROPPED = frozenset(
    (
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Fields that belong to one hop, or to the framing that the caller does (RFC 9110 §7.6.1, RFC 9112 §6)."""


class Answer:
    """Status, headers as pairs, and either `body` or `stream`: an iterator or asynchronous iterator of chunks."""

    __slots__ = ("body", "headers", "status", "stream")

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes, stream: Any = None) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.stream = stream

    def first_chunk(self, chunk: object) -> bytes:
        """The first chunk of the stream, in bytes; it decides the content type where no header does."""
        kind, data = _content(chunk)
        if kind == _JSON:
            kind, data = _JSON_LINES, data + b"\n"
        self.headers = _with_type(self.headers, kind)
        return data


def chunk_bytes(chunk: object) -> bytes:
    """A later chunk of a stream: text and bytes as they are, anything else as one line of JSON."""
    kind, data = _content(chunk)
    return data + b"\n" if kind == _JSON else data


def answer_of(result: object) -> Answer:
    """What the handler's result means. Raises InvalidAnswer."""
    if isinstance(result, dict) and "statusCode" in result:
        return _response(result)
    if not isinstance(result, _WHOLE) and (stream := _stream(result)) is not None:
        return Answer(200, [], b"", stream)
    kind, body = _content(result)
    return Answer(200, [("content-type", kind)], body)


def _response(result: dict[Any, Any]) -> Answer:
    status = _status(result["statusCode"])
    headers = _headers(result.get("headers"))
    content = result.get("body")
    if content is None or status in _BODILESS:
        return Answer(status, headers, b"")
    if result.get("isBase64Encoded"):
        return Answer(status, _with_type(headers, _BINARY), _from_base64(content))
    if (stream := _stream(content)) is not None:
        return Answer(status, headers, b"", stream)
    kind, body = _content(content)
    return Answer(status, _with_type(headers, kind), body)


def _content(value: object) -> tuple[str, bytes]:
    """Content type and bytes of a value that is no stream."""
    if isinstance(value, str):
        return (_HTML if value.startswith("<") else _TEXT), _utf8(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _BINARY, bytes(value)
    return _JSON, json_bytes(value)


def _stream(value: object) -> Any:
    """The iterator behind a value that is sent piece by piece, or None."""
    if hasattr(value, "read") and hasattr(value, "__next__"):
        return _pieces(value)
    if hasattr(value, "__next__") or hasattr(value, "__anext__"):
        return value
    if hasattr(value, "__aiter__"):
        return value.__aiter__()
    return None


def _pieces(file: Any) -> Any:
    """A file in pieces of a size that is good to send, not in lines."""
    with file:
        while piece := file.read(65536):
            yield piece


def _status(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 200 <= value <= 599:
        raise InvalidAnswer(f"statusCode must be from 200 to 599, not {value!r:.100}")
    return int(value)


def _headers(value: object) -> list[tuple[str, str]]:
    if value is None:
        return []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, (list, tuple)) and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value):
        pairs = list(value)
    else:
        raise InvalidAnswer(f"headers must be an object, or a list of pairs, not {value!r:.100}")
    found: list[tuple[str, str]] = []
    for name, content in pairs:
        several = content if isinstance(content, (list, tuple)) else (content,)
        found.extend(_field(name, one) for one in several if one is not None)
    listed = [content for name, content in found if name.lower() == "connection"]
    dropped = _DROPPED.union(*([part.strip().lower() for part in content.split(",")] for content in listed))
    return [field for field in found if field[0].lower() not in dropped]


def _field(name: object, value: object) -> tuple[str, str]:
    if not isinstance(name, str) or not name or not _TOKEN.issuperset(name):
        raise InvalidAnswer(f"{name!r:.100} is no name of a header")
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    if not (text.isascii() and text.isprintable()):
        _check_value(name, text)
    return name, text


def _check_value(name: str, text: str) -> None:
    """What a field's value may hold: tabs, and what is no control character of Latin-1 (RFC 9110 §5.5)."""
    if any((character < " " and character != "\t") or character == "\x7f" for character in text):
        raise InvalidAnswer(f"header {name} has a line break or another control character in its value {text!r:.100}")
    if any(character > "\xff" for character in text):
        raise InvalidAnswer(f"header {name} has a character outside Latin-1 in its value {text!r:.100}: encode it")


def _with_type(headers: list[tuple[str, str]], kind: str) -> list[tuple[str, str]]:
    if any(name.lower() == "content-type" for name, _ in headers):
        return headers
    return [*headers, ("content-type", kind)]


def _from_base64(content: object) -> bytes:
    if not isinstance(content, (str, bytes, bytearray)):
        raise InvalidAnswer(f"a body with isBase64Encoded must be text, not {type(content).__name__}")
    compact = b"".join(bytes(content).split()) if not isinstance(content, str) else "".join(content.split())
    try:
        return binascii.a2b_base64(compact, strict_mode=True)
    except ValueError as error:
        raise InvalidAnswer(f"the body with isBase64Encoded is no base64: {error}") from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Surrogates: pairs become their character, lone ones U+FFFD, as other languages write them.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
