"""Which header fields pass an intermediary (RFC 9110 §7.6.1); pure."""

from collections.abc import Iterable
from typing import Final

HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Fields for one hop only, lower case: those that §7.6.1 names, and the proxy's own (§11.7), for this platform
is the origin and no client's proxy."""


def end_to_end(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The fields that go on, in their order, duplicates kept.

    Left out are `HOP_BY_HOP` and every field that a Connection field lists, whatever its case.
    """
    fields = list(headers)
    listed = [value for name, value in fields if name.lower() == "connection"]
    if not listed:
        return [field for field in fields if field[0].lower() not in HOP_BY_HOP]
    dropped = HOP_BY_HOP | {option.strip().lower() for value in listed for option in value.split(",")}
    return [field for field in fields if field[0].lower() not in dropped]


def request_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What a handler sees of a client's fields.

    `Expect` is answered by the server that reads the body, so it is left out as well (RFC 9110 §10.1.1).
    """
    return [field for field in end_to_end(headers) if field[0].lower() != "expect"]


def response_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What a client sees of a handler's fields.

    Content-Length is left out: whoever writes the answer frames it (RFC 9112 §6).
    """
    return [field for field in end_to_end(headers) if field[0].lower() != "content-length"]
