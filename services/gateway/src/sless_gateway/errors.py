"""What the gateway itself refuses, and what every error of the platform is over HTTP: one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sless_platform.errors import (
    Aborted,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    Kind,
    NotFound,
    PlatformError,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)


class RouteNotFound(NotFound):
    """Nothing is served under this path."""

    reason = "ROUTE_NOT_FOUND"


class MethodNotAllowed(Unimplemented):
    """The path is served, but not with this method; `allowed` are those that are."""

    reason = "METHOD_NOT_ALLOWED"

    def __init__(self, message: str, allowed: Sequence[str]) -> None:
        super().__init__(message)
        self.allowed = tuple(allowed)


class TokenMissing(Unauthenticated):
    """The request has no bearer token, or none that can be read."""

    reason = "TOKEN_MISSING"


class AuthenticationAway(Unavailable):
    """Nobody can tell now who is calling."""

    reason = "AUTHENTICATION_AWAY"


class PayloadTooLarge(ResourceExhausted):
    """The request's body is larger than its limit."""

    reason = "PAYLOAD_TOO_LARGE"


class UriTooLong(ResourceExhausted):
    """The request's URL is longer than its limit."""

    reason = "URI_TOO_LONG"


class HeadersTooLarge(ResourceExhausted):
    """A header, or all of them together, are larger than their limit."""

    reason = "HEADERS_TOO_LARGE"


class UnsupportedMediaType(InvalidArgument):
    """The request's body is of a type that is not taken here."""

    reason = "UNSUPPORTED_MEDIA_TYPE"


class EtagMismatch(Aborted):
    """If-Match names another state of the resource."""

    reason = "ETAG_MISMATCH"


class BuildFailed(FailedPrecondition):
    """The upload that was waited for did not become ready; the message is the log's end."""

    reason = "BUILD_FAILED"


class TooManyCalls(ResourceExhausted):
    """This gateway has as many calls in flight as it may."""

    reason = "TOO_MANY_REQUESTS"


class UnsendableAnswer(Internal):
    """The handler gave an answer that HTTP cannot carry. `type` is what the runtimes call that."""

    reason = "HANDLER_ERROR"
    type: Final = "InvalidAnswer"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a client sees of an error: the status and the body's `code`."""

    status: int
    code: str


_Row = tuple[str | None, Kind | None]

TABLE: Final[dict[_Row, Outcome]] = {
    # By reason, whatever the kind; DISABLED alone needs both (a URL is not there, an invoke is in conflict).
    ("DISABLED", Kind.NOT_FOUND): Outcome(404, "DISABLED"),
    ("DISABLED", None): Outcome(409, "DISABLED"),
    ("ROUTE_NOT_FOUND", None): Outcome(404, "NOT_FOUND"),
    ("METHOD_NOT_ALLOWED", None): Outcome(405, "METHOD_NOT_ALLOWED"),
    ("ETAG_MISMATCH", None): Outcome(412, "PRECONDITION_FAILED"),
    ("PAYLOAD_TOO_LARGE", None): Outcome(413, "PAYLOAD_TOO_LARGE"),
    ("ARCHIVE_TOO_LARGE", None): Outcome(413, "PAYLOAD_TOO_LARGE"),
    ("URI_TOO_LONG", None): Outcome(414, "URI_TOO_LONG"),
    ("UNSUPPORTED_MEDIA_TYPE", None): Outcome(415, "UNSUPPORTED_MEDIA_TYPE"),
    ("BUILD_FAILED", None): Outcome(422, "BUILD_FAILED"),
    ("HEADERS_TOO_LARGE", None): Outcome(431, "HEADERS_TOO_LARGE"),
    # A full namespace is no matter of trying again later.
    ("LIMIT_REACHED", None): Outcome(409, "CONFLICT"),
    ("REQUEST_ID_REUSED", None): Outcome(409, "CONFLICT"),
    ("VERSION_NOT_BUILT", None): Outcome(409, "CONFLICT"),
    ("HANDLER_ERROR", None): Outcome(500, "HANDLER_ERROR"),
    ("FUNCTION_CRASHED", None): Outcome(502, "FUNCTION_CRASHED"),
    ("NOT_READY", None): Outcome(503, "NOT_READY"),
    ("INSTANCE_TIMEOUT", None): Outcome(504, "INSTANCE_TIMEOUT"),
    ("FUNCTION_TIMEOUT", None): Outcome(504, "FUNCTION_TIMEOUT"),
    # By kind, for every other reason.
    (None, Kind.INVALID_ARGUMENT): Outcome(400, "INVALID_ARGUMENT"),
    (None, Kind.OUT_OF_RANGE): Outcome(400, "INVALID_ARGUMENT"),
    (None, Kind.UNAUTHENTICATED): Outcome(401, "UNAUTHENTICATED"),
    (None, Kind.PERMISSION_DENIED): Outcome(403, "PERMISSION_DENIED"),
    (None, Kind.NOT_FOUND): Outcome(404, "NOT_FOUND"),
    (None, Kind.ALREADY_EXISTS): Outcome(409, "ALREADY_EXISTS"),
    (None, Kind.FAILED_PRECONDITION): Outcome(409, "CONFLICT"),
    (None, Kind.ABORTED): Outcome(409, "CONFLICT"),
    (None, Kind.RESOURCE_EXHAUSTED): Outcome(429, "TOO_MANY_REQUESTS"),
    (None, Kind.UNAVAILABLE): Outcome(503, "UNAVAILABLE"),
    # A peer that did not answer in time, or gave up: what was asked may work in a moment.
    (None, Kind.DEADLINE_EXCEEDED): Outcome(503, "UNAVAILABLE"),
    (None, Kind.CANCELLED): Outcome(503, "UNAVAILABLE"),
    (None, Kind.UNIMPLEMENTED): Outcome(500, "INTERNAL"),
    (None, Kind.INTERNAL): Outcome(500, "INTERNAL"),
}
"""(reason, kind) → what a client sees; None stands for any. The statuses and codes are those of the REST API."""

_AGAIN: Final = frozenset({429, 503})
_DEFAULT_RETRY_AFTER: Final = timedelta(seconds=1)


def outcome(error: PlatformError) -> Outcome:
    """The row of the table that an error falls under: reason and kind, then reason alone, then kind alone."""
    rows = ((error.reason, error.kind), (error.reason, None), (None, error.kind))
    return next(TABLE[row] for row in rows if row in TABLE)


def retry_after(error: PlatformError, status: int) -> timedelta | None:
    """How long a client should wait; None where the same request will not succeed later."""
    if status not in _AGAIN:
        return None
    return error.retry_after or _DEFAULT_RETRY_AFTER
