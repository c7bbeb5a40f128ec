"""Errors as answers: JSON on every path, with nothing in it that a client has no use for."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec
from sless_platform.errors import Internal, Kind, PlatformError

from sless_gateway.domain import Headers
from sless_gateway.errors import TABLE, MethodNotAllowed, UnsendableAnswer, outcome, retry_after
from sless_gateway.http_api.answer import Answer
from sless_gateway.http_api.fields import about

JSON_TYPE: Final = "application/json; charset=utf-8"

_OWN_WORDS: Final = frozenset({Kind.UNAVAILABLE, Kind.DEADLINE_EXCEEDED, Kind.CANCELLED})


class ErrorBody(msgspec.Struct, omit_defaults=True):
    """What the body of every error says.

    `field`: the request's field that is at fault; left out when no one is. `type`: of a HANDLER_ERROR alone.
    """

    error: Annotated[str, about("A sentence for people.")]
    code: Annotated[str, about("A word for programs.", enum=sorted({outcome.code for outcome in TABLE.values()}))]
    field: str | None = None
    type: Annotated[str | None, about("The type of a handler's error, as its language names it.")] = None
    request_id: str = ""


def error_answer(
    error: PlatformError, request_id: str, extra: Headers | None = None, *, closing: bool = False
) -> Answer:
    """The answer to a request that failed. `extra`: headers that the answer would have had anyway."""
    told = outcome(error)
    type_ = error.type if isinstance(error, UnsendableAnswer) else None
    body = ErrorBody(_sentence(error), told.code, error.field, type_, request_id)
    headers: Headers = [("Content-Type", JSON_TYPE), ("X-Request-Id", request_id), *(extra or ())]
    headers += _hints(error, told.status)
    return Answer(told.status, headers, msgspec.json.encode(body), closing=closing)


def internal(request_id: str) -> Internal:
    """What a client is told of a fault of ours."""
    return Internal(f"internal error; request id {request_id}")


def _hints(error: PlatformError, status: int) -> Headers:
    """What a client may do about it, in headers."""
    hints: Headers = []
    if isinstance(error, MethodNotAllowed):
        hints.append(("Allow", ", ".join(error.allowed)))
    if status == 401:
        invalid = ', error="invalid_token"' if error.reason == "TOKEN_INVALID" else ""
        hints.append(("WWW-Authenticate", f'Bearer realm="sless"{invalid}'))
    wait = retry_after(error, status)
    if wait is not None:
        hints.append(("Retry-After", str(max(1, math.ceil(wait.total_seconds())))))
    return hints


def _sentence(error: PlatformError) -> str:
    if error.kind in _OWN_WORDS and error.reason == error.kind.value:
        # Made by the transport: it names a service, and which one is nothing for a client.
        return "the platform can't do this right now; try again"
    return error.message
