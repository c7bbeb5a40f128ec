"""Users, as their tokens describe them. Pure: the signature has been verified before."""

from __future__ import annotations

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
class Caller:
    """An authenticated user, and until when the token says so."""

    principal: Principal
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Identity:
    """A signed identity for one service."""

    audience: str
    token: str
    expires_at: datetime


def caller_of(claims: Mapping[str, Any], admin: AdminRule) -> Caller:
    """The user whom verified claims describe. Raises TokenInvalid when they name none."""
    sub = claims.get("sub")
    if not isinstance(sub, str) or not 1 <= len(sub) <= MAX_SUB_CHARS or not sub.isprintable():
        raise TokenInvalid(f"the token's sub must be a text of 1 to {MAX_SUB_CHARS} printable characters")
    roles = frozenset({ADMIN_ROLE}) if admin.admits(claims) else frozenset[str]()
    return Caller(Principal(sub, namespace_of(sub), roles), _expiry(claims))


def identity_expiry(caller: Caller, now: datetime) -> datetime:
    """When an identity that is made now ends: never after the token it was made from."""
    return min(now + IDENTITY_TTL, caller.expires_at)


def _expiry(claims: Mapping[str, Any]) -> datetime:
    try:
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        raise TokenInvalid("the token must say when it expires (exp)") from None
