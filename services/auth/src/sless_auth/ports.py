"""What auth needs of the outside."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from sless_platform.identity import Principal


class TokenVerifier(Protocol):
    """Judges tokens of the external issuer."""

    async def verify(self, token: str, now: datetime) -> Mapping[str, Any]:
        """The claims of a token whose signature, issuer, audience and times hold.

        Raises TokenInvalid when they don't, IssuerUnavailable when the issuer's keys can't be had.
        """
        ...


class IdentityMint(Protocol):
    """Signs internal identities."""

    def mint(self, principal: Principal, *, audience: str, expires_at: datetime, now: datetime) -> str:
        """A token with which `principal` calls `audience` until `expires_at`."""
        ...
