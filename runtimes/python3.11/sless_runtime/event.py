"""From a CALL to what the handler sees: the event and the context."""

from __future__ import annotations

import time

from . import TYPE_CHECKING, forms, jsontext

if TYPE_CHECKING:
    import datetime

    from .settings import Settings

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class BadHead(ValueError):
    """The head of a CALL is not what the protocol says; `str()` is a sentence."""


class CallHead:
    """The head of a CALL, checked. Raises ValueError (BadHead among them), saying what is wrong."""

    __slots__ = (
        "attempt",
        "deadline_ms",
        "end",
        "headers",
        "id",
        "method",
        "path",
        "query",
        "request_id",
        "schedule_time",
        "traceparent",
        "trigger",
    )

    def __init__(self, data: bytes) -> None:
        head = jsontext.loads(data.decode())
        if not isinstance(head, dict):
            raise BadHead("the head is no JSON object")
        self.id = _text(head, "id", "")
        self.method = _text(head, "method", "POST")
        self.path = _text(head, "path", "/")
        self.query = _text(head, "query", "")
        self.headers = _headers(head.get("headers"))
        self.deadline_ms = _milliseconds(head.get("deadline_ms"))
        self.traceparent = _text(head, "traceparent", "")
        self.trigger = _text(head, "trigger", "http")
        self.attempt = head.get("attempt", 1)
        self.request_id = _text(head, "request_id", self.id)
        self.schedule_time = _text(head, "schedule_time", "")
        self.end = head.get("end", True) is True


class Context:
    """The second argument of a handler: what surrounds the call.

    Attributes:
        request_id, invocation_id: as in the answer's headers.
        namespace, function, version, memory_mb: of the function; version is a number.
        trigger: `http`, `invoke`, `cron`, `event`, `async` or `job`; attempt: 1 for the first.
        schedule_time: RFC 3339 text, the tick of a cron call, else None.
        traceparent: W3C trace context, or None.
        deadline: aware datetime, or None when there is no time limit.
        method, path, query, headers: as they came: percent-encoded, headers as a list of pairs.
    """

    def __init__(self, settings: Settings, head: CallHead, deadline: float) -> None:
        self.request_id = head.request_id
        self.invocation_id = head.id
        self.namespace = settings.namespace
        self.function = settings.function
        self.version = settings.version
        self.memory_mb = settings.memory_mb
        self.trigger = head.trigger
        self.attempt = head.attempt
        self.schedule_time = head.schedule_time or None
        self.traceparent = head.traceparent or None
        self.method = head.method
        self.path = head.path
        self.query = head.query
        self.headers = head.headers
        self._deadline = deadline

    def remaining_ms(self) -> float:
        """Milliseconds until the deadline, 0 when it has passed, infinity when there is no time limit."""
        left = (self._deadline - time.monotonic()) * 1000
        return left if left == float("inf") else max(0, int(left))

    @property
    def deadline(self) -> datetime.datetime | None:
        """When the call is answered 504: UTC, or None when there is no time limit."""
        if self._deadline == float("inf"):
            return None
        from datetime import datetime, timedelta, timezone

        return datetime.now(timezone.utc) + timedelta(seconds=self._deadline - time.monotonic())  # noqa: UP017


def make_event(head: CallHead, body: bytes) -> object:
    """The event of a call. Where it is an object, what is known of the request is added to it."""
    headers = _joined(head.headers)
    event = _decoded(body, headers.get("content-type", "")) if body else {}
    if isinstance(event, dict):
        event["_method"] = head.method
        event["_path"] = forms.unquote(head.path) or "/"
        event["_query"] = dict(forms.pairs(head.query)) if head.query else {}
        event["_headers"] = headers
    return event


def _decoded(body: bytes, content_type: str) -> object:
    kind = content_type.partition(";")[0].strip().lower()
    if not kind or kind in _FORMS:
        return _form_or_json(kind, body, content_type)
    if kind in ("application/json", "text/json") or kind.endswith("+json"):
        try:
            return jsontext.loads(body.removeprefix(b"\xef\xbb\xbf").decode())
        except ValueError:
            return {**_raw(body), "invalid_json": True}
    return _raw(body)


def _form_or_json(kind: str, body: bytes, content_type: str) -> object:
    """`curl -d '{"a": 1}'` calls JSON a form, so a body that is a JSON object or array is taken as that."""
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            return jsontext.loads(body.decode())
        except ValueError:
            pass
    try:
        if kind == _FORMS[0]:
            return forms.urlencoded(body.decode())
        if kind == _FORMS[1]:
            return forms.multipart(body, content_type)
    except ValueError:
        pass
    return _raw(body)


def _raw(body: bytes) -> dict[str, object]:
    text, is_base64 = forms.text_or_base64(body)
    return {"body": text, "isBase64Encoded": is_base64}


def _joined(headers: list[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        joined[lower] = f"{joined[lower]}, {value}" if lower in joined else value
    return joined


def _text(head: dict[str, object], name: str, default: str) -> str:
    value = head.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise BadHead(f"{name} is no text")
    return value


def _headers(value: object) -> list[tuple[str, str]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadHead("headers is no list")
    found = []
    for pair in value:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], str)):
            raise BadHead("headers holds something other than pairs of texts")
        found.append((pair[0], pair[1]))
    return found


def _milliseconds(value: object) -> float:
    """No limit is infinity."""
    if value is None:
        return float("inf")
    if not isinstance(value, (int, float)):
        raise BadHead("deadline_ms is no number")
    return value
