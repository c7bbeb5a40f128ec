"""Typed errors: what went wrong, in the thirteen kinds that a caller can act on.

Pure: domain and application code raises these; the rpc package carries them over the wire and back.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar


class Kind(enum.Enum):
    """What a caller can do about an error. Names and meanings are those of the gRPC status codes
    (grpc.github.io/grpc/core/md_doc_statuscodes.html)."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    UNAVAILABLE = "UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    INTERNAL = "INTERNAL"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    CANCELLED = "CANCELLED"
    OUT_OF_RANGE = "OUT_OF_RANGE"


class PlatformError(Exception):
    """An error that a caller may see.

    message      one sentence: what is wrong, with the value, and what to do; shown to people.
    field        the request's field that is at fault, in proto spelling (`limits.memory_mb`); None when no one field is.
    retry_after  how long to wait before the same call may succeed; None when unknown.
    metadata     machine-readable facts (at most a few short strings).
    reason       UPPER_SNAKE, stable, what programs compare; a subclass's own, or the one given here.
    """

    kind: ClassVar[Kind] = Kind.INTERNAL
    reason: str = Kind.INTERNAL.value

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__ and "reason" not in cls.__dict__:
            cls.reason = cls.kind.value

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        retry_after: timedelta | None = None,
        metadata: Mapping[str, str] | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_after = retry_after
        self.metadata: Mapping[str, str] = dict(metadata or {})
        if reason is not None:
            self.reason = reason


class InvalidArgument(PlatformError):
    """The request is wrong whatever the state of the system."""

    kind = Kind.INVALID_ARGUMENT


class NotFound(PlatformError):
    """The thing that was named is not there."""

    kind = Kind.NOT_FOUND


class AlreadyExists(PlatformError):
    """The thing to be created is there already."""

    kind = Kind.ALREADY_EXISTS


class PermissionDenied(PlatformError):
    """The caller is known and may not do this."""

    kind = Kind.PERMISSION_DENIED


class Unauthenticated(PlatformError):
    """The caller is not known: no identity, or one that does not hold."""

    kind = Kind.UNAUTHENTICATED


class FailedPrecondition(PlatformError):
    """The request is right but the state of the system forbids it; repeating it alone will not help."""

    kind = Kind.FAILED_PRECONDITION


class Aborted(PlatformError):
    """Somebody else changed the same thing meanwhile: read again, decide again."""

    kind = Kind.ABORTED


class ResourceExhausted(PlatformError):
    """A limit is reached: a quota, a queue's bound, a message's size."""

    kind = Kind.RESOURCE_EXHAUSTED


class Unavailable(PlatformError):
    """Something that is needed does not answer now; the same request may succeed soon."""

    kind = Kind.UNAVAILABLE


class DeadlineExceeded(PlatformError):
    """The time given was not enough; what was asked may have happened nevertheless."""

    kind = Kind.DEADLINE_EXCEEDED


class Internal(PlatformError):
    """A fault of the platform itself."""

    kind = Kind.INTERNAL


class Unimplemented(PlatformError):
    """The operation does not exist in this release."""

    kind = Kind.UNIMPLEMENTED


class Cancelled(PlatformError):
    """The call was given up, as a rule by its caller."""

    kind = Kind.CANCELLED


class OutOfRange(PlatformError):
    """A position beyond the end of what is there."""

    kind = Kind.OUT_OF_RANGE


_CLASSES: dict[Kind, type[PlatformError]] = {
    error.kind: error
    for error in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        Unauthenticated,
        FailedPrecondition,
        Aborted,
        ResourceExhausted,
        Unavailable,
        DeadlineExceeded,
        Internal,
        Unimplemented,
        Cancelled,
        OutOfRange,
    )
}


def class_of(kind: Kind) -> type[PlatformError]:
    """The class of this module that has this kind."""
    return _CLASSES[kind]
