"""What auth refuses, and why."""

from __future__ import annotations

from sless_platform.errors import Unauthenticated, Unavailable


class TokenInvalid(Unauthenticated):
    """The token does not prove who is calling. Its message never holds a part of the token."""

    reason = "TOKEN_INVALID"


class IssuerUnavailable(Unavailable):
    """The issuer's keys can't be had now, so no token of it can be judged."""

    reason = "ISSUER_UNAVAILABLE"
