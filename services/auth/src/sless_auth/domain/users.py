"""Users, as their tokens describe them. Pure: the signature has been verified before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sless_contracts.catalog import namespace_of
from sless_platform.identity import ADMIN_ROLE, Principal

from sless_auth.errors import TokenInvalid

IDENTITY_TTL: Final = timedelta(minutes=5)
MAX_TOKEN_BYTES: Final = 16 * 1024
MAX_SUB_CHARS: Final = 255
CLOCK_SKEW_SEC: Final = 10


@dataclass(frozen=True, slots=True)
class AdminRule:
    """The claim, and the value in it, that make a user an admin. Without a claim nobody is one."""

    claim: str = ""
    value: str = ""

    def admits(self, claims: Mapping[str, Any]) -> bool:
        """Whether these claims are an admin's: the claim is the value, or a list that holds it."""
        if not self.claim or not self.value:
            return False
        found = claims.get(self.claim)
        return found == self.value or (isinstance(found, list) and self.value in found)


@dataclass(frozen=True, slots=True)
class Verified:
    """The claims of a token that holds. `remember_until`: how long nobody need ask again; None: as long as the token says."""

    claims: Mapping[str, Any]
    remember_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated user.

    `expires_at`: until when the token says so; None: it does not end by itself. `remember_until`: until when that may be
    believed without asking again; None: as long as the token says.
    """

    principal: Principal
    expires_at: datetime | None
    remember_until: datetime | None = None

    def known(self, now: datetime) -> bool:
        """Whether this still holds without asking anybody."""
        return all(end is None or now < end for end in (self.expires_at, self.remember_until))

    def remember_for(self, now: datetime) -> timedelta | None:
        """How much longer it may be believed; None: as long as the token says."""
        return None if self.remember_until is None else max(self.remember_until - now, timedelta())


@dataclass(frozen=True, slots=True)
class Identity:
    """A signed identity for one service."""

    audience: str
    token: str
    expires_at: datetime


def caller_of(verified: Verified, admin: AdminRule) -> Caller:
    """The user whom verified claims describe. Raises TokenInvalid when they name none."""
    claims = verified.claims
    sub = claims.get("sub")
    if not isinstance(sub, str) or not 1 <= len(sub) <= MAX_SUB_CHARS or not sub.isprintable():
        raise TokenInvalid(f"the token's sub must be a text of 1 to {MAX_SUB_CHARS} printable characters")
    roles = frozenset({ADMIN_ROLE}) if admin.admits(claims) else frozenset[str]()
    return Caller(Principal(sub, namespace_of(sub), roles), _expiry(claims), verified.remember_until)


def identity_expiry(caller: Caller, now: datetime) -> datetime:
    """When an identity that is made now ends: never after the token it was made from."""
    longest = now + IDENTITY_TTL
    return longest if caller.expires_at is None else min(longest, caller.expires_at)


def check_times(claims: Mapping[str, Any], now: float) -> None:
    """Raises TokenInvalid for a token that has expired or is not valid yet; ten seconds are allowed for clocks that differ."""
    if now >= _time(claims.get("exp", math.inf)) + CLOCK_SKEW_SEC:
        raise TokenInvalid("the token has expired: get a new one")
    if now < _time(claims.get("nbf", 0)) - CLOCK_SKEW_SEC:
        raise TokenInvalid("the token is not valid yet")


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenInvalid("the token's exp and nbf must be numbers")
    return value


def _expiry(claims: Mapping[str, Any]) -> datetime | None:
    if "exp" not in claims:
        return None
    try:
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise TokenInvalid("the token's exp is no time") from None
