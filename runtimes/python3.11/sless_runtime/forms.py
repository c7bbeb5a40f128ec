"""Form bodies: `application/x-www-form-urlencoded` and `multipart/form-data`, and percent-decoding.

`urllib.parse` and `email` are not imported: they cost 10 and 40 ms at the first call that needs them.
"""

from __future__ import annotations

import binascii

from . import TYPE_CHECKING

if TYPE_CHECKING:
    Field = str | dict[str, object]
    Fields = dict[str, object]

_HEX = b"0123456789abcdefABCDEF"


class NoForm(ValueError):
    """The body is not the form that its content type says."""


def unquote(text: str) -> str:
    """Percent-decode; what is no UTF-8 becomes U+FFFD, a lone `%` stays."""
    if "%" not in text:
        return text
    first, *rest = text.encode("utf-8", "replace").split(b"%")
    return b"".join((first, *map(_after_percent, rest))).decode("utf-8", "replace")


def pairs(text: str) -> list[tuple[str, str]]:
    """Names and values of a query string or an urlencoded body, in their order."""
    found = []
    for part in text.split("&"):
        if part:
            name, _, value = part.replace("+", " ").partition("=")
            found.append((unquote(name), unquote(value)))
    return found


def urlencoded(text: str) -> Fields:
    """The fields of an urlencoded body; one that occurs several times is the list of its values."""
    return _collected([(name, value) for name, value in pairs(text)])


def multipart(body: bytes, content_type: str) -> Fields:
    """The fields of a multipart body (RFC 7578), as `urlencoded` gives them.

    A file is `{"filename", "content_type", "body", "isBase64Encoded"}`. Raises NoForm.
    """
    boundary = _parameter(content_type, "boundary")
    if not boundary:
        raise NoForm("its content type names no boundary")
    delimiter = b"\r\n--" + boundary.encode("utf-8", "replace")
    _, *parts = (b"\r\n" + body).split(delimiter)
    if not parts or not parts[-1].startswith(b"--"):
        raise NoForm("its last boundary is missing")
    return _collected([_part(part) for part in parts[:-1]])


def text_or_base64(body: bytes) -> tuple[str, bool]:
    """The body as text when it is UTF-8, else in base64; and whether it is base64."""
    try:
        return body.decode(), False
    except UnicodeDecodeError:
        return binascii.b2a_base64(body, newline=False).decode(), True


def _after_percent(piece: bytes) -> bytes:
    if len(piece) >= 2 and piece[0] in _HEX and piece[1] in _HEX:
        return bytes((int(piece[:2], 16),)) + piece[2:]
    return b"%" + piece


def _collected(found: list[tuple[str, Field]]) -> Fields:
    fields: Fields = {}
    several: dict[str, list[object]] = {}
    for name, value in found:
        if name in several:
            several[name].append(value)
        elif name in fields:
            fields[name] = several[name] = [fields[name], value]
        else:
            fields[name] = value
    return fields


def _part(part: bytes) -> tuple[str, Field]:
    """One part: what follows its boundary, up to the next one."""
    head, blank, content = part.partition(b"\r\n\r\n")
    if not blank:
        raise NoForm("a part has no end of its headers")
    headers = {}
    for line in head.decode("utf-8", "replace").split("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    disposition = headers.get("content-disposition", "")
    field = _parameter(disposition, "name")
    if field is None:
        raise NoForm("a part has no name")
    text, is_base64 = text_or_base64(content)
    filename = _parameter(disposition, "filename")
    if filename is None and not is_base64:
        return field, text
    kind = headers.get("content-type", "application/octet-stream")
    return field, {"filename": filename, "content_type": kind, "body": text, "isBase64Encoded": is_base64}


def _parameter(value: str, wanted: str) -> str | None:
    """A parameter of a header's value, such as `boundary` of a content type; quotes are taken off."""
    rest = value.partition(";")[2]
    while rest:
        name, _, rest = rest.lstrip("; \t").partition("=")
        if rest.startswith('"'):
            found, rest = _quoted(rest)
        else:
            found, _, rest = rest.partition(";")
        if name.strip().lower() == wanted:
            return found.strip()
    return None


def _quoted(rest: str) -> tuple[str, str]:
    """A quoted string and what follows it. Browsers write a quote within as `%22` or with a backslash."""
    found = []
    position = 1
    while position < len(rest) and rest[position] != '"':
        if rest[position] == "\\" and rest[position + 1 : position + 2] in ('"', "\\"):
            position += 1
        found.append(rest[position])
        position += 1
    return "".join(found), rest[position + 1 :]
