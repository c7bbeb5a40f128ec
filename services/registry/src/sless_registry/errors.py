"""What can go wrong in the registry. The reasons are those of `sless.registry.v1.ErrorReason`, less its prefix."""

from __future__ import annotations

from datetime import timedelta

from sless_platform.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)

_FENCE_RETRY = timedelta(seconds=1)


class NamespaceNotFound(NotFound):
    """There is no such namespace."""

    reason = "NAMESPACE_NOT_FOUND"


class FunctionNotFound(NotFound):
    """There is no such function or service."""

    reason = "FUNCTION_NOT_FOUND"


class VersionNotFound(NotFound):
    """There is no such version."""

    reason = "VERSION_NOT_FOUND"


class FunctionExists(AlreadyExists):
    """The name is taken in this namespace."""

    reason = "FUNCTION_EXISTS"


class InvalidField(InvalidArgument):
    """A field's value is not allowed; `field` names it as the REST API does."""

    reason = "INVALID_FIELD"

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message, field=field)


class EtagMismatch(Aborted):
    """The etag given is not the resource's: somebody else changed it meanwhile."""

    reason = "ETAG_MISMATCH"


class VersionNotBuilt(FailedPrecondition):
    """Only a built version can be activated."""

    reason = "VERSION_NOT_BUILT"


class LimitReached(ResourceExhausted):
    """A limit of the namespace is reached."""

    reason = "LIMIT_REACHED"


class RequestIdReused(FailedPrecondition):
    """The same request_id was used for another request."""

    reason = "REQUEST_ID_REUSED"


class FencePending(Unavailable):
    """The change is stored, but it is not known yet to hold everywhere. Repeating the request waits on."""

    reason = "FENCE_PENDING"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}, but it is not yet confirmed everywhere; repeat the request", retry_after=_FENCE_RETRY
        )


class PageTokenInvalid(InvalidArgument):
    """The page token was not made by this API for this list."""

    reason = "PAGE_TOKEN_INVALID"

    def __init__(self) -> None:
        super().__init__("page_token was not given by this list; leave it empty to begin anew", field="page_token")
