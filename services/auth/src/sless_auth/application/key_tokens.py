"""API keys as bearer tokens: verified by what is stored of them, and their use noted."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sless_platform.identity import Principal

from sless_auth.domain.api_keys import TRUSTED_FOR, StoredKey, digest_of, id_of
from sless_auth.domain.users import Caller
from sless_auth.errors import ApiKeysUnavailable, TokenInvalid
from sless_auth.ports import ApiKeyStore

_REMEMBERED_KEYS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Read:
    stored: StoredKey
    at: datetime


class KeyTokens:
    """Verifies keys. What was read is believed for TRUSTED_FOR, so a key that others revoke ends here within that time."""

    def __init__(self, store: ApiKeyStore, *, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._read: OrderedDict[str, _Read] = OrderedDict()
        self._used: dict[str, datetime] = {}

    async def verify(self, *, token: str) -> Caller:
        """Whom the key acts for, in its namespace and without roles. Raises TokenInvalid, ApiKeysUnavailable."""
        key_id = id_of(token)
        if key_id is None:
            raise TokenInvalid("the API key is not a whole one: compare it with what was shown when it was made")
        now = self._now()
        stored = await self._stored(key_id, now)
        if stored is None or not hmac.compare_digest(stored.digest, digest_of(token)):
            raise TokenInvalid("there is no such API key: it was revoked, or never made here")
        key = stored.key
        if key.expired(now):
            raise TokenInvalid("the API key has expired: make a new one")
        self._used[key.id] = now
        principal = Principal(key.created_by, key.namespace, credential=key.id)
        return Caller(principal, key.expires_at, now + TRUSTED_FOR)

    def forget(self, key_id: str) -> None:
        """Believe nothing any more that was read of a key."""
        self._read.pop(key_id, None)

    async def write_uses(self) -> None:
        """Store when keys were last used. Raises ApiKeysUnavailable; then they are stored the next time."""
        uses, self._used = self._used, {}
        if not uses:
            return
        try:
            await self._store.note_uses(uses)
        except ApiKeysUnavailable:
            self._used = {**uses, **self._used}
            raise

    async def _stored(self, key_id: str, now: datetime) -> StoredKey | None:
        read = self._read.get(key_id)
        if read is not None and read.at <= now < read.at + TRUSTED_FOR:
            return read.stored
        self._read.pop(key_id, None)
        stored = await self._store.find(key_id)
        if stored is not None:
            self._read[key_id] = _Read(stored, now)
            if len(self._read) > _REMEMBERED_KEYS:
                self._read.popitem(last=False)
        return stored
