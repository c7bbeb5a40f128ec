"""Why a call is not made, or not answered by its handler. Reasons are those of sless.invoker.v1.ErrorReason."""

from __future__ import annotations

from sless_platform.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)


class FunctionNotFound(NotFound):
    """There is no such function, or nothing exposes it."""

    reason = "FUNCTION_NOT_FOUND"


class UrlDisabled(NotFound):
    """The function is switched off; its URL answers as if it were not there."""

    reason = "DISABLED"


class FunctionDisabled(FailedPrecondition):
    """The function is switched off, and its owner invoked it."""

    reason = "DISABLED"


class NotReady(Unavailable):
    """No version of the function has ever been ready."""

    reason = "NOT_READY"


class InstancesUnavailable(Unavailable):
    """Instances can't be had now, or what is needed to find them is away."""

    reason = "UNAVAILABLE"


class InstanceTimeout(DeadlineExceeded):
    """No instance could be had within the time that a call may wait for one."""

    reason = "INSTANCE_TIMEOUT"


class FunctionTimeout(DeadlineExceeded):
    """The instance stayed silent past the function's timeout."""

    reason = "FUNCTION_TIMEOUT"


class FunctionCrashed(Unavailable):
    """The instance ended during the call."""

    reason = "FUNCTION_CRASHED"


class TooManyRequests(ResourceExhausted):
    """A bound on calls that run or wait is reached."""

    reason = "TOO_MANY_REQUESTS"


class TokenRequired(Unauthenticated):
    """The function's URL wants a token of its owner."""

    reason = "TOKEN_REQUIRED"


class CallMalformed(InvalidArgument):
    """The messages of a call came in an order that makes no sense."""

    reason = "CALL_MALFORMED"
