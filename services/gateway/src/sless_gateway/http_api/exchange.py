"""One request on its way to an answer."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web
from sless_contracts import catalog, limits
from sless_platform.errors import InvalidArgument, NotFound

from sless_gateway.application.conditions import Condition, if_match
from sless_gateway.domain import Caller, FunctionKey, Headers, Kind
from sless_gateway.errors import TokenMissing
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.errors import JSON_TYPE

REQUEST_ID: Final = "X-Request-Id"

_SANE_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_BEARER: Final = re.compile(r"bearer +([\x21-\x7e]+) *", re.IGNORECASE)
_TRUTHS: Final = {"1": True, "true": True, "0": False, "false": False}


@dataclass(slots=True)
class Target:
    """A request's target as it came: percent-encoded, dots and slashes kept. `query` without the question mark."""

    path: str
    query: str

    @classmethod
    def of(cls, raw: str) -> Target:
        """Raises InvalidArgument for what no client should send (RFC 9112 §3.2)."""
        try:
            raw.encode()
        except UnicodeEncodeError:
            raise InvalidArgument("the URL has bytes that are no UTF-8: percent-encode them") from None
        if "#" in raw:
            raise InvalidArgument("the URL has a fragment: what follows # is for the client alone")
        if not raw.startswith("/"):
            raw = _origin_form(raw)
        path, _, query = raw.partition("?")
        return cls(path, query)


def _origin_form(raw: str) -> str:
    """The path and query of an absolute-form target (§3.2.2); anything else is left to be found nowhere."""
    scheme, separator, rest = raw.partition("://")
    if not separator or scheme.lower() not in {"http", "https"}:
        return raw
    start = min((position for position in (rest.find("/"), rest.find("?")) if position >= 0), default=len(rest))
    after = rest[start:]
    return after if after.startswith("/") else f"/{after}"


class Exchange:
    """A request, who is calling, and what its route's template named."""

    def __init__(self, request: web.BaseRequest, request_id: str) -> None:
        self.request = request
        self.request_id = request_id
        self.target = Target("", "")
        self.trusted = True
        """Whether it is certain where the request ends, and the next one on its connection begins."""
        self.template = ""
        """The route's, once it is known."""
        self.params: Mapping[str, str] = {}
        self.kind: Kind | None = None
        self.extra: Headers = []
        """Headers that the answer has whatever becomes of the request."""
        self._caller: Caller | None = None

    @property
    def caller(self) -> Caller:
        """Who is calling; on routes that want a token."""
        assert self._caller is not None, "the route is open to everyone"  # noqa: S101
        return self._caller

    @caller.setter
    def caller(self, caller: Caller) -> None:
        self._caller = caller

    @property
    def namespace(self) -> str:
        """The path's namespace."""
        return self.params["ns"]

    @property
    def key(self) -> FunctionKey:
        """The function that the path names. Raises NotFound for what can't be a name."""
        name = self.params["name"]
        assert self.kind is not None, "the route is of a collection"  # noqa: S101
        if catalog.NAME_PATTERN.fullmatch(name) is None:
            raise NotFound(f"{self.kind.value} not found: {name}")
        return FunctionKey(self.namespace, name, self.kind)

    @property
    def version(self) -> int:
        """The version that the path names. Raises NotFound for what can't be one."""
        text = self.params["version"]
        if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0):
            raise NotFound(f"version not found: {text}")
        return int(text)

    @property
    def condition(self) -> Condition:
        """What If-Match says."""
        return if_match(self.request.headers.getall("If-Match", ()))

    @cached_property
    def query(self) -> Mapping[str, str]:
        """The query's parameters, decoded; the last value of each."""
        return dict(parse_qsl(self.target.query, keep_blank_values=True))

    def flag(self, name: str, *, default: bool) -> bool:
        """A parameter that is 1, true, 0 or false. Raises InvalidArgument."""
        text = self.query.get(name)
        if text is None:
            return default
        if text not in _TRUTHS:
            raise InvalidArgument(f"{name} must be true or false, not {text!r}", field=name)
        return _TRUTHS[text]

    def wait(self) -> timedelta | None:
        """How long the answer may be held (`?wait=SEC`); None: not at all. Raises InvalidArgument."""
        text = self.query.get("wait")
        if text is None:
            return None
        longest = limits.WAIT_SEC.value
        if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) <= longest):
            raise InvalidArgument(f"wait must be from 0 to {longest} seconds, not {text!r}", field="wait")
        return timedelta(seconds=int(text)) or None

    def token(self) -> str:
        """The bearer token. Raises TokenMissing."""
        token = self.offered_token()
        if token is None:
            raise TokenMissing("this needs a token: send Authorization: Bearer …")
        return token

    def offered_token(self) -> str | None:
        """The bearer token if the request has one."""
        values = self.request.headers.getall("Authorization", ())
        match = _BEARER.fullmatch(values[0].strip()) if len(values) == 1 else None
        return match[1] if match is not None else None

    def json(self, status: int, value: Any, *, etag: str | None = None) -> Answer:
        """An answer with a JSON body."""
        headers: Headers = [("Content-Type", JSON_TYPE)]
        if etag is not None:
            headers.append(("ETag", f'"{etag}"'))
        return self.answer(status, headers, msgspec.json.encode(value))

    def answer(self, status: int, headers: Headers, body: bytes = b"", *, length: int | None = None) -> Answer:
        """An answer of the platform itself: never stored by a cache, since it is true now and for this caller only.

        `length`: of a body that is streamed, when it is known beforehand.
        """
        own: Headers = [(REQUEST_ID, self.request_id), ("Cache-Control", "no-store")]
        return Answer(status, [*headers, *own, *self.extra], body, length=length)


def request_id_of(request: web.BaseRequest) -> str:
    """The client's request id when it is a sane one, else a new one."""
    values = request.headers.getall(REQUEST_ID, ())
    if len(values) == 1 and _SANE_ID.fullmatch(values[0]):
        return values[0]
    return uuid.uuid4().hex
