"""Internal identities, signed with the key of this service."""

from __future__ import annotations

from datetime import datetime

from sless_platform.identity import IdentitySigner, Principal


class SigningMint:
    """Mints by the platform's signer."""

    def __init__(self, signer: IdentitySigner) -> None:
        self._signer = signer

    def mint(self, principal: Principal, *, audience: str, expires_at: datetime, now: datetime) -> str:
        """See IdentityMint."""
        return self._signer.sign(principal, audience, expires_at - now, now)
