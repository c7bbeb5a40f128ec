"""What auth refuses, and why. The reasons are those of `sless.auth.v1.ErrorReason`, less its prefix."""

from __future__ import annotations

from sless_platform.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)


class TokenInvalid(Unauthenticated):
    """The token does not prove who is calling. Its message never holds a part of the token."""

    reason = "TOKEN_INVALID"


class IssuerUnavailable(Unavailable):
    """The issuer, or its keys, can't be reached now, so no token of it can be judged."""

    reason = "ISSUER_UNAVAILABLE"


class ApiKeysUnavailable(Unavailable):
    """API keys can't be looked up now; tokens of the issuer can be judged nevertheless."""

    reason = "API_KEYS_UNAVAILABLE"


class ApiKeyNotFound(NotFound):
    """There is no such API key in this namespace."""

    reason = "API_KEY_NOT_FOUND"


class InvalidField(InvalidArgument):
    """A field's value is not allowed."""

    reason = "INVALID_FIELD"

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message, field=field)


class LimitReached(ResourceExhausted):
    """The namespace has as many API keys as it may."""

    reason = "LIMIT_REACHED"


class RequestIdReused(FailedPrecondition):
    """The request has been made before. Its answer had a secret in it, which is shown once."""

    reason = "REQUEST_ID_REUSED"


class PageTokenInvalid(InvalidArgument):
    """The page token was not made by this API for this list."""

    reason = "PAGE_TOKEN_INVALID"

    def __init__(self) -> None:
        super().__init__("page_token is not one of this list: begin without one", field="page_token")
