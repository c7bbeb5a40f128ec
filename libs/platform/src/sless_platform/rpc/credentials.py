"""Whose identity a channel sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sless_platform.identity import IdentitySigner, Principal
from sless_platform.rpc.options import DEFAULT_IDENTITY_METADATA

Metadata = Sequence[tuple[str, str | bytes]]


class IdentitySource(Protocol):
    """Gives the identity token that a call is sent with."""

    def token(self) -> str:
        """A token that still holds for a while."""
        ...


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ServiceIdentity:
    """A service that speaks for itself to one audience; the token is signed anew at half of its life."""

    def __init__(
        self,
        signer: IdentitySigner,
        service: str,
        audience: str,
        *,
        ttl: timedelta = timedelta(minutes=5),
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """`service`: our own name, the signer's issuer. `audience`: the service that is called."""
        if service != signer.issuer:
            raise ValueError(f"the key of {signer.issuer!r} cannot speak for the service {service!r}")
        self._signer = signer
        self._principal = Principal(subject=service, service=service)
        self._audience = audience
        self._ttl = ttl
        self._now = now
        self._token = ""
        self._renew_at: datetime | None = None

    def token(self) -> str:
        """See IdentitySource."""
        now = self._now()
        if self._renew_at is None or now >= self._renew_at:
            self._token = self._signer.sign(self._principal, self._audience, self._ttl, now)
            self._renew_at = now + self._ttl / 2
        return self._token


class UserIdentity:
    """A token that was minted for a user, sent as it is."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        """See IdentitySource."""
        return self._token


def with_identity(token: str) -> tuple[tuple[str, str], ...]:
    """Metadata for one call made as somebody else: `stub.Get(request, metadata=with_identity(token))`.

    The channel sends it under its own key, instead of its own identity.
    """
    return ((DEFAULT_IDENTITY_METADATA, token),)
