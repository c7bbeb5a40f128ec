"""What auth needs of the outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from sless_platform.identity import Principal

from sless_auth.domain.api_keys import ApiKey, Position, StoredKey
from sless_auth.domain.users import Verified


class TokenVerifier(Protocol):
    """Judges tokens of the external issuer."""

    async def verify(self, token: str, now: datetime) -> Verified:
        """The claims of a token that holds.

        Raises TokenInvalid when it doesn't, IssuerUnavailable when the issuer, or its keys, can't be reached.
        """
        ...


class IdentityMint(Protocol):
    """Signs internal identities."""

    def mint(self, principal: Principal, *, audience: str, expires_at: datetime, now: datetime) -> str:
        """A token with which `principal` calls `audience` until `expires_at`."""
        ...


class ApiKeyStore(Protocol):
    """Where API keys are kept. Every method raises ApiKeysUnavailable while it can't be reached."""

    async def add(self, stored: StoredKey, *, request_id: str, limit: int, now: datetime) -> None:
        """Keep a new key. When the namespace has `limit` keys already, those that have expired give way first.

        Raises LimitReached when none has, RequestIdReused when its maker has used the request_id ("": none) before.
        """
        ...

    async def find(self, key_id: str) -> StoredKey | None:
        """The key of that id."""
        ...

    async def page(self, namespace: str, *, after: Position | None, limit: int) -> Sequence[ApiKey]:
        """The namespace's keys, newest first: the first ones, or those that come after a position."""
        ...

    async def remove(self, namespace: str, key_id: str) -> bool:
        """Forget a key; whether it was there."""
        ...

    async def remove_all(self, namespace: str) -> Sequence[str]:
        """Forget all keys of a namespace; their ids."""
        ...

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """Keep when keys were last used; those that are gone meanwhile don't matter."""
        ...
